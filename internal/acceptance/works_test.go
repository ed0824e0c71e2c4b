package acceptance_test

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/report"
)

// The truths of recordings name the work that takes long, also where requests queue while others do it. So time of the cause queue is
// judged here by the work of those ahead. Whether it is a queue is judged by TestOutputsNameTheQueue and by the findings.

// workRows returns the rows of a band with the cause of the work, those of one cause, kind and site as one, the largest first.
func workRows(b *report.Band) (rows []report.Cause) {
	for i := range b.Causes {
		for _, work := range b.Causes[i].Works() {
			k := slices.IndexFunc(rows, func(row report.Cause) bool {
				return row.Cause == work.Cause && row.Kind == work.Kind && row.Site.Equal(work.Site)
			})
			if k < 0 {
				rows = append(rows, work)
				continue
			}
			row := &rows[k]
			if work.TotalNS > row.TotalNS {
				row.Via = work.Via
			}
			row.TotalNS, row.Share, row.Requests = row.TotalNS+work.TotalNS, row.Share+work.Share, max(row.Requests, work.Requests)
		}
	}
	slices.SortStableFunc(rows, func(a, b report.Cause) int { return cmp.Compare(b.TotalNS, a.TotalNS) })
	return rows
}

// workOf returns the cause of a verdict's time and its first site; of the cause queue, those of the work of those ahead.
func workOf(c *report.VerdictCause) (cause report.CauseName, site *report.Site) {
	cause, sites := c.Cause, c.Sites
	if c.AheadWork != nil {
		cause, sites = c.AheadWork.Cause, c.AheadWork.Sites
	}
	if len(sites) > 0 {
		site = sites[0].Site
	}
	return cause, site
}
