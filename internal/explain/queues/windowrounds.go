package queues

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// WindowRounds describes answers of HTTP/2 that come in parts, of which the caller's window lets through one in each round trip: the next one
// comes a round trip after the caller has allowed it. It is zero unless nearly all long waits for later parts are equally long, follow
// what allows them, and no answer begins sooner.
type WindowRounds struct {
	PerCall float64 // of one answer, after its first part
	RoundNS int64   // median
	// OwnHeader reports that the service waits for an answer's header at another line.
	OwnHeader bool
}

// addWindowRound adds the interval from what allows a peer more bytes of an answer to the end of the wait in which the caller gets them. It adds
// nothing if the caller has not allowed any since its wait before, or has sent something else afterwards. Of a wait for the header of an
// answer, it adds the length.
func (p *workerSum) addWindowRound(sum *peerCallSum, wait *critpath.FollowedWait) {
	if p.stage.Sites.HasRole(wait.Stack, knowledge.HTTP2ClientWait) {
		if ns := wait.End - wait.Start; sum.shortestNS == 0 || ns < sum.shortestNS {
			sum.shortestNS = ns
		}
		return
	}
	from, allowed := int64(0), int64(0)
	for i := range p.callScratch {
		if o := &p.callScratch[i]; o.caller == wait.G && o.Calls > 0 && o.wait >= 0 {
			from = max(from, o.waitEnd)
		}
	}
	if from == 0 {
		return // its first wait
	}
	p.stage.Win.EachWake(wait.G, from, wait.Start, func(woken timeline.WokenGoroutine, stack tracefmt.StackID) bool {
		if p.stage.Sites.HasRole(stack, knowledge.WindowUpdate) {
			allowed = woken.Time
		} else if p.isHandover(stack) {
			allowed = 0
		}
		return true
	})
	p.spans = p.stage.Win.SpansCoarse(wait.G, from, wait.Start, p.spans[:0])
	for i := range p.spans {
		if s := &p.spans[i]; s.State == timeline.Syscall && p.stage.Sites.HasRole(s.Stack, knowledge.SocketWrite) && p.stage.Sites.HasRole(s.Stack, knowledge.WindowUpdate) {
			allowed = s.Start
		}
	}
	if allowed > 0 {
		sum.roundCount, sum.rounds = sum.roundCount+1, addEarliest(sum.rounds, interval{allowed, wait.End})
	}
}

// windowRoundsOf returns the WindowRounds of calls with so many rounds each, of which the earliest are known. A wait for a part that was already on its
// way is shorter, so only those count that are at least half as long as the long ones.
func windowRoundsOf(rounds []interval, perCall float64) WindowRounds {
	lengths := lengthsOf(rounds)
	slices.Sort(lengths)
	if len(lengths) > 0 {
		longest := lengths[len(lengths)*9/10]
		shorter, _ := slices.BinarySearch(lengths, longest/2)
		lengths = lengths[shorter:]
	}
	if len(lengths) < threshold.MedianSample {
		return WindowRounds{}
	}
	out := WindowRounds{PerCall: perCall * float64(len(lengths)) / float64(len(rounds)), RoundNS: lengths[len(lengths)/2]}
	isConstant := float64(lengths[len(lengths)/10]) >= threshold.MostShare*float64(out.RoundNS) && threshold.MostShare*float64(lengths[len(lengths)*9/10]) <= float64(out.RoundNS)
	if !isConstant || out.RoundNS < 2*threshold.LoopbackNS {
		return WindowRounds{}
	}
	return out
}

// checkWindowRounds removes the WindowRounds of calls if the header of an answer to the same function comes sooner than such a round takes: the
// round trip is shorter. It sets their OwnHeader.
func checkWindowRounds(all []PeerCalls) {
	for calls := range entry.Each(all) {
		for o := range entry.Each(all) {
			if o.shortestNS == 0 || !o.Site.Matches(calls.Site) || o.Via == nil || calls.Via == nil || o.Via.OwnLine().Func != calls.Via.OwnLine().Func {
				continue
			}
			if float64(o.shortestNS) < threshold.MostShare*float64(calls.WindowRounds.RoundNS) {
				calls.WindowRounds = WindowRounds{}
			}
			calls.WindowRounds.OwnHeader = calls.WindowRounds.OwnHeader || o.Via.OwnLine().LineKey() != calls.Via.OwnLine().LineKey()
		}
	}
}
