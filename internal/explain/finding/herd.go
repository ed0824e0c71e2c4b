package finding

import (
	"fmt"

	"github.com/whylate/whylate/internal/output/words"
)

// checkHerd is WL1004, herd.
func checkHerd(in *Input, q *queue) []Verdict {
	h := q.herd
	for i := 0; h == nil && i < len(q.takers); i++ {
		h = herdOf(in.Process, &q.takers[i])
	}
	v := q.verdict(h.Site, 0.85)
	v.Title = fmt.Sprintf("%d goroutines of %s wake together and occupy the Ps", h.Most, short(h.Start))
	v.addEvidence(
		measured("goroutines in the largest herd, woken within "+words.Brief(h.WithinNS), h.Most, "count"),
		measured("time until the last of them ran", h.LateNS, "ns"),
		q.waited(),
		measured("time until the last of a herd ran, on average", float64(h.ClearNS)/float64(h.Times), "ns"),
		measured("mean time for which each runs", float64(h.RanNS)/float64(h.Wakes), "ns"),
		measured("share that ran for less than 50 us and waited again", float64(h.Empty)/float64(h.Wakes), "share"),
		measured("herds", h.Times, "count"),
		measured("share of the herd in the time that goroutines ran while requests waited", q.most, "share"))
	if q.herd != nil {
		v.addEvidence(measured("share of the requests' waits for a P in the herds' moments", q.herded, "share"))
	}
	v.Fix = "one goroutine with one ticker for all of them, or a random delay before each one's first tick"
	return []Verdict{v}
}
