package finding

import (
	"fmt"

	"github.com/whylate/whylate/internal/output/words"
)

// checkHerd is WL1004, herd: many goroutines wake at the same time and occupy the Ps.
func checkHerd(in *Input, wait *runQueueWait) []Verdict {
	herd := wait.herd
	for i := 0; herd == nil && i < len(wait.occupants); i++ {
		herd = herdOf(in.Process, &wait.occupants[i])
	}
	v := wait.newVerdict(herd.Site, 0.85)
	v.Title = fmt.Sprintf("%d goroutines of %s wake together and occupy the Ps", herd.Largest, shortFunc(herd.Start))
	v.addEvidence(
		measurement("goroutines in the largest herd, woken within "+words.Brief(herd.WithinNS), herd.Largest, "count"),
		measurement("time until the last of them ran", herd.LateNS, "ns"),
		wait.waitEvidence(),
		measurement("time until the last of a herd ran, on average", float64(herd.ClearNS)/float64(herd.Times), "ns"),
		measurement("mean time for which each runs", float64(herd.RanNS)/float64(herd.Wakes), "ns"),
		measurement("share that ran for less than 50 us and waited again", float64(herd.Empty)/float64(herd.Wakes), "share"),
		measurement("herds", herd.Times, "count"),
		measurement("share of the herd in the time that goroutines ran while requests waited", wait.kindShare, "share"))
	if wait.herd != nil {
		v.addEvidence(measurement("share of the requests' waits for a P in the herds' moments", wait.herdShare, "share"))
	}
	v.Fix = "one goroutine with one ticker for all of them, or a random delay before each one's first tick"
	return []Verdict{v}
}
