package finding

import (
	"math"

	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// rewriteForCacheLoads rewrites a verdict on calls that load what a cache does not hold, if at least half of all requests make them. It
// returns false, and changes nothing, for others. A request that the cache answers does not wait, so nothing may show its handler: requests
// without a name count as answered.
func (a *attribution) rewriteForCacheLoads(v *Verdict, cand *candidate, calls *queues.PeerCalls) bool {
	top, all := &cand.routes[0], a.group.Count
	for g := range each(a.in.Report.Groups) {
		if g.ID != a.group.ID && !g.Named && g.Kind == a.group.Kind {
			all += g.Count
		}
	}
	loads := int(math.Round(float64(top.Requests) * float64(calls.CacheLoads) / float64(max(1, calls.Requests))))
	share := float64(loads) / float64(all)
	if loads < threshold.MedianSample || share < threshold.HalfShare {
		return false
	}
	v.Title = textOf("title cache-loads", "share", words.Percent(share), "site", v.Site)
	v.Fix = textOf("fix cache-loads", "cache", calls.Cache.OwnLine(), "share", words.Percent(share))
	v.prependEvidence(evidenceOf("evidence cache-loads", loads, "count", "n", all))
	v.Gain, v.InService, v.MaxSeverity = cand.gain, true, report.SeverityMedium // how often requests ask for the same is unknown
	a.predictAs(v, "phrase change-cached")
	if p := v.Predicted; p != nil && p.WasP99NS != nil { // a few requests still load
		p.P99NS.Est, p.P99NS.High = *p.WasP99NS, *p.WasP99NS
	}
	if p := v.Predicted; p != nil && p.MaxNS != nil && p.WasMaxNS != nil {
		p.MaxNS.Est, p.MaxNS.High = *p.WasMaxNS, *p.WasMaxNS
	}
	return true
}
