package queues

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/internal/explain/threshold"
)

// A LoadDependence compares the answers of a peer by how many calls were under way when a call began. It is zero unless answers take far
// longer the more there are: then calls queue for each other in the peer, or in what the peer asks.
type LoadDependence struct {
	CallsAtOnce int   // calls under way, on average, at the quarter of the calls for which there were most
	LoadedNS    int64 // mean time of the answers to these
	UnloadedNS  int64 // mean time of the answers to the quarter for which there were fewest
}

// minCallsAtOnce is the least CallsAtOnce. Answers of few calls take longer together wherever both sides share CPUs.
const minCallsAtOnce = 8

// maxAnswers bounds the answers of one place from which its LoadDependence is computed: the earliest ones, however workers share the requests.
const maxAnswers = 4096

// loadDependenceOf returns the LoadDependence of calls that took the given time each. A peer that pauses also has more calls under way the longer
// it answers none. But then the answers come at once, whereas those of a queue come at its throughput, which is the number of
// calls under way divided by their time (Little's law).
func loadDependenceOf(answers []interval) (out LoadDependence) {
	if len(answers) < threshold.MedianSample {
		return out
	}
	var inProgress Overlap
	for _, a := range answers {
		inProgress.Add(a.start, a.end)
	}
	type call struct {
		interval
		atOnce int
	}
	calls := make([]call, len(answers))
	for i, a := range answers {
		calls[i] = call{a, inProgress.At(a.start)}
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
	loaded := calls[len(calls)-quarter:]
	fewestAtOnce, unloadedNS := means(calls[:quarter])
	mostAtOnce, loadedNS := means(loaded)
	if mostAtOnce < max(minCallsAtOnce, threshold.FarFactor*fewestAtOnce) || loadedNS < threshold.FarFactor*unloadedNS {
		return out
	}
	slices.SortFunc(loaded, func(x, y call) int { return cmp.Compare(x.end, y.end) })
	var gaps []int64
	for i := range loaded[1:] {
		gaps = append(gaps, loaded[i+1].end-loaded[i].end)
	}
	if float64(sample.Median(gaps)) < threshold.MajorShare*float64(loadedNS)/mostAtOnce {
		return out
	}
	return LoadDependence{CallsAtOnce: int(mostAtOnce + 0.5), LoadedNS: loadedNS, UnloadedNS: unloadedNS}
}
