package queues

import (
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// Who waits for work that is done for it has given that to somebody: it sent something, ended somebody's wait, or started a
// goroutine. Who reads news has not: it only waits, until there is some or its time is up, and is late with nothing.
//
// What is left behind a lock for somebody who comes for it at intervals is not seen. But he takes what lies there, works for it, and then
// wakes who left it: who comes while he works is too late for that turn, and has the next one. News is for all who wait when there is some.

// readerSum adds up the requests that wait at one line for most of their time.
type readerSum struct {
	waits  int64
	gave   int64 // of them, those that had given somebody something in the same request
	news   int64 // of them, those whose wait somebody ended
	missed int64 // came while who ends the waits was at work for others, whom he woke then, and were woken a turn later
	turns  int64 // had another number of turns than those who left something: none that they came to in time, or several
}

func (s readerSum) plus(o readerSum) readerSum {
	return readerSum{s.waits + o.waits, s.gave + o.gave, s.news + o.news, s.missed + o.missed, s.turns + o.turns}
}

// An ownWait is a sleep of a request's own goroutine, or its wait for what another one does.
type ownWait struct {
	site     tracefmt.FrameID
	from, to int64
	of       int32 // number of the wait, -1: a sleep
}

// ownWaits returns those of a request. It is valid until the next call.
func (p *part) ownWaits(w *path.Walked) []ownWait {
	r, list := w.Req, p.own[:0]
	for i := range w.Segments {
		if s := &w.Segments[i]; s.G == r.G && s.Via < 0 && s.Code.Cause() == cause.Sleep {
			list = append(list, ownWait{s.Site, s.Start, s.End, -1})
		}
	}
	waits := w.Waits()
	for i := range waits {
		if v := &waits[i]; v.G == r.G && v.Parent < 0 {
			list = append(list, ownWait{p.stage.Sites.Of(v.Stack), max(v.Start, r.Start), min(v.End, r.End), int32(i)})
		}
	}
	p.own = list
	return list
}

// addReader takes note of what a request did before the wait that took most of its time.
func (p *part) addReader(w *path.Walked, own []ownWait) {
	r := w.Req
	var most ownWait
	for _, x := range own {
		if x.to-x.from > most.to-most.from {
			most = x
		}
	}
	if 2*(most.to-most.from) <= r.End-r.Start {
		return
	}
	sum := readerSum{waits: 1}
	if p.gave(r.G, r.Start, most.from) {
		sum.gave++
	}
	if most.of >= 0 {
		waker := w.Waits()[most.of].Waker
		if b, born := p.stage.Win.Born(waker, most.to); waker != 0 && !(born && b.By == 0) { // that is a timer's function
			sum.news++
			p.addBatch(&sum, w, most)
		}
	}
	p.readers[most.site] = p.readers[most.site].plus(sum)
}

// addBatch takes note of the turns, from one sleep to the next, of the goroutine that ended a request's wait: which one that was at when the
// request came, and how many sleeps it waited through.
func (p *part) addBatch(sum *readerSum, w *path.Walked, own ownWait) {
	waits := w.Waits()
	by, atWork, sleeps := waits[own.of].Waker, false, 0
	var slept, woken int64 // when the first sleep began, when the last one ended
	for i, first := 0, true; i < len(w.Segments); i++ {
		s := &w.Segments[i]
		if s.Via < 0 || outermost(waits, s.Via) != own.of {
			continue
		}
		c := s.Code.Cause()
		if first {
			first, atWork = false, c == cause.Network || c == cause.Syscall
		}
		if s.G != by || c != cause.Sleep {
			continue
		}
		if sleeps == 0 {
			slept = s.Start
		}
		if s.Start != woken {
			sleeps++
		}
		woken = s.End
	}
	if sleeps > 1 || sleeps == 0 && atWork {
		sum.turns++
	}
	if sleeps != 1 || !atWork {
		return
	}
	var how tracefmt.StackID
	p.stage.Win.Woke(by, own.to, own.to+1, func(_ uint64, stack tracefmt.StackID) bool {
		how = stack
		return false
	})
	others := false
	p.stage.Win.Woke(by, own.from, slept, func(_ uint64, stack tracefmt.StackID) bool {
		others = stack == how
		return !others
	})
	if others && how != 0 {
		sum.missed++
	}
}

// gave reports whether a goroutine gave somebody something in [from, to): the library of the connection that it serves does
// nothing of that sort for it.
func (p *part) gave(g uint64, from, to int64) bool {
	gave := false
	seen := p.stage.Win.Woke(g, from, to, func(_ uint64, stack tracefmt.StackID) bool {
		gave = p.gives(stack)
		return !gave
	})
	if gave || !seen {
		return true
	}
	p.stage.Win.Children(g, from, to, func(child uint64, at int64) bool {
		b, ok := p.stage.Win.Born(child, at+1)
		gave = ok && p.gives(b.Stack)
		return !gave
	})
	return gave
}

// gives reports whether a stack from which somebody was woken, or started, is that of a hand-over: not of a lock that is given
// back, nor of an answer to the client, nor of what net/http does for each request, such as to read its body and, in HTTP/2, tell the connection's goroutine.
func (p *part) gives(stack tracefmt.StackID) bool {
	syms := p.stage.Syms
	for _, fr := range syms.Stack(stack) {
		if fn := syms.String(syms.Frame(fr).Func); stdlib.IsMutex(fn) || strings.HasPrefix(fn, "net/http.(*connReader).") || strings.Contains(fn, "http2") && strings.HasSuffix(fn, "equestBody).Read") {
			return false
		}
	}
	return !p.answers(stack)
}

// Readers sums up the requests that spent most of their time in one wait of their own at a line, in the slices of time that were
// looked at.
type Readers struct {
	Site *report.Site
	// Waits counts them; Gave is the part that had given somebody something before, News the part whose wait somebody ended.
	Waits      int
	Gave, News float64
	// Batch says that those who came while the one who ends the waits was at work had to wait for its next turn: what they wait for is
	// done for those who were there before it began.
	Batch bool
}

// Readers returns these sums. Merge must have been called.
func (s *Sum) Readers(sp *spell.Speller) []Readers {
	var out []Readers
	for k, r := range s.parts[0].readers {
		n := float64(r.waits)
		out = append(out, Readers{sp.Site(k), int(r.waits), float64(r.gave) / n, float64(r.news) / n, r.missed >= scale.Several && float64(r.missed) >= scale.Far*float64(r.turns)})
	}
	slices.SortFunc(out, func(a, b Readers) int { return a.Site.Compare(b.Site) })
	return out
}
