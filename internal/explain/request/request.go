// Package request finds the requests in a trace: units of work that somebody
// waits for. Services need no instrumentation; where they have some (user
// tasks and regions), it is used first.
//
// The ways, in order (DESIGN section 6): marks of service/mark; user tasks; user regions outside of
// tasks; HTTP/1 connections; HTTP/2 and gRPC streams; messages of WebSockets; a
// goroutine a job; workers' loops; and any function, by the user's word. What an earlier way
// has found, a later one leaves alone.
package request

import (
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// Kind is the way in which a request was found.
type Kind uint8

// Kinds, best first.
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
	// Main is the life of the main goroutine, for programs without requests.
	Main
)

// kindTexts are the report's, in the order of those above.
var kindTexts = append(append([]report.Kind{""}, report.Kinds()...), report.KindFunc)

// kindTraits are what is asked of kinds for each request.
var kindTraits = func() (list []struct{ protocol, call bool }) {
	for _, k := range kindTexts {
		list = append(list, struct{ protocol, call bool }{k.Protocol() != "", k.IsCall()})
	}
	return list
}()

func (k Kind) String() string { return string(kindTexts[k]) }

// IsServed reports whether somebody handed in a request of this kind: the service's own marks say so, or a protocol does. The other
// kinds are the process's own work.
func (k Kind) IsServed() bool { return k < Goroutine }

// HasProtocol reports whether others ask for requests of this kind by a protocol.
func (k Kind) HasProtocol() bool { return kindTraits[k].protocol }

// IsCall reports whether a protocol asks for each request of this kind by itself: it begins and ends outside of its handler.
func (k Kind) IsCall() bool { return kindTraits[k].call }

// A Request is one request, its bounds on the trace's clock in ns.
type Request struct {
	Start, End int64
	// G is the goroutine on which the request ended: its path is walked
	// backwards from there.
	G uint64
	// WokenAt is when the message that began it was handed to its goroutine; the
	// time until that runs is part of the request. 0: no such instant.
	WokenAt int64
	// Name is a mark's, task's or region's name, or 0.
	Name tracefmt.StringID
	// EntryStack is the stack that names the group, if that is known from the way
	// the request was found: a goroutine's start function, a loop's wait.
	EntryStack tracefmt.StackID
	// RootFrame is a frame of the function that loops, or reads messages.
	RootFrame tracefmt.FrameID
	// StarterFrame is the line that started it, of a goroutine whose start function is a library's; 0: none is known.
	StarterFrame tracefmt.FrameID
	Kind         Kind
	// AnswersClient says of a loop's turn that a client's words on a connection began it, and that it wrote to one: somebody waits for it, as for requests of
	// protocols that are known.
	AnswersClient bool
	// Open says that the request was still running at the end of the trace; End is then
	// the trace's end.
	Open bool
	// CutAtStart says that it had begun before the trace; Start is then unknown.
	CutAtStart bool
	// Piece says whether this is the whole request, or a piece of a long one.
	Piece Piece
	// PieceKey is the same for all parts of one long request.
	PieceKey uint64
	// Identity is what the trace says besides about a marked request, or one
	// that a tracer wrote about; nil: nothing.
	Identity *Identity

	wholeStart int64 // the start of the whole, of which this may be a part
}

// IsServed reports whether somebody outside of the goroutine waits for the request's end.
func (r *Request) IsServed() bool { return r.Kind.IsServed() || r.AnswersClient }

// Piece says which part of a request this is.
type Piece uint8

// Parts of requests that stay open over many generations.
const (
	WholeRequest Piece = iota
	MiddlePiece        // a piece, more will come
	LastPiece          // the last piece
)
