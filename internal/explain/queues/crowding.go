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
	AloneNS   int64 // mean time of the answers to the quarter for which there were fewest
}

// minCrowd is the least Crowding.AtOnce. Answers of few calls take longer together wherever both sides share CPUs.
const minCrowd = 8

// maxAnswers bounds the answers of one place from which its Crowding is computed: the earliest ones, however workers share the requests.
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
	type call struct {
		interval
		atOnce int
	}
	calls := make([]call, len(answers))
	for i, a := range answers {
		calls[i] = call{a, underWay.At(a.start)}
	}
	slices.SortFunc(calls, func(x, y call) int {
		return cmp.Or(cmp.Compare(x.atOnce, y.atOnce), cmp.Compare(x.start, y.start), cmp.Compare(x.end, y.end))
	})
	means := func(part []call) (atOnce float64, ns int64) {
		for _, c := range part {
			atOnce += float64(c.atOnce) / float64(len(part))
			ns += (c.end - c.start) / int64(len(part))
		}
		return atOnce, ns
	}
	quarter := len(calls) / 4
	crowded := calls[len(calls)-quarter:]
	fewestAtOnce, aloneNS := means(calls[:quarter])
	mostAtOnce, crowdedNS := means(crowded)
	if mostAtOnce < max(minCrowd, threshold.FarFactor*fewestAtOnce) || crowdedNS < threshold.FarFactor*aloneNS {
		return out
	}
	slices.SortFunc(crowded, func(x, y call) int { return cmp.Compare(x.end, y.end) })
	var gaps []int64
	for i := range crowded[1:] {
		gaps = append(gaps, crowded[i+1].end-crowded[i].end)
	}
	if float64(sample.Median(gaps)) < threshold.MajorShare*float64(crowdedNS)/mostAtOnce {
		return out
	}
	return Crowding{AtOnce: int(mostAtOnce + 0.5), CrowdedNS: crowdedNS, AloneNS: aloneNS}
}
