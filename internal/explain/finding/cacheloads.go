package finding

import (
	"math"

	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// rewriteForCacheLoads rewrites a verdict on calls that load what a cache does not hold, if at least half of all requests make them. It
// returns false, and changes nothing, for others. A request that the cache answers does not wait, so nothing may show its handler: requests
// without a name count as answered.
func (w *peerWait) rewriteForCacheLoads(v *Verdict) bool {
	top, all := &w.cand.routes[0], w.group.Count
	for g := range each(w.in.Report.Groups) {
		if g.ID != w.group.ID && !g.Named && g.Kind == w.group.Kind {
			all += g.Count
		}
	}
	loads := int(math.Round(float64(top.Requests) * float64(w.calls.CacheLoads) / float64(max(1, w.calls.Requests))))
	share := float64(loads) / float64(all)
	if loads < threshold.MedianSample || share < threshold.HalfShare {
		return false
	}
	v.Title = textOf("title cache-loads", "share", words.Percent(share), "site", v.Site)
	v.Fix = textOf("fix cache-loads", "cache", w.calls.Cache.OwnLine(), "share", words.Percent(share))
	v.prependEvidence(evidenceOf("evidence cache-loads", loads, "count", "n", all))
	v.Gain, v.InService, v.MaxSeverity = w.cand.gain, true, report.SeverityMedium // how often requests ask for the same is unknown
	w.predictAs(v, "phrase change-cached")
	if p := v.Predicted; p != nil && p.WasP99NS != nil { // a few requests still load
		p.P99NS.Est, p.P99NS.High = *p.WasP99NS, *p.WasP99NS
	}
	if p := v.Predicted; p != nil && p.MaxNS != nil && p.WasMaxNS != nil {
		p.MaxNS.Est, p.MaxNS.High = *p.WasMaxNS, *p.WasMaxNS
	}
	return true
}
