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

// kinds are the report's, in the order of those above.
var kinds = append(append([]report.Kind{""}, report.Kinds()...), report.KindFunc)

// kindFacts are what is asked of kinds for each request.
var kindFacts = func() (list []struct{ protocol, call bool }) {
	for _, k := range kinds {
		list = append(list, struct{ protocol, call bool }{k.Protocol() != "", k.IsCall()})
	}
	return list
}()

func (k Kind) String() string { return string(kinds[k]) }

// Served reports whether somebody handed in a request of this kind: the service's own marks say so, or a protocol does. The other
// kinds are the process's own work.
func (k Kind) Served() bool { return k < Goroutine }

// HasProtocol reports whether others ask for requests of this kind by a protocol.
func (k Kind) HasProtocol() bool { return kindFacts[k].protocol }

// IsCall reports whether a protocol asks for each request of this kind by itself: it begins and ends outside of its handler.
func (k Kind) IsCall() bool { return kindFacts[k].call }

// A Request is one request, its bounds on the trace's clock in ns.
type Request struct {
	Start, End int64
	// G is the goroutine on which the request ended: its path is walked
	// backwards from there.
	G uint64
	// Ready is when the message that began it was handed to its goroutine; the
	// time until that runs is part of the request. 0: no such instant.
	Ready int64
	// Name is a mark's, task's or region's name, or 0.
	Name tracefmt.StringID
	// Entry is the stack that names the group, if that is known from the way
	// the request was found: a goroutine's start function, a loop's wait.
	Entry tracefmt.StackID
	// Root is a frame of the function that loops, or reads messages.
	Root tracefmt.FrameID
	// By is the line that started it, of a goroutine whose start function is a library's; 0: none is known.
	By   tracefmt.FrameID
	Kind Kind
	// Asked says of a loop's turn that a client's words on a connection began it, and that it wrote to one: somebody waits for it, as for requests of
	// protocols that are known.
	Asked bool
	// Open says that the request was still running at the end of the trace; End is then
	// the trace's end.
	Open bool
	// Cut says that it had begun before the trace; Start is then unknown.
	Cut bool
	// Part says whether this is the whole request, or a piece of a long one.
	Part Part
	// Key is the same for all parts of one long request.
	Key uint64
	// Identity is what the trace says besides about a marked request, or one
	// that a tracer wrote about; nil: nothing.
	Identity *Identity

	began int64 // the start of the whole, of which this may be a part
}

// Served reports whether somebody outside of the goroutine waits for the request's end.
func (r *Request) Served() bool { return r.Kind.Served() || r.Asked }

// Part says which part of a request this is.
type Part uint8

// Parts of requests that stay open over many generations.
const (
	Whole  Part = iota
	Middle      // a piece, more will come
	Last        // the last piece
)
