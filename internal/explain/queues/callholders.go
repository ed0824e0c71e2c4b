package queues

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A CallHolder describes calls of other groups, or of a goroutine that serves no requests, during which a peer's answers are late: it works for these calls, or
// sends their answers, and does nothing else. It is zero unless most calls with late answers begin during such a call, and far fewer others.
type CallHolder struct {
	Line         *report.Site // of the service, where it makes these calls
	Late, During int          // answers that were late as if held up, and how many of their calls began during such a call
	UsualShare   float64      // of the other answers, those whose calls began during such a call
	UsualNS      int64        // nearly all answers to calls that began at other times took at most that
}

// callHolderOf compares the times of answers with calls, both ordered by their start. A peer that pauses for another reason makes
// calls long as well, but only those that meet a pause: most are as short as the other answers. An answer that took FarFactor times the
// median but a small part of such a call is late for another reason.
func callHolderOf(answers, calls []interval) (holder CallHolder) {
	if len(answers) < threshold.MedianSample || len(calls) < threshold.Repeats {
		return holder
	}
	lateNS := threshold.FarFactor * sample.Median(lengthsOf(answers))
	lengths := lengthsOf(calls)
	if slices.Sort(lengths); sample.Quantile(lengths, threshold.MajorShare) < lateNS {
		return holder
	}
	lateNS = max(lateNS, int64(threshold.NoticeableShare*float64(sample.Quantile(lengths, threshold.MajorShare))))
	inProgress := overlapOf(calls)
	starts, ends := inProgress.Bounds()
	usual, usualDuring, holding, latest := 0, 0, 0, 0
	var usualTimes []int64
	for _, a := range answers {
		if a.start < starts[0] || a.start >= ends[len(ends)-1] {
			continue // no such call was followed then
		}
		isLate, isDuring := a.end-a.start >= lateNS, inProgress.At(a.start) > 0
		switch {
		case isLate && isDuring:
			holder.Late, holder.During = holder.Late+1, holder.During+1
			if index, _ := slices.BinarySearch(starts, a.start+1); index != latest {
				holding, latest = holding+1, index
			}
		case isLate:
			holder.Late++
		case isDuring:
			usual, usualDuring = usual+1, usualDuring+1
		default:
			usual++
		}
		if !isDuring {
			usualTimes = append(usualTimes, a.end-a.start)
		}
	}
	lateShare := float64(holder.During) / float64(max(holder.Late, 1))
	holder.UsualShare = float64(usualDuring) / float64(max(usual, 1))
	if holding < threshold.Repeats || holder.During < threshold.SmallSample || lateShare < threshold.MostShare || lateShare < threshold.FarFactor*holder.UsualShare {
		return CallHolder{}
	}
	slices.Sort(usualTimes)
	holder.UsualNS = sample.Quantile(usualTimes, 1-threshold.MinorShare)
	return holder
}

// lengthsOf returns the lengths of intervals.
func lengthsOf(list []interval) []int64 {
	lengths := make([]int64, len(list))
	for i, v := range list {
		lengths[i] = v.end - v.start
	}
	return lengths
}

// othersOf returns those candidates that make other calls, of the same peer: the same library reads the answers of both, no event names the peer.
func (c *PeerCalls) othersOf(candidates []PeerCalls) []PeerCalls {
	return slices.DeleteFunc(slices.Clone(candidates), func(o PeerCalls) bool {
		return c.Site == nil || o.Site == nil || o.BlockingNS > 0 || o.Site.Module != c.Site.Module || o.serviceLine().LineKey() == c.serviceLine().LineKey()
	})
}

// HolderAmong returns the CallHolder of these calls among those of other groups, of several the one during whose calls most answers are
// late.
func (c *PeerCalls) HolderAmong(candidates []PeerCalls) (holder CallHolder) {
	for _, candidate := range c.othersOf(candidates) {
		found := callHolderOf(c.answers, candidate.wholeCalls)
		found.Line = candidate.serviceLine()
		if found.During > holder.During || found.During > 0 && found.During == holder.During && found.Line.Compare(holder.Line) < 0 {
			holder = found
		}
	}
	return holder
}

