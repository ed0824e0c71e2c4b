package queues

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/internal/explain/threshold"
)

// A Crowding compares the answers of a peer by how many calls were under way when a call began. It is zero unless answers take far
// longer the more there are: then calls queue for each other in the peer, or in what the peer asks.
type Crowding struct {
	AtOnce    int   // calls under way, on average, at the quarter of the calls for which there were most
	CrowdedNS int64 // mean time of the answers to these
	AloneNS   int64 // mean time of the answers to the quarter for which there were fewestAtOnce
}

// minCrowd is the least Crowding.AtOnce. Answers of few calls take longer together wherever both sides share CPUs.
const minCrowd = 8

// maxAnswers bounds the answers that a worker keeps for the Crowding of one place.
const maxAnswers = 4096

// crowdingOf returns the Crowding of calls that took the given time each. A peer that pauses also has more calls under way the longer
// it answers none. But then the answers come at once, whereas those of a queue come at its throughput, which is the number of
// calls under way divided by their time (Little's law).
func crowdingOf(answers []interval) (out Crowding) {
	if len(answers) < threshold.MedianSample {
		return out
	}
	var underWay Overlap
	for _, a := range answers {
		underWay.Add(a.start, a.end)
	}
	sorted := slices.SortedFunc(slices.Values(answers), func(x, y interval) int {
		return cmp.Or(cmp.Compare(underWay.At(x.start), underWay.At(y.start)), cmp.Compare(x.start, y.start))
	})
	means := func(part []interval) (count float64, ns int64) {
		for _, a := range part {
			count += float64(underWay.At(a.start)) / float64(len(part))
			ns += (a.end - a.start) / int64(len(part))
		}
		return count, ns
	}
	quarter := len(sorted) / 4
	crowded := sorted[len(sorted)-quarter:]
	fewestAtOnce, aloneNS := means(sorted[:quarter])
	mostAtOnce, crowdedNS := means(crowded)
	if mostAtOnce < max(minCrowd, threshold.FarFactor*fewestAtOnce) || crowdedNS < threshold.FarFactor*aloneNS {
		return out
	}
	slices.SortFunc(crowded, func(x, y interval) int { return cmp.Compare(x.end, y.end) })
	var gaps []float64
	for i := range crowded[1:] {
		gaps = append(gaps, float64(crowded[i+1].end-crowded[i].end))
	}
	slices.Sort(gaps)
	if sample.Median(gaps) < threshold.MajorShare*float64(crowdedNS)/mostAtOnce {
		return out
	}
	return Crowding{AtOnce: int(mostAtOnce + 0.5), CrowdedNS: crowdedNS, AloneNS: aloneNS}
}
