package request

import (
	"cmp"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// conn follows the goroutine of one HTTP/1 connection (net/http.(*conn).serve):
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
type conn struct {
	open
	phase   connPhase
	idle    int64 // when the wait for a request began
	ready   bool  // start is a wake
	fresh   bool  // no byte of the first request has come yet
	entered bool
	finish  int64 // first sign of finishRequest
	last    int64 // last sign of it
	flushes int
	flushed int64 // when the last flush's system call began
	blocked bool  // the last sign was a wait
}

type connPhase uint8

const (
	connUnknown connPhase = iota
	connIdle
	connActive
)

func (f *Finder) http1(g *timeline.Gen) {
	for _, id := range slices.Sorted(maps.Keys(f.conns)) {
		c := f.conns[id]
		if c.phase == connIdle {
			if t, ok := g.NextWake(id, c.idle); ok {
				c.begin(t, true)
			}
		}
	}
	var work []connWork
	g.EachMarked(func(id uint64, marks []timeline.Mark) {
		c := f.conns[id]
		if c == nil {
			if !isConn(marks) {
				return
			}
			c = &conn{}
			if b, ok := g.BirthOf(id); ok {
				c.begin(b.Time, false)
				c.fresh = true
			}
			f.conns[id] = c
		}
		work = append(work, connWork{id, c, marks})
	})
	f.connMarks(g, work)
	gone(f.conns, g, func(id uint64, c *conn, t int64) {
		if c.phase == connActive && (c.finish != 0 || c.entered) {
			f.connEnd(&f.out, id, c, cmp.Or(c.finish, t)) // with no response it was hijacked, or the handler panicked
		}
	})
}

// connWork is a connection and what was seen of it in one generation.
type connWork struct {
	id    uint64
	conn  *conn
	marks []timeline.Mark
}

// connMarks goes through the marks of connections. They do not know of each
// other, so several are followed at once; not if there are tasks, which belong
// to all of them.
func (f *Finder) connMarks(g *timeline.Gen, work []connWork) {
	workers := f.opts.Workers
	if len(f.done) > 0 {
		workers = 1
	}
	share(&f.outs, workers, work, 1, func(out *[]Request, part []connWork) {
		for i := range part {
			w := &part[i]
			wakes := g.Wakes(w.id)
			for _, m := range w.marks {
				f.connMark(out, g, w.id, w.conn, m, &wakes)
			}
		}
	})
	for k, out := range f.outs {
		f.out = append(f.out, out...)
		f.outs[k] = out[:0]
	}
}

func isConn(marks []timeline.Mark) bool {
	for _, m := range marks {
		if m.Flags&(flagPeek|flagHeader|flagBody|flagFinish) != 0 {
			return true
		}
	}
	return false
}

func (c *conn) begin(t int64, ready bool) {
	*c = conn{phase: connActive, open: open{start: t, from: t}, ready: ready}
}

func (f *Finder) connEnd(out *[]Request, id uint64, c *conn, end int64) {
	r := Request{Kind: HTTP1, End: end, G: id}
	if c.ready {
		r.Ready = c.start
	}
	f.ended(out, &c.open, r)
}

func (f *Finder) connMark(out *[]Request, g *timeline.Gen, id uint64, c *conn, m timeline.Mark, wakes *timeline.Wakes) {
	kind, t := m.Kind, m.Time
	block := kind == tracefmt.EvGoBlock
	switch {
	case m.Flags&flagPeek != 0:
		if !block {
			return // a read that found nothing yet
		}
		if c.phase == connActive && (c.finish != 0 || c.entered) {
			f.connEnd(out, id, c, cmp.Or(c.finish, t))
		}
		*c = conn{phase: connIdle, idle: t}
		if w, ok := wakes.Next(t); ok {
			c.begin(w, true)
		}
	case m.Flags&flagHeader != 0 && m.Flags&flagBody == 0:
		if !block || c.phase == connActive && !c.fresh {
			return
		}
		// The wait for a connection's first request. If it is no longer than what was before it, the client opened the connection
		// for this request, and waited for the TLS handshake, too.
		w, ok := wakes.Next(t)
		if ok && c.phase == connActive && w-t <= t-c.start {
			return
		}
		*c = conn{phase: connIdle, idle: t}
		if ok {
			c.begin(w, true)
		}
	case m.Flags&(flagBody|flagFinish) == flagBody:
		// While a response is finished, the rest of a body that the handler
		// left unread may come to its end: that is no new request. Nor is what
		// else happens there, such as helping the garbage collector.
		if kind != tracefmt.EvGoCreate {
			return
		}
		switch {
		case c.phase != connActive:
			if w, ok := f.firstWake(g, id, t); ok && c.phase == connUnknown {
				c.begin(w, true)
				break
			}
			c.begin(t, false)
			c.cut = true
		case c.finish != 0 || c.entered:
			f.next(out, id, c, t)
		}
		c.entered, c.fresh = true, false
	case m.Flags&flagFinish != 0:
		if c.phase != connActive {
			c.begin(t, false)
			c.cut = true
		}
		write := m.Flags&flagFlush != 0 && kind == tracefmt.EvGoSyscallBegin
		if write && c.flushes > 0 && !c.blocked && !f.sameWrite(id, c.flushed, t) {
			// Each response's last bytes go out once: this is another one, of a
			// pipelined request whose handler left no trace of its own.
			f.next(out, id, c, t)
		}
		if write {
			c.flushes++
			c.flushed = t
		}
		if c.finish == 0 {
			c.finish = t
		}
		c.last, c.blocked, c.fresh = t, block, false
	}
}

// next ends the open request and begins the one that followed it without
// an idle wait: its bytes were there when the former was done.
func (f *Finder) next(out *[]Request, id uint64, c *conn, t int64) {
	end, start := c.finish, c.last
	if end == 0 {
		end, start = t, t
	}
	f.connEnd(out, id, c, end)
	c.begin(start, false)
}

// firstWake returns when a connection that was idle since before the trace
// got its first request: the background read that precedes the handler is the
// first that is seen of it, and before that it was woken from one wait, by
// nobody of this process.
func (f *Finder) firstWake(g *timeline.Gen, id uint64, before int64) (int64, bool) {
	if !g.First {
		return 0, false
	}
	spans := f.win.Spans(id, g.Base, before, nil)
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

// sameWrite reports whether a flush's system call at time t goes on with the
// one that began at last: a socket that took a part of the bytes is asked again
// at once. Between two responses lies at least the reading of a request.
func (f *Finder) sameWrite(id uint64, last, t int64) bool {
	const atOnce = 1000 // ns: the loop around write(2) takes a few hundred
	for _, s := range f.win.Spans(id, last, t, nil) {
		if s.State == timeline.Syscall && s.Start == last {
			return t-s.End <= atOnce
		}
	}
	return false
}