// serviceLine returns the line of the service at which it waits for the answers.
func (c *PeerCalls) serviceLine() *report.Site {
	if c.Via != nil {
		return c.Via.OwnLine()
	}
	return c.Site.OwnLine()
}

// A backgroundCall is the latest call of a goroutine, as an index of the calls at its site. It is over when the goroutine has sent another.
type backgroundCall struct {
	site   tracefmt.FrameID
	index  int
	isOver bool
}

// maxBackground bounds the goroutines whose calls are listed: of many more, no single one holds up a peer.
const maxBackground = 64

// addBackgroundCalls adds the calls of this generation on goroutines that serve no requests: most do too little to be recognized as loops.
// They must ask a peer in code that is no server's: a read belongs to the call before it until the goroutine writes again.
func (s *Sum) addBackgroundCalls() {
	p := s.workers[0]
	if p.stage == nil || len(p.stage.Win.Gens) == 0 {
		return
	}
	gen, sites := p.stage.Win.Gens[len(p.stage.Win.Gens)-1], p.stage.Sites
	isNew := gen.End != s.backgroundEnd // else only requests that are still open were added
	s.backgroundEnd = gen.End
	if !isNew || !slices.ContainsFunc(s.workers, func(w *workerSum) bool { return len(w.peerCalls) > 0 }) {
		return
	}
	asks := make([]bool, p.stage.Syms.Stacks())
	for i := range asks {
		id := tracefmt.StackID(i)
		isAwaited := sites.HasRole(id, knowledge.ConnectionRead) || sites.HasRole(id, knowledge.HTTP1RoundTrip) || sites.HasRole(id, knowledge.HTTP2ClientWait)
		asks[i] = isAwaited && sites.HasRole(id, knowledge.NonStdlib) && !sites.HasRole(id, knowledge.KnownServer) && !sites.HasRole(id, knowledge.BlockingCall)
	}
	latestCalls := s.latestCalls
	s.latestCalls = make(map[uint64]backgroundCall)
	var goroutines []uint64
	for g := range gen.WithStack(asks) {
		if s.requestGoroutines.contains(g) {
			continue
		}
		if goroutines = append(goroutines, g); len(goroutines) > maxBackground {
			return
		}
	}
	for _, g := range goroutines {
		// The calls of a busy loop are known from its iterations.
		if p.spans = p.stage.Win.SpansCoarse(g, gen.Base, gen.Base+(gen.End-gen.Base)/100, p.spans[:0]); len(p.spans) > maxBackground {
			continue
		}
		call, isKnown := latestCalls[g]
		p.spans = p.stage.Win.SpansCoarse(g, gen.Base, gen.End, p.spans[:0])
		for i := range p.spans {
			span := &p.spans[i]
			switch {
			case span.State == timeline.Syscall && p.sendsRequest(span.Stack):
				call.isOver = true
			case span.State != timeline.Waiting || !span.Woken || span.Start == timeline.BeforeTrace || int(span.Stack) >= len(asks) || !asks[span.Stack]:
			case isKnown && !call.isOver && sites.HasRole(span.Stack, knowledge.ConnectionRead):
				s.backgroundCalls[call.site][call.index].end = span.End
			default:
				site := sites.SiteOf(span.Stack)
				if calls := s.backgroundCalls[site]; len(calls) < maxAnswers {
					call, isKnown = backgroundCall{site: site, index: len(calls)}, true
					s.backgroundCalls[site] = append(calls, interval{span.Start, span.End})
				}
			}
		}
		if isKnown {
			s.latestCalls[g] = call
		}
	}
}

// BackgroundCalls returns the calls of goroutines that serve no requests, by the line that waits for them. Of a library's own goroutine no
// line of the service is known.
func (s *Sum) BackgroundCalls(sp *spell.Speller) (out []PeerCalls) {
	for frame, calls := range s.backgroundCalls {
		if site := sp.Site(frame); len(calls) >= threshold.Repeats && site != nil && (site.Module == "" || site.CalledFrom != nil) {
			slices.SortFunc(calls, func(a, b interval) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end)) })
			out = append(out, PeerCalls{Site: site, wholeCalls: calls})
		}
	}
	slices.SortFunc(out, func(a, b PeerCalls) int { return a.Site.Compare(b.Site) })
	return out
}
