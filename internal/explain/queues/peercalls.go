package queues

import (
	"cmp"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// Asks says how often requests of a group ask a peer from one and the same line, one answer after the other: a loop asks with one
// stack each time, two calls of a function have two.
type Asks struct {
	Site *report.Site // where the answer is waited for
	Via  *report.Site // where the request waits for who waits for the answer; nil if it does so itself
	// Of each request the stack counts that asks most often: Calls are those of all Requests, NS the time of their answers, and
	// LongestNS, for the longest one of each request, the same.
	Requests, Calls, NS, LongestNS int64
	// Legs counts the goroutines that requests started for this, all at once, where the last one that was done let the request go on. LastNS is for how
	// long that one lived, BesideNS that of the others, on average of each request.
	Legs, LastNS, BesideNS int64
	// Unanswered counts the waits after which nothing was read: a deadline ended them, or somebody closed the connection. UnansweredNS is their time.
	Unanswered, UnansweredNS int64
	// WaitedNS is the time of all answers there, with whatever stack, and OpeningNS the part of it in which a connection was opened, by Opening requests.
	// OpenedIn is the standard library's function in which that took longest, "" if none shows.
	WaitedNS, OpeningNS, Opening int64
	OpenedIn                     string
}

// askKey is a place at which requests of a group wait for answers.
type askKey struct {
	group path.GroupID
	site  tracefmt.FrameID
	via   tracefmt.FrameID
}

// An askSum adds up what is asked at one place. Times are in ns.
type askSum struct {
	requests, calls, ns, longest int64
	unanswered, unansweredNS     int64 // those after which nothing was read
	waited                       int64
	legs                         legs
	opened                       openings
}

// legs are the goroutines that a request started for what it asks.
type legs struct{ n, last, beside int64 }

// openings are the openings of connections among what requests wait for.
type openings struct {
	ns, requests int64
	longest      int64
	in           tracefmt.StringID // of the longest one
}

// add adds so many of another one.
func (s *askSum) add(o *askSum, times int64) {
	s.requests += o.requests * times
	s.calls += o.calls * times
	s.ns += o.ns * times
	s.longest += o.longest * times
	s.unanswered += o.unanswered * times
	s.unansweredNS += o.unansweredNS * times
	s.waited += o.waited * times
	s.legs.n += o.legs.n * times
	s.legs.last += o.legs.last * times
	s.legs.beside += o.legs.beside * times
	s.opened.add(&o.opened, times)
}

func (o *openings) add(more *openings, times int64) {
	o.ns, o.requests = o.ns+more.ns*times, o.requests+more.requests*times
	if more.longest > o.longest || more.longest == o.longest && more.in < o.in {
		o.longest, o.in = more.longest, more.in
	}
}

// calls are what a request asks with one stack on one goroutine.
type calls struct {
	site, via tracefmt.FrameID
	stack     tracefmt.StackID
	g         uint64
	wait      int32 // the last one of the request's for it, -1: its own goroutine waits for the network
	last      int64 // ns of the last
	askSum
}

// addAsks takes note of how often the request waited for answers. It asks again where something was written on the same goroutine
// since the last answer, or, where others write and read for it, where it waits again.
func (p *part) addAsks(w *path.Walked, waits []critpath.FollowedWait) {
	p.calls, p.wrote = p.calls[:0], p.wrote[:0]
	for i := range w.Steps {
		st := &w.Steps[i]
		switch {
		case st.Kind == critpath.Syscall && st.FollowedWait < 0:
			if p.writes(st.Stack) && !slices.Contains(p.wrote, st.G) {
				p.wrote = append(p.wrote, st.G)
			}
		case st.Kind == critpath.Network && !st.Inbound:
			c := calls{site: p.stage.Sites.Of(st.Stack), stack: st.Stack, g: st.G, wait: -1}
			if st.FollowedWait >= 0 {
				for c.wait = st.FollowedWait; waits[c.wait].Parent >= 0; {
					c.wait = waits[c.wait].Parent
				}
				v := &waits[c.wait]
				c.stack, c.g, c.via = v.Stack, v.G, p.stage.Sites.Of(v.Stack)
			}
			k := slices.IndexFunc(p.calls, func(o calls) bool { return o.site == c.site && o.stack == c.stack && o.g == c.g })
			if k < 0 {
				k = len(p.calls)
				p.calls = append(p.calls, c)
			}
			at := &p.calls[k]
			wrote := slices.Index(p.wrote, c.g)
			if at.calls == 0 || c.wait >= 0 && c.wait != at.wait || c.wait < 0 && wrote >= 0 {
				at.calls, at.last, at.wait = at.calls+1, 0, c.wait
				if c.wait >= 0 && at.calls <= placePieces {
					at.legs = p.legs(w, waits[c.wait].Waker, waits[c.wait].End)
				}
			}
			if c.wait < 0 && wrote >= 0 {
				p.wrote = slices.Delete(p.wrote, wrote, wrote+1)
			}
			ns := st.End - st.Start
			if unread(p, w.Steps[i:]) {
				at.unanswered, at.unansweredNS = at.unanswered+1, at.unansweredNS+ns
			}
			if p.stage.Syms.Opens(st.Stack) {
				at.opened.add(&openings{ns: ns, longest: ns, in: p.stage.Sites.Call(st.Stack)}, 1)
			}
			at.ns += ns
			at.last += ns
			at.longest = max(at.longest, at.last)
		}
	}
	slices.SortStableFunc(p.calls, func(a, b calls) int { return cmp.Or(cmp.Compare(b.calls, a.calls), cmp.Compare(b.ns, a.ns)) })
	for i := range p.calls {
		c := &p.calls[i]
		same := func(o calls) bool { return o.site == c.site && o.via == c.via }
		if slices.ContainsFunc(p.calls[:i], same) {
			continue // another stack of the same places asks more often
		}
		sum := c.askSum
		sum.requests, sum.opened = 1, openings{}
		for _, o := range p.calls[i:] {
			if same(o) {
				sum.waited += o.ns
				sum.opened.add(&o.opened, 1)
			}
		}
		if sum.opened.ns > 0 {
			sum.opened.requests = 1
		}
		entry.In(p.asks, askKey{w.Group, c.site, c.via}).add(&sum, w.Weight)
	}
}

// unread reports whether a goroutine that waited for the network, in the first of some steps, did something else then than to read: what is there is read at
// once, but who is told that a deadline has passed, or that the connection is closed, does not try.
func unread(p *part, steps []critpath.Step) bool {
	for i := range steps {
		if st := &steps[i]; i > 0 && st.G == steps[0].G && st.Kind != critpath.CPU && st.Kind != critpath.Runnable {
			fn := p.stage.Sites.Socket(st.Stack)
			return st.Kind == critpath.Syscall && fn != 0 && !strings.HasPrefix(strings.ToLower(p.stage.Syms.String(fn)), "net.(*netfd).read")
		}
	}
	return false
}

// legs looks for the goroutines that a request started and that lived at once until it went on at a time: one of them was the last, others were started
// for the same, or had ended by then.
func (p *part) legs(w *path.Walked, last uint64, at int64) (s legs) {
	win := p.stage.Win
	own, ok := win.Born(last, at)
	if !ok || own.By != w.Req.G || own.Time < w.Req.Start {
		return s
	}
	first, seen := at, 0 // first is when one of them had ended
	win.Children(w.Req.G, w.Req.Start, at, func(child uint64, born int64) bool {
		if seen++; seen > 4*placePieces {
			return false
		}
		b, ok := win.Born(child, born+1)
		done, ended := win.Death(child, born)
		if ended = ended && done <= at; !ended {
			done = at
		}
		if !ok || b.Start != own.Start && (!ended || stdlib.Is(p.startOf(b.Start))) {
			return true
		}
		if born >= first {
			s = legs{} // one after the other
			return false
		}
		s.n++
		s.beside += done - born
		first = min(first, done)
		return true
	})
	if s.n < 2 {
		return legs{}
	}
	s.last = at - own.Time
	s.beside = max(0, s.beside-s.last) / (s.n - 1)
	return s
}

// startOf names the function that a goroutine starts with.
func (p *part) startOf(start tracefmt.StackID) string {
	frames := p.stage.Syms.Stack(start)
	if len(frames) == 0 {
		return ""
	}
	return p.stage.Syms.String(p.stage.Syms.Frame(frames[0]).Func)
}

// writes reports whether a system call writes to a connection, in one piece or several.
func (p *part) writes(stack tracefmt.StackID) bool {
	fn := p.stage.Sites.Socket(stack)
	return fn != 0 && strings.HasPrefix(strings.ToLower(p.stage.Syms.String(fn)), "net.(*netfd).write")
}

// mergeAsks adds up what all workers have seen, by the groups of the report.
func (s *Sum) mergeAsks(ts []path.Translation) {
	all := make(map[askKey]*askSum)
	for i, p := range s.parts {
		for k, o := range p.asks {
			k.group = ts[i].Groups[k.group]
			entry.In(all, k).add(o, 1)
		}
	}
	s.parts[0].asks = all
}

// Asks returns what requests of a group asked, what took most time first.
func (s *Sum) Asks(sp *spell.Speller, group path.GroupID) []Asks {
	var out []Asks
	for k, o := range s.parts[0].asks {
		if k.group == group {
			out = append(out, Asks{
				Site: sp.Site(k.site), Via: sp.Site(k.via), Requests: o.requests, Calls: o.calls, NS: o.ns, LongestNS: o.longest,
				Legs: o.legs.n, LastNS: o.legs.last, BesideNS: o.legs.beside, Unanswered: o.unanswered, UnansweredNS: o.unansweredNS,
				WaitedNS: o.waited, OpeningNS: o.opened.ns, Opening: o.opened.requests, OpenedIn: sp.Syms.String(o.opened.in),
			})
		}
	}
	slices.SortFunc(out, func(a, b Asks) int {
		return cmp.Or(cmp.Compare(b.NS, a.NS), a.Site.Compare(b.Site), a.Via.Compare(b.Via))
	})
	return out
}
