package request

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// http1Conn follows the goroutine of one HTTP/1 connection (net/http.(*conn).serve):
//
//	wait for the next request (Peek) -> woken: start
//	... reads the header ...
//	startBackgroundRead: the handler follows (not for every request: a body
//	   that is not read to its end, or a pipelined byte, prevents it)
//	... handler ...
//	finishRequest: the response is sent: end
//
// A busy connection may not wait between two requests. Then only the events in between separate the requests.
type http1Conn struct {
	openRequest
	id               uint64
	marks            []timeline.Mark // of the current generation
	phase            connPhase
	idleSince        int64 // when the wait for a request began
	isWoken          bool  // a wake began the request
	awaitsFirstByte  bool  // of the connection's first request
	isHandlerEntered bool
	finishStart      int64 // first event of finishRequest
	finishLast       int64 // last event of finishRequest
	flushCount       int
	lastFlush        int64 // when the system call of the last flush began
	isLastWait       bool  // the last event was a wait
}

// http1Source finds the requests of HTTP/1 connections.
type http1Source struct {
	sourceStubs
	connections   map[uint64]*http1Conn
	hijacked      []uint64 // goroutines of the current generation that ended without a response
	workerOutputs [][]Request
}

// A connPhase is what a connection's goroutine does: waiting for a request, or serving one.
type connPhase uint8

const (
	connUnknown connPhase = iota
	connIdle
	connActive
)

// add emits the HTTP/1 requests that ended in a generation. It follows each connection through the events that Classifier flagged
// on its goroutine; connections are processed in parallel.
func (hs *http1Source) add(c *collector, g *timeline.Gen) {
	for id, conn := range hs.connections {
		if conn.phase == connIdle {
			wake, ok := g.NextWake(id, conn.idleSince)
			conn.beginIdleWait(conn.idleSince, wake, ok)
		}
	}
	var marked []*http1Conn
	g.EachMarked(func(id uint64, marks []timeline.Mark) {
		conn := hs.connections[id]
		if conn == nil {
			if !slices.ContainsFunc(marks, func(m timeline.Mark) bool { return m.Flags&(flagPeek|flagHeader|flagBody|flagFinish) != 0 }) {
				return
			}
			conn = &http1Conn{id: id}
			if b, ok := g.BirthOf(id); ok {
				conn.beginRequest(b.Time, false)
				conn.awaitsFirstByte = true
			}
			hs.connections[id] = conn
		}
		conn.marks = marks
		marked = append(marked, conn)
	})
	// The connections are independent, so workers process them in parallel.
	runParallel(&hs.workerOutputs, c.workers, marked, 1, func(out *[]Request, conns []*http1Conn) {
		for _, conn := range conns {
			wakes := g.Wakes(conn.id)
			for _, m := range conn.marks {
				conn.addMark(c, out, g, m, &wakes)
			}
			conn.marks = nil
		}
	})
	for k, out := range hs.workerOutputs {
		c.emitted = append(c.emitted, out...)
		hs.workerOutputs[k] = out[:0]
	}
	hs.hijacked = hs.hijacked[:0]
	removeEnded(hs.connections, g, func(id uint64, conn *http1Conn, t int64) {
		if conn.phase == connActive && (conn.finishStart != 0 || conn.isHandlerEntered) {
			if conn.finishStart == 0 { // the handler has hijacked the connection, or panicked
				hs.hijacked = append(hs.hijacked, id)
			}
			conn.end(c, &c.emitted, cmp.Or(conn.finishStart, t))
		}
	})
}

// beginRequest begins a request at t. ready says that a wake began it.
func (conn *http1Conn) beginRequest(t int64, ready bool) {
	*conn = http1Conn{id: conn.id, marks: conn.marks, phase: connActive, openRequest: openAt(t), isWoken: ready}
}

// beginIdleWait begins a wait for a request at t. If isWoken, the wait ended at wake and the next request began.
func (conn *http1Conn) beginIdleWait(t, wake int64, isWoken bool) {
	*conn = http1Conn{id: conn.id, marks: conn.marks, phase: connIdle, idleSince: t}
	if isWoken {
		conn.beginRequest(wake, true)
	}
}

// end emits the open request, which ends at end, to out.
func (conn *http1Conn) end(c *collector, out *[]Request, end int64) {
	r := Request{Kind: HTTP1, End: end, G: conn.id}
	if conn.isWoken {
		r.WokenAt = conn.start
	}
	c.emitServed(out, &conn.openRequest, r)
}

