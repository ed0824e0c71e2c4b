package path

import (
	"cmp"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// concurrentWindowNS is how much of one wait for a P is examined, in ns.
const concurrentWindowNS = int64(300e3)

// EachConcurrentRun calls f for each run of other goroutines than waiter in [from, to), with the site that best identifies the
// run and its length in ns. Time of mark assists is reported at the runtime's function. Of a long interval it examines
// concurrentWindowNS and scales the times up.
func (s *Stage) EachConcurrentRun(from, to int64, waiter uint64, f func(site tracefmt.FrameID, ns int64)) {
	weight := max(1, (to-from)/concurrentWindowNS)
	from, to = SampleInterval(from, to, concurrentWindowNS)
	if to <= from {
		return
	}
	gen := s.Win.Gens[s.Win.GenIndex(from)]
	gen.EachRun(from, to, func(r timeline.Run) {
		if r.G == waiter {
			return
		}
		remaining := min(r.To, to) - max(r.From, from)
		s.spans = s.spans[:0]
		if s.Win.MayAssist(r.G) {
			s.spans = s.Win.SpansCoarse(r.G, max(r.From, from), min(r.To, to), s.spans)
		}
		for i := range s.spans {
			span := &s.spans[i]
			if frame := s.markAssistFrame(span); frame != 0 {
				f(frame, (span.End-span.Start)*weight)
				remaining -= span.End - span.Start
			}
		}
		if remaining > 0 {
			f(s.runSite(gen, &r), remaining*weight)
		}
	})
}

// SampleInterval returns a part of [from, to) that is at most maxLength long, at a pseudo-random position. The position depends
// only on from, so it is the same in every run of the program.
func SampleInterval(from, to, maxLength int64) (partFrom, partTo int64) {
	if d := to - from; d > maxLength {
		from += int64(sample.Spread(uint64(from))>>1) % (d - maxLength)
		to = from + maxLength
	}
	return from, to
}

// markAssistFrame returns the runtime's frame in which a goroutine assists marking during a running span; 0 if it does not.
// During an assist its P works for the collector.
func (s *Stage) markAssistFrame(span *timeline.Span) tracefmt.FrameID {
	if !span.Assist || span.State != timeline.Running {
		return 0
	}
	return s.Sites.FrameWith(span.Stack, knowledge.MarkAssist)
}

// Bounds, in ns, for what identifies a run by events around it.
const (
	maxSampleDistanceNS = 100e6 // Bounds, in ns, for events around a run that may identify it.
	handlerSearchNS     = 2e6   // for a handler on the same goroutine, so of the same request
)

// runSite returns the frame that best identifies a run: the function in the nearest CPU sample of its goroutine, otherwise the
// site of the event that ended the run. If that site is in the standard library, runSite prefers the handler seen on the
// goroutine around the run, then the line that gave the goroutine its work.
func (s *Stage) runSite(gen *timeline.Gen, run *timeline.Run) tracefmt.FrameID {
	stack := run.Stack
	if stack == 0 {
		// A run that ends with the goroutine has no stack, but the start function is known.
		if b, ok := gen.BirthOf(run.G); ok {
			stack = b.Start
		}
	}
	site := s.Sites.SiteOf(stack)
	fn := s.Syms.Frame(site).Func
	if s.Sites.RolesOf(site).Has(knowledge.Runtime) {
		return site // mark workers, as the rules of package finding know them
	}
	if samples := gen.SamplesOf(run.G); len(samples) > 0 {
		middle := (run.From + run.To) / 2
		k, _ := slices.BinarySearchFunc(samples, middle, func(i int32, t int64) int { return cmp.Compare(gen.Samples[i].Time, t) })
		if k == len(samples) || k > 0 && middle-gen.Samples[samples[k-1]].Time < gen.Samples[samples[k]].Time-middle {
			k--
		}
		nearest := &gen.Samples[samples[k]]
		if sampleSite := s.Sites.SiteOf(nearest.Stack); sampleSite != 0 && max(nearest.Time-run.To, run.From-nearest.Time) <= maxSampleDistanceNS && !s.Sites.RolesOf(sampleSite).Has(knowledge.Runtime) {
			return sampleSite
		}
	}
	if site != 0 && s.Sites.IsStdlib(fn) {
		if h := s.namer.HandlerOf(stack); h.Key != 0 && !h.IsObserver {
			return h.Frame
		}
		if f := s.handlerFrameIn(run.G, run.From-handlerSearchNS, run.To+handlerSearchNS); f != 0 {
			return f
		}
		if b, ok := gen.BirthOf(run.G); ok {
			if f := s.workGiver(&b); f != 0 {
				return f
			}
		}
	}
	return s.workBefore(site)
}

// workBefore returns the service's line that called site if site only releases a slot: the work that ran came before the
// release. Otherwise it returns site.
func (s *Stage) workBefore(site tracefmt.FrameID) tracefmt.FrameID {
	if caller := s.Syms.Frame(site).Caller; caller != 0 && s.Sites.RolesOf(site).Has(knowledge.Semaphore) {
		return caller
	}
	return site
}

// workGiver returns the line that gave a goroutine its work, if the goroutine began in a closure of the standard
// library (sync.(*WaitGroup).Go runs one), otherwise 0.
func (s *Stage) workGiver(birth *timeline.Birth) tracefmt.FrameID {
	frames := s.Syms.Stack(birth.Stack)
	start := s.Syms.Stack(birth.Start)
	if len(frames) < 2 || len(start) == 0 {
		return 0
	}
	creatorFunc := s.Syms.Frame(frames[0]).Func
	if !s.Sites.IsStdlib(creatorFunc) || !strings.HasPrefix(s.Syms.String(s.Syms.Frame(start[len(start)-1]).Func), s.Syms.String(creatorFunc)+".func") {
		return 0
	}
	if s.Sites.RolesOf(frames[1]).Has(knowledge.Stdlib) {
		return 0
	}
	return frames[1]
}

// handlerFrameIn returns a frame of the handler of highest rank that the goroutine's events in [from, to) show; 0 if they show
// none.
func (s *Stage) handlerFrameIn(g uint64, from, to int64) tracefmt.FrameID {
	var best request.Handler
	from = max(from, s.Win.Start())
	if !s.Win.MayHaveTrackedStack(g, from, to) {
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
