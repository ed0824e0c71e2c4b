// Package request finds the requests in a trace. A request is a unit of work for which a client or another part of the
// program waits. The input is the window of timelines (package timeline), one generation after the other. The output is
// a list of Requests: bounds, goroutine, kind and the frames that name the group.
//
// A service needs no instrumentation. Each way to find requests is a source, in a file that can be read alone: source.go
// says how to add one. Earlier sources have precedence:
//
//   - servicemarks.go: marks of service/mark; usertasks.go: user tasks; userregions.go: user regions outside of tasks
//   - http1connections.go: the goroutines of net/http.(*conn).serve
//   - http2streams.go, grpcworkers.go: HTTP/2 and gRPC, one goroutine a stream or workers; longstreams.go: messages of long streams
//   - websocket.go: messages of WebSockets; hijackedconnections.go: requests on other hijacked connections
//   - batchrun.go: the run of a batch program, whose jobs and iterations nothing waits for
//   - jobs.go, stdlibcarriers.go: goroutines whose whole life is one unit of work
//   - loops.go: from one idle wait (idlewait.go) of a worker to the next, divided by workunits.go; benchmarkloops.go: benchmarks
//   - openrequests.go: requests that last as long as the trace
//   - startsuggestions.go: start functions to choose from, if nothing is found
//
// The sources share a collector (requestcollector.go); finder.go runs them in stages. If the user names functions
// (Options.MatchFunc), their calls (usercalls.go) are the only requests.
//
// Frames and function names decide most questions: package knowledge has the roles of functions, namer.go finds the
// handler that names a request.
package request

import (
	"cmp"
	"math"

	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// Kind is the source that found a request.
type Kind uint8

// Kinds, most reliable first.
const (
	Mark Kind = iota + 1
	Task
	Region
	HTTP1
	HTTP2
	GRPC
	WebSocket
	Goroutine
	Loop
	Func
	// Run is the run of a whole program.
	Run
)

// kindTexts are the report's kinds, indexed by Kind.
var kindTexts = append([]report.Kind{""}, report.Kinds()...)

// kindTraits caches what report.Kind says about each Kind, because it is needed for every request.
var kindTraits = func() (list []struct{ protocol, call bool }) {
	for _, k := range kindTexts {
		list = append(list, struct{ protocol, call bool }{k.Protocol() != "", k.IsCall()})
	}
	return list
}()

// String returns the report's name of the kind.
func (k Kind) String() string { return string(kindTexts[k]) }

// IsServed reports whether requests of this kind come from a client: service marks or a protocol prove it. Other kinds
// are work that the process began.
func (k Kind) IsServed() bool { return k < Goroutine }

// HasProtocol reports whether clients send requests of this kind by a protocol.
func (k Kind) HasProtocol() bool { return kindTraits[k].protocol }

// IsCall reports whether the protocol delimits each request of this kind, so that the request begins before its handler
// and ends after it.
func (k Kind) IsCall() bool { return kindTraits[k].call }

// A Request is one request. Times are on the trace's clock, in ns.
type Request struct {
	Start, End int64
	// G is the goroutine on which the request ended. The critical path is walked backwards from there.
	G uint64
	// WokenAt is when the goroutine was woken for the request, 0 if it was not. The time from the wake until the
	// goroutine runs is part of the request.
	WokenAt int64
	// ArrivedAt is when the first byte of the request reached the process's socket, if the kernel's events show it, else 0.
	// Then Start is that time, or the end of what the goroutine did before.
	ArrivedAt int64
	// Name is the name of a mark, task or region, or 0.
	Name tracefmt.StringID
	// EntryStack is the stack that names the group, if the source knows one: that of a goroutine's start function, or
	// of a loop's wait.
	EntryStack tracefmt.StackID
	// RootFrame is a frame of the function that loops or reads messages.
	RootFrame tracefmt.FrameID
	// StarterFrame is the service line that started the goroutine, if the goroutine's start function belongs to a
	// library. 0 means unknown.
	StarterFrame tracefmt.FrameID
	Kind         Kind
	// ReadsClient says of an iteration that data from a client's connection began it, AnswersClient that it wrote to a
	// connection as well. A client waits for the end of such an iteration as for a request of a known protocol.
	ReadsClient, AnswersClient bool
	// Open says that the request was running at the end of the trace. End is the end of the trace then.
	Open bool
	// CutAtStart says that the request began before the trace. Start is unknown then.
	CutAtStart bool
	// Piece says whether this is a whole request or one piece of a long one.
	Piece Piece
	// PieceKey is equal for all pieces of one long request.
	PieceKey uint64
	// Identity holds the ids and the outcome that a mark or a tracer wrote, nil if none did.
	Identity *Identity

	wholeStart int64 // start of the whole request, of which this may be a piece
}

// IsServed reports whether a client waits for the end of the request.
func (r *Request) IsServed() bool { return r.Kind.IsServed() || r.AnswersClient }

// Compare orders requests by end, then by start, goroutine, kind and name.
func Compare(a, b Request) int {
	return cmp.Or(cmp.Compare(a.End, b.End), cmp.Compare(a.Start, b.Start), cmp.Compare(a.G, b.G),
		cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}

// Piece says which piece of a request a Request holds.
type Piece uint8

// A request that stays open over many generations is emitted in pieces.
const (
	WholeRequest Piece = iota
	MiddlePiece        // more pieces follow
	LastPiece
)

// A Batch describes the requests of a generation: how many there are, and of the whole ones that have ended the first and the last
// end. Without any, FirstEnd is the largest int64 and LastEnd 0.
type Batch struct {
	Count             int
	FirstEnd, LastEnd int64
}

// NewBatch describes requests and the units of series.
func NewBatch(reqs []Request, series []*Series) Batch {
	b := Batch{len(reqs), math.MaxInt64, 0}
	for i := range reqs {
		if r := &reqs[i]; r.Piece == WholeRequest && !r.Open {
			b.FirstEnd, b.LastEnd = min(b.FirstEnd, r.End), max(b.LastEnd, r.End)
		}
	}
	for _, s := range series {
		for _, units := range s.Chunks {
			b.Count += len(units)
			for i := range units {
				b.FirstEnd, b.LastEnd = min(b.FirstEnd, units[i].End), max(b.LastEnd, units[i].End)
			}
		}
	}
	return b
}

// Slice returns a time interval, from and to included, in which about limit of the requests end, counted from the first to end.
// isWhole reports whether it includes all of them. If since is positive, the interval begins at since or before.
func (b *Batch) Slice(limit int, since int64) (from, to int64, isWhole bool) {
	from, to = b.FirstEnd, b.LastEnd
	if since > 0 {
		from = min(from, since)
	}
	if isWhole = b.Count <= limit; !isWhole {
		to = from + int64(float64(to-from)*float64(limit)/float64(b.Count))
	}
	return from, to, isWhole
}
