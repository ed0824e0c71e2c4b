package path

import (
	"cmp"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// ranWindow is how much of one wait for a P is looked at, in ns.
const ranWindow = int64(300e3)

// EachRanMeanwhile calls f with what others than a goroutine ran between from
// and to, or in a part of it that stands for all.
func (s *Stage) EachRanMeanwhile(from, to int64, me uint64, f func(site tracefmt.FrameID, ns int64)) {
	weight := max(1, (to-from)/ranWindow)
	from, to = PartOf(from, to, ranWindow)
	if to <= from {
		return
	}
	g := s.Win.Gens[s.Win.At(from)]
	g.EachRun(from, to, func(r timeline.Run) {
		if r.G == me {
			return
		}
		left := min(r.To, to) - max(r.From, from)
		s.spans = s.Win.SpansCoarse(r.G, max(r.From, from), min(r.To, to), s.spans[:0])
		for i := range s.spans {
			sp := &s.spans[i]
			if frame := s.assists(sp); frame != 0 {
				f(frame, (sp.End-sp.Start)*weight)
				left -= sp.End - sp.Start
			}
		}
		if left > 0 {
			f(s.whatRan(g, &r), left*weight)
		}
	})
}

// PartOf returns a part of [from, to) that stands for all of it, of a length at most. Which one depends on when it was, so that it is
// the same in every run.
func PartOf(from, to, most int64) (int64, int64) {
	if d := to - from; d > most {
		from += int64(uint64(from)*0x9e3779b97f4a7c15>>1) % (d - most)
		to = from + most
	}
	return from, to
}

// assists returns the frame of the runtime in which a goroutine helps to mark, 0 if it does not: its P is the collector's then.
func (s *Stage) assists(sp *timeline.Span) tracefmt.FrameID {
	if !sp.Assist || sp.State != timeline.Running {
		return 0
	}
	for _, fr := range s.Syms.Stack(sp.Stack) {
		if s.Syms.String(s.Syms.Frame(fr).Func) == stdlib.MarkHelp {
			return fr
		}
	}
	return 0
}

// Bounds of looking for what a run was, around it, in ns.
const (
	nearSample = 100e6 // of the same goroutine: what it does, it does repeatedly
	nearStack  = 2e6   // of the same request
)

// whatRan returns what helps most to know of a run: the function that a CPU
// sample of its goroutine shows, the nearest one; else the site of the event that
// ended it; and where that is only how a library's goroutine begins, the handler
// that was seen on it, or else the line that gave it its work.
func (s *Stage) whatRan(g *timeline.Gen, r *timeline.Run) tracefmt.FrameID {
	stack := r.Stack
	if stack == 0 {
		// A run to the goroutine's end shows no stack, however long it was; its start function is known.
		if b, ok := g.BirthOf(r.G); ok {
			stack = b.Start
		}
	}
	site := s.Sites.SiteOf(stack)
	fn := s.Syms.Frame(site).Func
	if s.isRuntime(fn) {
		return site // the collector's workers, as rules know them
	}
	if of := g.SamplesOf(r.G); len(of) > 0 {
		mid := (r.From + r.To) / 2
		k, _ := slices.BinarySearchFunc(of, mid, func(i int32, t int64) int { return cmp.Compare(g.Samples[i].Time, t) })
		if k == len(of) || k > 0 && mid-g.Samples[of[k-1]].Time < g.Samples[of[k]].Time-mid {
			k--
		}
		at := &g.Samples[of[k]]
		if seen := s.Sites.SiteOf(at.Stack); seen != 0 && max(at.Time-r.To, r.From-at.Time) <= nearSample && !s.isRuntime(s.Syms.Frame(seen).Func) {
			return seen
		}
	}
	if site != 0 && s.Sites.IsStdlib(fn) {
		if h := s.namer.HandlerOf(stack); h.Key != 0 && !h.IsObserver {
			return h.Frame // the run itself shows it
		}
		if f := s.handlerOn(r.G, r.From-nearStack, r.To+nearStack); f != 0 {
			return f
		}
		if b, ok := g.BirthOf(r.G); ok {
			if f := s.given(&b); f != 0 {
				return f
			}
		}
	}
	return site
}

// given returns the line that gave a goroutine its work, if what the goroutine began with is only the standard library's way to
// run it (sync.(*WaitGroup).Go runs a closure of its own), else 0.
func (s *Stage) given(b *timeline.Birth) tracefmt.FrameID {
	frames := s.Syms.Stack(b.Stack)
	start := s.Syms.Stack(b.Start)
	if len(frames) < 2 || len(start) == 0 {
		return 0
	}
	by := s.Syms.Frame(frames[0]).Func
	if !s.Sites.IsStdlib(by) || !strings.HasPrefix(s.Syms.String(s.Syms.Frame(start[len(start)-1]).Func), s.Syms.String(by)+".func") {
		return 0
	}
	if fn := s.Syms.Frame(frames[1]).Func; s.Sites.IsStdlib(fn) || s.isRuntime(fn) {
		return 0
	}
	return frames[1]
}

func (s *Stage) isRuntime(fn tracefmt.StringID) bool {
	return strings.HasPrefix(s.Syms.String(fn), "runtime.")
}

// handlerOn returns a frame of the handler that the events of a goroutine show
// between two times, 0 if they show none.
func (s *Stage) handlerOn(g uint64, from, to int64) tracefmt.FrameID {
	var best request.Handler
	from = max(from, s.Win.Start())
	if !s.Win.MayTell(g, from, to) {
		return 0
	}
	s.spans = s.Win.SpansCoarse(g, from, to, s.spans[:0])
	for i := range s.spans {
		if h := s.namer.HandlerOf(s.spans[i].Stack); h.Key != 0 && !h.IsObserver && h.Rank > best.Rank {
			best = *h
		}
	}
	return best.Frame
}
