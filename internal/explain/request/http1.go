package request

import (
	"cmp"
	"maps"
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

type connPhase uint8

const (
	connUnknown connPhase = iota
	connIdle
	connActive
)

func (f *Finder) followHTTP1(g *timeline.Gen) {
	for _, id := range slices.Sorted(maps.Keys(f.connections)) {
		conn := f.connections[id]
		if conn.phase == connIdle {
			if t, ok := g.NextWake(id, conn.idleSince); ok {
				conn.begin(t, true)
			}
		}
	}
	var work []markedConn
	g.EachMarked(func(id uint64, marks []timeline.Mark) {
		conn := f.connections[id]
		if conn == nil {
			if !isHTTP1Conn(marks) {
				return
			}
			conn = &http1Conn{}
			if b, ok := g.BirthOf(id); ok {
				conn.begin(b.Time, false)
				conn.awaitsFirstByte = true
			}
			f.connections[id] = conn
		}
		work = append(work, markedConn{id, conn, marks})
	})
	f.followConns(g, work)
	removeEnded(f.connections, g, func(id uint64, conn *http1Conn, t int64) {
		if conn.phase == connActive && (conn.finishStart != 0 || conn.isHandlerEntered) {
			// Without a response the connection was hijacked, or the handler panicked.
			f.endHTTP1(&f.emitted, id, conn, cmp.Or(conn.finishStart, t))
		}
	})
}

// markedConn is a connection with its marks of one generation.
type markedConn struct {
	id    uint64
	conn  *http1Conn
	marks []timeline.Mark
}

// followConns processes the marks of connections. The connections are independent, so workers process them in parallel,
// except when there are tasks, because those are shared.
func (f *Finder) followConns(g *timeline.Gen, work []markedConn) {
	workers := f.opts.Workers
	if len(f.endedTasks) > 0 {
		workers = 1
	}
	runParallel(&f.workerOutputs, workers, work, 1, func(out *[]Request, part []markedConn) {
		for i := range part {
			w := &part[i]
			wakes := g.Wakes(w.id)
			for _, m := range w.marks {
				f.addConnMark(out, g, w.id, w.conn, m, &wakes)
			}
		}
	})
	for k, out := range f.workerOutputs {
		f.emitted = append(f.emitted, out...)
		f.workerOutputs[k] = out[:0]
	}
}

func isHTTP1Conn(marks []timeline.Mark) bool {
	for _, m := range marks {
		if m.Flags&(flagPeek|flagHeader|flagBody|flagFinish) != 0 {
			return true
		}
	}
	return false
}

func (c *http1Conn) begin(t int64, ready bool) {
	*c = http1Conn{phase: connActive, openRequest: openRequest{start: t, pieceStart: t}, isWoken: ready}
}

func (f *Finder) endHTTP1(out *[]Request, id uint64, conn *http1Conn, end int64) {
	r := Request{Kind: HTTP1, End: end, G: id}
	if conn.isWoken {
		r.WokenAt = conn.start
	}
	f.emitFromProtocol(out, &conn.openRequest, r)
}

func (f *Finder) addConnMark(
	out *[]Request, g *timeline.Gen, id uint64, conn *http1Conn, mark timeline.Mark, wakes *timeline.Wakes,
) {
	kind, t := mark.Kind, mark.Time
	isBlock := kind == tracefmt.EvGoBlock
	switch {
	case mark.Flags&flagPeek != 0:
		if !isBlock {
			return // a read that had no data yet
		}
		if conn.phase == connActive && (conn.finishStart != 0 || conn.isHandlerEntered) {
			f.endHTTP1(out, id, conn, cmp.Or(conn.finishStart, t))
		}
		*conn = http1Conn{phase: connIdle, idleSince: t}
		if w, ok := wakes.Next(t); ok {
			conn.begin(w, true)
		}
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
		*conn = http1Conn{phase: connIdle, idleSince: t}
		if ok {
			conn.begin(w, true)
		}
	case mark.Flags&(flagBody|flagFinish) == flagBody:
		// While a response is finished, the server may read the rest of a body that the handler left, and the goroutine
		// may assist the garbage collector. Neither begins a new request.
		if kind != tracefmt.EvGoCreate {
			return
		}
		switch {
		case conn.phase != connActive:
			if w, ok := f.firstRequestWake(g, id, t); ok && conn.phase == connUnknown {
				conn.begin(w, true)
				break
			}
			conn.begin(t, false)
			conn.cutAtStart = true
		case conn.finishStart != 0 || conn.isHandlerEntered:
			f.beginNext(out, id, conn, t)
		}
		conn.isHandlerEntered, conn.awaitsFirstByte = true, false
	case mark.Flags&flagFinish != 0:
		if conn.phase != connActive {
			conn.begin(t, false)
			conn.cutAtStart = true
		}
		isWrite := mark.Flags&flagFlush != 0 && kind == tracefmt.EvGoSyscallBegin
		if isWrite && conn.flushCount > 0 && !conn.isLastWait && !f.continuesWrite(id, conn.lastFlush, t) {
			// A response is flushed to its end once, so this flush belongs to another response: that of a pipelined
			// request whose handler has no event.
			f.beginNext(out, id, conn, t)
		}
		if isWrite {
			conn.flushCount++
			conn.lastFlush = t
		}
		if conn.finishStart == 0 {
			conn.finishStart = t
		}
		conn.finishLast, conn.isLastWait, conn.awaitsFirstByte = t, isBlock, false
	}
}

// beginNext ends the open request and begins the next one, whose data was available so that there was no idle wait.
func (f *Finder) beginNext(out *[]Request, id uint64, conn *http1Conn, t int64) {
	end, start := conn.finishStart, conn.finishLast
	if end == 0 {
		end, start = t, t
	}
	f.endHTTP1(out, id, conn, end)
	conn.begin(start, false)
}

// firstRequestWake returns when a connection that was idle at the start of the trace got its first request. Its first
// event is the background read, which precedes the handler, and before it the network woke it from one wait.
func (f *Finder) firstRequestWake(g *timeline.Gen, id uint64, before int64) (int64, bool) {
	if !g.First {
		return 0, false
	}
	spans := f.window.Spans(id, g.Base, before, nil)
	if len(spans) == 0 || spans[0].Start != timeline.BeforeTrace || spans[0].State != timeline.Waiting ||
		!spans[0].Woken || spans[0].Waker != 0 {
		return 0, false
	}
	for i := 1; i < len(spans); i++ {
		if spans[i].State == timeline.Waiting {
			return 0, false
		}
	}
	return spans[0].End, true
}

// continuesWrite reports whether a flush's system call at time t continues the one that began at last. net/http retries
// at once if the socket took only a part of the bytes. Between two responses a request has to be read.
func (f *Finder) continuesWrite(id uint64, last, t int64) bool {
	const atOnce = 1000 // ns; the loop around write(2) takes a few hundred
	for _, s := range f.window.Spans(id, last, t, nil) {
		if s.State == timeline.Syscall && s.Start == last {
			return t-s.End <= atOnce
		}
	}
	return false
}
