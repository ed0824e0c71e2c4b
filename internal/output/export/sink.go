package export

import (
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A Sink is given a trace for the second time, generation by generation, when
// its report is known. Its methods are called one after the other. An error
// ends the reading.
type Sink interface {
	// Generation is given every generation before the requests that ended in
	// it. The generation stays valid until keepGenerations more have come;
	// joined says that the one before it is the one given before.
	Generation(g *timeline.Gen, syms *tracefmt.Symbols, joined bool) error
	// Request is given every request of the report's groups that is over, in
	// order of its generation.
	Request(q *Request) error
	// Close is called when all is given. end is the last instant of the trace.
	Close(end int64) error
}

// noGenerations is a part of a Sink that has no use for generations.
type noGenerations struct{}

func (noGenerations) Generation(*timeline.Gen, *tracefmt.Symbols, bool) error { return nil }

// KeepGenerations is how many generations a Sink may hold on to, the one just
// given among them.
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
