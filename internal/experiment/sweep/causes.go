package sweep

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/report"
)

// sumCauses adds up the causes of latency in a report, by name, separately for all requests and for the slowest tenth of each group. A group of few
// requests has no slowest tenth; its causes count in the share of all requests only.
func sumCauses(rep *report.Report) []Cause {
	sums := map[string]*Cause{}
	var slow, all int64
	for i := range rep.Groups {
		for _, band := range rep.Groups[i].Bands {
			isTail := band.Band == report.Band9099 || band.Band == report.Band99
			if !isTail && band.Band != report.BandAll {
				continue
			}
			for _, c := range band.Causes {
				x := causeSum(sums, string(c.Cause))
				if isTail {
					x.slowNS += c.TotalNS
					slow += c.TotalNS
				} else {
					x.allNS += c.TotalNS
					all += c.TotalNS
				}
			}
		}
	}
	out := []Cause{}
	for _, c := range sums {
		c.Share, c.ShareAll = float64(c.slowNS)/float64(max(1, slow)), float64(c.allNS)/float64(max(1, all))
		out = append(out, *c)
	}
	sortCauses(out)
	return out
}

// causeSum returns the sum with a name.
func causeSum(sums map[string]*Cause, name string) *Cause {
	return entry.GetOrMake(sums, name, func() *Cause { return &Cause{Cause: name} })
}

func sortCauses(list []Cause) {
	slices.SortFunc(list, func(a, b Cause) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(b.ShareAll, a.ShareAll), cmp.Compare(a.Cause, b.Cause))
	})
}

// meanCauses returns the mean shares over the runs with a trace, without causes below 0.5 % in both
// shares.
func meanCauses(runs []*Run) []Cause {
	sums := map[string]*Cause{}
	n := 0.0
	for _, r := range runs {
		if r.Causes == nil {
			continue
		}
		n++
		for _, c := range r.Causes {
			x := causeSum(sums, c.Cause)
			x.Share += c.Share
			x.ShareAll += c.ShareAll
		}
	}
	out := []Cause{}
	for _, c := range sums {
		c.Share /= n
		c.ShareAll /= n
		if c.Share >= 0.005 || c.ShareAll >= 0.005 {
			out = append(out, *c)
		}
	}
	sortCauses(out)
	return out
}

// A Cause is one cause of latency with its shares.
type Cause struct {
	Cause string `json:"cause"`
	// Share is the share of the latency of the slowest tenth of the requests, ShareAll that of the
	// latency of all requests.
	Share         float64 `json:"share"`
	ShareAll      float64 `json:"share_all"`
	slowNS, allNS int64
}
