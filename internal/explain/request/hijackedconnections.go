package request

import (
	"cmp"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// hijackedSource finds the requests on HTTP/1 connections that a handler hijacked and left to a goroutine, as a proxy does after CONNECT.
// The goroutine reads TLS, HTTP or another protocol itself:
//
//	wait for the client -> woken: start
//	... reads, works and writes ...
//	last write before the next wait for the client: end
//
// Without an answer, data is no request. The client speaks first: a goroutine that writes before it reads calls a peer. If several goroutines of
// the handler read, they copy between two connections, and their waits are for either end.
type hijackedSource struct {
	sourceStubs
	http1       *http1Source
	messages    *messageSource // has precedence
	connections map[uint64]*hijackedConn
}

// A hijackedConn is the goroutine that serves a hijacked connection. request is the open one, without bounds.
type hijackedConn struct {
	openRequest
	request       Request
	idleSince     int64  // when the wait for the client began
	lastWrite     int64  // end of the last write since start, 0 if there is none
	followedUntil int64  // spans that began before it were processed
	library       string // whose code reads from the client
}

// add emits the requests that ended in a generation.
func (hs *hijackedSource) add(c *collector, g *timeline.Gen) {
	if len(hs.http1.hijacked) > 0 {
		hs.findConnections(c, g)
	}
	for _, id := range slices.Sorted(maps.Keys(hs.connections)) {
		for _, span := range c.spans(id, g.Base, g.End+1) {
			hs.connections[id].add(c, &span)
		}
	}
	removeEnded(hs.connections, g, func(_ uint64, conn *hijackedConn, _ int64) { conn.end(c) })
}

// findConnections begins to follow the goroutines that serve the connections hijacked in a generation.
func (hs *hijackedSource) findConnections(c *collector, g *timeline.Gen) {
	children := make(map[uint64][]uint64)
	for _, gen := range c.window.Gens {
		gen.EachBirth(func(start tracefmt.StackID) bool { return c.stackInfo(start).role == roleUnclaimed },
			func(_ uint32, b timeline.Birth) { children[b.Creator] = append(children[b.Creator], b.G) })
	}
	for _, id := range hs.http1.hijacked {
		readers := slices.Clone(children[id])
		for _, child := range children[id] {
			readers = append(readers, children[child]...)
		}
		readers = slices.DeleteFunc(readers, func(id uint64) bool { return !c.readsFirst(id, g.End) })
		if len(readers) == 1 && !hs.messages.serves(readers[0]) {
			hs.connections[readers[0]] = &hijackedConn{request: Request{Kind: Loop, G: readers[0], ReadsClient: true, AnswersClient: true}}
		}
	}
}

// readsFirst reports whether a goroutine waits to read from a connection before it writes to any.
func (c *collector) readsFirst(id uint64, end int64) bool {
	spans := c.spans(id, 0, end)
	i := slices.IndexFunc(spans, func(s timeline.Span) bool { return c.isClientWait(&s) || c.stackInfo(s.Stack).isWrite })
	return i >= 0 && c.isClientWait(&spans[i])
}

// isClientWait reports whether a span is a wait to read from a connection.
func (c *collector) isClientWait(span *timeline.Span) bool {
	return span.State == timeline.Waiting && c.stackInfo(span.Stack).isRead && c.reasonOf(span.Reason) == reasonNetwork
}

// add follows the goroutine through one of its states: a wait for the client ends a request, and its end begins one. A wait in the code of
// another library is for a peer.
func (conn *hijackedConn) add(c *collector, span *timeline.Span) {
	info, isClientWait := c.stackInfo(span.Stack), c.isClientWait(span)
	isSameWait := isClientWait && span.Start == conn.idleSince
	if span.Stack == 0 || span.Origin == timeline.OriginCreated || span.Start < conn.followedUntil && !isSameWait {
		return // both generations report a span that crosses their border
	}
	conn.followedUntil = span.Start + 1
	if span.State == timeline.Syscall && info.isWrite {
		conn.lastWrite = span.End
	}
	if library := libraryOf(c.syms.String(info.innermost)); isClientWait && cmp.Or(conn.library, library) == library {
		if conn.library = library; !isSameWait {
			conn.end(c)
			conn.idleSince, conn.request.EntryStack, conn.request.RootFrame = span.Start, span.Stack, info.outerServiceFrame
		}
		if span.Woken {
			conn.openRequest, conn.request.WokenAt, conn.lastWrite = openAt(span.End), span.End, 0
		}
	}
}

// end emits the open request, if it was answered.
func (conn *hijackedConn) end(c *collector) {
	if conn.request.End = conn.lastWrite; conn.start != 0 && conn.lastWrite != 0 {
		c.emitServed(&c.emitted, &conn.openRequest, conn.request)
	}
	conn.openRequest = openRequest{}
}

func (hs *hijackedSource) serves(id uint64) bool { return hs.connections[id] != nil }

// openOn returns nil: annotations within a request are emitted when they end, and represent it.
func (hs *hijackedSource) openOn(uint64) *openRequest { return nil }

// finishTrace ends the requests that were answered.
func (hs *hijackedSource) finishTrace(c *collector, _ int64) {
	for _, conn := range hs.connections {
		if conn.lastWrite != 0 {
			conn.end(c)
		}
	}
}

// visitOpen visits the requests that are being handled.
func (hs *hijackedSource) visitOpen(visit func(*openRequest, Request)) {
	for _, conn := range hs.connections {
		if conn.start != 0 {
			visit(&conn.openRequest, conn.request)
		}
	}
}
