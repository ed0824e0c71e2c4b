package request

import (
	"slices"

	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// hangingSource finds the requests that began before the trace and did not end in it: requests that hang, and hijacked
// connections. Only the stacks of their goroutines show them.
type hangingSource struct {
	sourceStubs
	connections *http1Source      // a request may follow another one on its connection
	longStreams *longStreamSource // a goroutine that reads messages has no other request
	messages    *messageSource
}

// finishTrace emits an open request for each goroutine whose last stack is in a handler, if no other source has a request on it.
// The request began before the trace or, on a connection with earlier requests, after the last of them.
func (hs *hangingSource) finishTrace(c *collector, end int64) {
	if len(c.window.Gens) == 0 {
		return
	}
	g := c.window.Gens[len(c.window.Gens)-1]
	g.EachStart(func(id uint64, start tracefmt.StackID, _ int) {
		if start != 0 {
			return // it began in the generation: the stack belongs to the creator until the goroutine runs
		}
		_, dead := g.Death(id)
		_, hasBirth := g.BirthOf(id)
		if dead || hasBirth || c.openAtEnd[id] || hs.messages.serves(id) || hs.longStreams.serves(id) {
			return
		}
		spans := c.spans(id, end-1, end)
		if len(spans) == 0 {
			return
		}
		stack := spans[len(spans)-1].Stack
		kind := c.kindOfHandler(stack)
		if kind == 0 || c.stackInfo(stack).isMessageWait {
			return // a connection that waits for its first message
		}
		r := Request{Kind: kind, Start: c.traceStart, End: end, G: id, Open: true, CutAtStart: true}
		if conn := hs.connections.connections[id]; conn != nil {
			// Earlier requests of the connection are in the trace. This one followed the last of them without an idle
			// wait and has no event yet.
			r.Start, r.CutAtStart = max(conn.start, conn.idleSince, conn.finishStart, conn.finishLast), false
		}
		c.emitted = append(c.emitted, r)
	})
}

// kindOfHandler returns the kind of request in whose handler a stack is; 0 if the stack is in no handler, such as that of an idle
// connection.
func (sr *stackReader) kindOfHandler(id tracefmt.StackID) Kind {
	frames := sr.syms.Stack(id)
	if len(frames) == 0 {
		return 0
	}
	outer := sr.namer.frameFunction(frames[len(frames)-1])
	isRoot := func(fr tracefmt.FrameID) bool { return sr.namer.frameFunction(fr).Has(knowledge.HandlerRoot) }
	if (outer.Has(knowledge.HTTP1Connection) || outer.Has(knowledge.GRPCWorker)) && !slices.ContainsFunc(frames, isRoot) {
		return 0
	}
	return outer.servedKind()
}
