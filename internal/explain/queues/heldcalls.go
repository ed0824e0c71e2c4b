package queues

import (
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// The writer of a connection of gRPC keeps a body back for which the peer does not allow enough bytes, and its caller waits for the answer
// as any other does. Only a stream that has much to send waits visibly, for its own window or for that of the connection. If it is the
// connection's, each call made during that wait is answered only after the peer allows more, and then takes as long as calls made at
// other times. If it is the stream's own, such calls take no longer than others.

// HeldCalls describes calls whose bodies wait for the window of their connection, which another stream uses up. It is zero unless nearly all
// calls made while that stream waits do.
type HeldCalls struct {
	Share  float64      // of the calls made while the stream waits, those answered after the peer has allowed more bytes
	HeldNS int64        // mean time from such a call to that
	FreeNS int64        // median time of the answers to calls made at other times
	With   *report.Site // where the stream waits
}

// A heldCallSum adds up calls by whether a stream of their connection waits for flow control when they begin.
type heldCallSum struct {
	calls, held, heldNS  int64                  // made while one waits; held: answered after the peer has allowed more bytes
	free, blocked, after *sample.TopN[interval] // the earliest answers to calls made at other times, to the held calls, and these from what the peer allows
	with                 map[tracefmt.FrameID]int64
}

// add adds another sum, multiplied by a weight.
func (s *heldCallSum) add(addend *heldCallSum, weight int64) {
	s.calls, s.held, s.heldNS = s.calls+addend.calls*weight, s.held+addend.held*weight, s.heldNS+addend.heldNS*weight
	s.free, s.blocked, s.after = addEarliest(s.free, addend.free.Sorted()...), addEarliest(s.blocked, addend.blocked.Sorted()...), addEarliest(s.after, addend.after.Sorted()...)
	addSums(&s.with, addend.with, func(a, b int64) int64 { return a + b*weight })
}

// addHeldCall adds a call whose caller waits for the header of its answer, if the caller woke the connection's writer.
func (p *workerSum) addHeldCall(sum *heldCallSum, wait *critpath.FollowedWait) {
	if !p.stage.Sites.HasRole(wait.Stack, knowledge.HTTP2ClientWait) {
		return
	}
	writer := uint64(0)
	p.stage.Win.EachWake(wait.G, wait.Start-maxBurstNS, wait.Start, func(woken timeline.WokenGoroutine, _ tracefmt.StackID) bool {
		if p.stage.Sites.HasRole(p.waitBefore(woken).Stack, knowledge.ClientWriter) {
			writer = woken.G
		}
		return true
	})
	if writer == 0 {
		return
	}
	with := tracefmt.FrameID(0)
	p.stage.Win.EachWake(writer, wait.Start, wait.Start+maxHandoverNS, func(woken timeline.WokenGoroutine, _ tracefmt.StackID) bool {
		if s := p.waitBefore(woken); s.Start <= wait.Start && p.stage.Sites.HasRole(s.Stack, knowledge.FlowControlWait) {
			with = p.stage.Sites.SiteOf(s.Stack)
		}
		return with == 0
	})
	if with == 0 {
		sum.free = addEarliest(sum.free, interval{wait.Start, wait.End})
		return
	}
	sum.calls++
	p.stage.Win.EachWake(wait.Waker, wait.Start, wait.End, func(woken timeline.WokenGoroutine, stack tracefmt.StackID) bool {
		if !p.stage.Sites.HasRole(stack, knowledge.PeerWindowUpdate) {
			return true
		}
		addToKey(&sum.with, with, 1, plusNS)
		sum.held, sum.heldNS = sum.held+1, sum.heldNS+woken.Time-wait.Start
		sum.blocked, sum.after = addEarliest(sum.blocked, interval{wait.Start, wait.End}), addEarliest(sum.after, interval{woken.Time, wait.End})
		return false
	})
}

// waitBefore returns the span that a wake ended.
func (p *workerSum) waitBefore(woken timeline.WokenGoroutine) (wait timeline.Span) {
	p.spans = p.stage.Win.Spans(woken.G, woken.Time-1, woken.Time, p.spans[:0])
	if len(p.spans) > 0 && p.spans[0].State == timeline.Waiting {
		wait = p.spans[0]
	}
	return wait
}

// spell returns the HeldCalls of a sum.
func (s *heldCallSum) spell(sp *spell.Speller) (out HeldCalls) {
	free, blocked, after := sample.Median(lengthsOf(s.free.Sorted())), sample.Median(lengthsOf(s.blocked.Sorted())), sample.Median(lengthsOf(s.after.Sorted()))
	if s.held < threshold.MedianSample || len(s.free.Sorted()) < threshold.MedianSample || float64(s.held) < threshold.MostShare*float64(s.calls) {
		return out
	}
	heldNS := s.heldNS / s.held
	if float64(blocked-free) < threshold.HalfShare*float64(heldNS) || float64(after) < threshold.MostShare*float64(free) {
		return out
	}
	out = HeldCalls{Share: float64(s.held) / float64(s.calls), HeldNS: heldNS, FreeNS: free}
	highest := int64(0)
	for frame, n := range s.with {
		site := sp.Site(frame)
		if n > highest || n == highest && site.Compare(out.With) < 0 {
			out.With, highest = site, n
		}
	}
	out.With = out.With.OwnLine()
	return out
}