// addMark advances the state of the connection by one flagged event: a wait for a request, a read of the header, the start of the
// background read, or an event while the response is finished. It emits to out the request that the event ends. wakes yields when
// the goroutine was woken.
func (conn *http1Conn) addMark(c *collector, out *[]Request, g *timeline.Gen, mark timeline.Mark, wakes *timeline.Wakes) {
	kind, t := mark.Kind, mark.Time
	isBlock := kind == tracefmt.EvGoBlock
	switch {
	case mark.Flags&flagPeek != 0:
		if !isBlock {
			return // a read that had no data yet
		}
		if conn.phase == connActive && (conn.finishStart != 0 || conn.isHandlerEntered) {
			conn.end(c, out, cmp.Or(conn.finishStart, t))
		}
		wake, ok := wakes.Next(t)
		conn.beginIdleWait(t, wake, ok)
	case mark.Flags&flagHeader != 0 && mark.Flags&flagBody == 0:
		if !isBlock || conn.phase == connActive && !conn.awaitsFirstByte {
			return
		}
		// This is the wait for a connection's first request. If it is no longer than the time before it, the client
		// opened the connection for this request, so the TLS handshake is part of the client's wait.
		w, ok := wakes.Next(t)
		if ok && conn.phase == connActive && w-t <= t-conn.start {
			return
		}
		conn.beginIdleWait(t, w, ok)
	case mark.Flags&(flagBody|flagFinish) == flagBody:
		// While a response is finished, the server may read the rest of a body that the handler left, and the goroutine
		// may assist the garbage collector. Neither begins a new request.
		if kind != tracefmt.EvGoCreate {
			return
		}
		switch {
		case conn.phase != connActive:
			if w, ok := conn.firstRequestWake(c, g, t); ok && conn.phase == connUnknown {
				conn.beginRequest(w, true)
				break
			}
			conn.beginRequest(t, false)
			conn.cutAtStart = true
		case conn.finishStart != 0 || conn.isHandlerEntered:
			conn.beginNext(c, out, t)
		}
		conn.isHandlerEntered, conn.awaitsFirstByte = true, false
	case mark.Flags&flagFinish != 0:
		if conn.phase != connActive {
			conn.beginRequest(t, false)
			conn.cutAtStart = true
		}
		isWrite := mark.Flags&flagFlush != 0 && kind == tracefmt.EvGoSyscallBegin
		if isWrite && conn.flushCount > 0 && !conn.isLastWait && !conn.continuesWrite(c, t) {
			// A response is flushed to its end once, so this flush belongs to another response: that of a pipelined
			// request whose handler has no event.
			conn.beginNext(c, out, t)
		}
		if isWrite {
			conn.flushCount++
			conn.lastFlush = t
		}
		conn.finishStart = cmp.Or(conn.finishStart, t)
		conn.finishLast, conn.isLastWait, conn.awaitsFirstByte = t, isBlock, false
	}
}

// beginNext ends the open request and begins the next one. The next request's data was available, so that no idle wait separates
// the two: it begins at the last event of the response, or at t if there is none.
func (conn *http1Conn) beginNext(c *collector, out *[]Request, t int64) {
	end, start := conn.finishStart, conn.finishLast
	if end == 0 {
		end, start = t, t
	}
	conn.end(c, out, end)
	conn.beginRequest(start, false)
}

// firstRequestWake returns when a connection that was idle at the start of the trace got its first request: at the end of its
// only wait before the background read, which precedes the handler. It returns false if the network did not end that wait or
// another wait followed.
func (conn *http1Conn) firstRequestWake(c *collector, g *timeline.Gen, before int64) (wakeTime int64, ok bool) {
	if !g.First {
		return 0, false
	}
	spans := c.window.Spans(conn.id, g.Base, before, nil)
	if len(spans) == 0 || spans[0].Start != timeline.BeforeTrace || spans[0].State != timeline.Waiting ||
		!spans[0].Woken || spans[0].Waker != 0 {
		return 0, false
	}
	isWaiting := func(s timeline.Span) bool { return s.State == timeline.Waiting }
	return spans[0].End, !slices.ContainsFunc(spans[1:], isWaiting)
}

// continuesWrite reports whether the system call of a flush at time t writes the rest of the last flush. If the socket took only
// some of the bytes, net/http calls write again at once; between two responses it has to read a request.
func (conn *http1Conn) continuesWrite(c *collector, t int64) bool {
	const atOnce = 1000 // ns; the loop around write(2) takes a few hundred
	for _, s := range c.window.Spans(conn.id, conn.lastFlush, t, nil) {
		if s.State == timeline.Syscall && s.Start == conn.lastFlush {
			return t-s.End <= atOnce
		}
	}
	return false
}

// finishTrace ends the requests whose response was sent. They are over even if the goroutine did not get to its next wait.
func (hs *http1Source) finishTrace(c *collector, _ int64) {
	for _, conn := range hs.connections {
		if conn.phase == connActive && conn.finishStart != 0 {
			conn.end(c, &c.emitted, conn.finishStart)
		}
	}
}

func (hs *http1Source) serves(id uint64) bool { return hs.connections[id] != nil }

// openOn returns the request that the goroutine of a connection is serving, nil if there is none.
func (hs *http1Source) openOn(id uint64) *openRequest {
	if conn := hs.connections[id]; conn != nil && conn.phase == connActive {
		return &conn.openRequest
	}
	return nil
}

// visitOpen visits the requests that connections are serving, except those that began before the trace, whose answer is being
// finished, or whose first byte may not have arrived.
func (hs *http1Source) visitOpen(visit func(*openRequest, Request)) {
	for id, conn := range hs.connections {
		if conn.phase == connActive && !conn.cutAtStart && conn.finishStart == 0 && (conn.isHandlerEntered || !conn.awaitsFirstByte) {
			visit(&conn.openRequest, Request{Kind: HTTP1, G: id})
		}
	}
}

// removeHijacked removes a connection that continues with another protocol. The request that opened it ends.
func (hs *http1Source) removeHijacked(c *collector, id uint64, t int64) {
	if conn := hs.connections[id]; conn != nil && conn.phase == connActive && !conn.cutAtStart {
		conn.end(c, &c.emitted, t)
	}
	delete(hs.connections, id)
}
