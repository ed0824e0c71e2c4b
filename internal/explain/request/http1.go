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
//	startBackgroundRead: the handler is next (not for every request: a body
//	   that is not read to its end, or a pipelined byte, prevents it)
//	... handler ...
//	finishRequest: the response goes out: end
//
// A busy connection need not go idle between two requests, so the markers in
// between are what keeps two requests from melting into one.
type http1Conn struct {
	openRequest
	phase            connPhase
	idleSince        int64 // when the wait for a request began
	isWoken          bool  // start is a wake
	awaitsFirstByte  bool  // no byte of the first request has come yet
	isHandlerEntered bool
	finishStart      int64 // first sign of finishRequest
	finishLast       int64 // last sign of it
	flushCount       int
	lastFlush        int64 // when the last flush's system call began
	isLastWait       bool  // the last sign was a wait
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
			f.endHTTP1(&f.emitted, id, conn, cmp.Or(conn.finishStart, t)) // with no response it was hijacked, or the handler panicked
		}
	})
}

// markedConn is a connection and what was seen of it in one generation.
type markedConn struct {
	id    uint64
	conn  *http1Conn
	marks []timeline.Mark
}

// followConns goes through the marks of connections. They do not know of each
// other, so several are followed at once; not if there are tasks, which belong
// to all of them.
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

func (f *Finder) addConnMark(out *[]Request, g *timeline.Gen, id uint64, conn *http1Conn, mark timeline.Mark, wakes *timeline.Wakes) {
	kind, t := mark.Kind, mark.Time
	isBlock := kind == tracefmt.EvGoBlock
	switch {
	case mark.Flags&flagPeek != 0:
		if !isBlock {
			return // a read that found nothing yet
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
		// The wait for a connection's first request. If it is no longer than what was before it, the client opened the connection
		// for this request, and waited for the TLS handshake, too.
		w, ok := wakes.Next(t)
		if ok && conn.phase == connActive && w-t <= t-conn.start {
			return
		}
		*conn = http1Conn{phase: connIdle, idleSince: t}
		if ok {
			conn.begin(w, true)
		}
	case mark.Flags&(flagBody|flagFinish) == flagBody:
		// While a response is finished, the rest of a body that the handler
		// left unread may come to its end: that is no new request. Nor is what
		// else happens there, such as helping the garbage collector.
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
			// Each response's last bytes go out once: this is another one, of a
			// pipelined request whose handler left no trace of its own.
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

// beginNext ends the open request and begins the one that followed it without
// an idle wait: its bytes were there when the former was done.
func (f *Finder) beginNext(out *[]Request, id uint64, conn *http1Conn, t int64) {
	end, start := conn.finishStart, conn.finishLast
	if end == 0 {
		end, start = t, t
	}
	f.endHTTP1(out, id, conn, end)
	conn.begin(start, false)
}

// firstRequestWake returns when a connection that was idle since before the trace
// got its first request: the background read that precedes the handler is the
// first that is seen of it, and before that it was woken from one wait, by
// nobody of this process.
func (f *Finder) firstRequestWake(g *timeline.Gen, id uint64, before int64) (int64, bool) {
	if !g.First {
		return 0, false
	}
	spans := f.window.Spans(id, g.Base, before, nil)
	if len(spans) == 0 || spans[0].Start != timeline.BeforeTrace || spans[0].State != timeline.Waiting || !spans[0].Woken || spans[0].Waker != 0 {
		return 0, false
	}
	for i := 1; i < len(spans); i++ {
		if spans[i].State == timeline.Waiting {
			return 0, false
		}
	}
	return spans[0].End, true
}

// continuesWrite reports whether a flush's system call at time t goes on with the
// one that began at last: a socket that took a part of the bytes is asked again
// at once. Between two responses lies at least the reading of a request.
func (f *Finder) continuesWrite(id uint64, last, t int64) bool {
	const atOnce = 1000 // ns: the loop around write(2) takes a few hundred
	for _, s := range f.window.Spans(id, last, t, nil) {
		if s.State == timeline.Syscall && s.Start == last {
			return t-s.End <= atOnce
		}
	}
	return false
}
