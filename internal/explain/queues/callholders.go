package queues

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// A CallHolder describes calls of other groups, as of a background job, during which a peer's answers are late: it works for these calls, or
// sends their answers, and does nothing else. It is zero unless most calls with late answers begin during such a call, and far fewer others.
type CallHolder struct {
	Line         *report.Site // of the service, where it makes these calls
	Late, During int          // answers that took FarFactor times the median, and how many of their calls began during such a call
	UsualShare   float64      // of the other answers, those whose calls began during such a call
	UsualNS      int64        // nearly all answers to calls that began at other times took at most that
}

// callHolderOf compares the times of answers with calls, both ordered by their start. A peer that pauses for another reason makes
// calls long as well, but only those that meet a pause: most are as short as the other answers.
func callHolderOf(answers, calls []interval) (holder CallHolder) {
	if len(answers) < threshold.MedianSample || len(calls) < threshold.Repeats {
		return holder
	}
	lateNS := threshold.FarFactor * sample.Median(lengthsOf(answers))
	lengths := lengthsOf(calls)
	if slices.Sort(lengths); sample.Quantile(lengths, threshold.MajorShare) < lateNS {
		return holder
	}
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

// HolderAmong returns the CallHolder of these calls among those of other groups, of several the one during whose calls most answers are
// late. The same library reads the answers of both: no event names the peer.
func (c *PeerCalls) HolderAmong(candidates []PeerCalls) (holder CallHolder) {
	for i := range candidates {
		candidate := &candidates[i]
		if c.Site == nil || candidate.Site == nil || candidate.Site.Module != c.Site.Module || candidate.serviceLine().LineKey() == c.serviceLine().LineKey() {
			continue
		}
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
