package export

import (
	"github.com/whylate/whylate/internal/explain/threadstate"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A Sink receives a trace during its second reading, generation by generation, when its report is known. Its methods are not
// called concurrently. An error ends the reading.
type Sink interface {
	// Generation receives every generation before the requests that ended in it. The generation stays valid until
	// KeepGenerations more have been passed; joined says that no generation is missing since the last call.
	Generation(g *timeline.Gen, syms *tracefmt.Symbols, joined bool) error
	// Request receives every ended request of the report's groups, in the order of the generations in which they ended.
	Request(q *Request) error
	// Close is called after everything else. end is the last instant of the trace.
	Close(end int64) error
}

// A BoundedSink uses generations up to a time. A sink of another type uses no generations after the last request.
type BoundedSink interface {
	Sink
	// IsComplete reports whether the sink needs no more generations.
	IsComplete() bool
}

// A ThreadSink shows what the kernel's events show of threads. SetThreads is called before all other methods; when a generation is
// passed, its events have been read.
type ThreadSink interface {
	SetThreads(*threadstate.Tracker)
}

// noGenerations is embedded in a Sink that does not use generations.
type noGenerations struct{}

func (noGenerations) Generation(*timeline.Gen, *tracefmt.Symbols, bool) error { return nil }

// KeepGenerations is how many generations a Sink may use, including the last one passed.
const KeepGenerations = 3

// A Request is one request of a report's group. It is valid during the call.
type Request struct {
	Group *report.Group
	ID    string
	// StartNS counts from the trace's start.
	StartNS, LatencyNS int64
	Goroutine          uint64
	// CauseNS are the ns of each cause, by its number in package cause; they add
	// up to the latency.
	CauseNS []int64
	// Full spells the request out as a report holds it, without lanes and wakes.
	Full func() report.Request
}
