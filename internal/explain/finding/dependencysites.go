package finding

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// siteCauses returns the causes of a candidate that have the cause of its heaviest route, one for each site, that of
// the route first. If one line of the service waits at several lines of a dependency, they are one fault.
func siteCauses(cand *candidate, top *causeRoute) []*report.Cause {
	list, ns := []*report.Cause{top.Cause}, []int64{0}
	for i := range cand.routes {
		p := &cand.routes[i]
		if p.Cause.Cause != top.Cause.Cause || p.Site == nil {
			continue
		}
		k := slices.IndexFunc(list, func(o *report.Cause) bool { return o.Site.Equal(p.Site) })
		if k < 0 {
			k, list, ns = len(list), append(list, p.Cause), append(ns, 0)
		}
		ns[k] += p.routeNS
	}
	out := list[:1]
	for k := 1; k < len(list) && len(out) < maxChangeSites; k++ {
		if float64(ns[k]) >= threshold.NoticeableShare*float64(ns[0]) {
			out = append(out, list[k])
		}
	}
	return out
}

// otherSiteEvidence returns the mean time at each further site of a candidate.
func otherSiteEvidence(cand *candidate, top *causeRoute) []report.Evidence {
	var out []report.Evidence
	for _, p := range siteCauses(cand, top)[1:] {
		if p.Requests > 0 {
			out = append(out, evidenceOf("evidence also-at", float64(p.TotalNS)/float64(p.Requests), "ns", "activity", activityAt(p, nil)))
		}
	}
	return out
}

// withoutAllSites returns the change that a prediction assumes for a candidate with several sites: no time at any.
func withoutAllSites(attr *attribution, cand *candidate) []predict.Change {
	out := []predict.Change{}
	for _, p := range siteCauses(cand, cand.heaviestRoute(report.CauseSleep)) {
		out = append(out, attr.withoutSite(p)...)
	}
	return out
}

// withoutSite returns the change that a prediction assumes for a cause whose finding may name another site: the line of
// the service instead of that of the library. If a library waits on another goroutine, a prediction cannot separate
// the lines of the service that wait for it. Then one line's share is subtracted from the time of all lines.
func (a *attribution) withoutSite(c *report.Cause) []predict.Change {
	if c.Site == nil {
		return []predict.Change{}
	}
	change := predict.Remove(c.Cause, predict.SiteText(c.Site, c.Cause))
	change.Scale = 1 - a.lineShare(c)
	return []predict.Change{change}
}

// lineShare returns the share of a cause's line of the service in the time at the cause's site, considering only time
// that other goroutines wait for.
func (a *attribution) lineShare(c *report.Cause) float64 {
	isWaitedFor := func(s *report.Site) bool { return s != nil && (s.CalledFrom == nil || s.CalledFrom.Calls == "") }
	if !isWaitedFor(c.Site) || c.Site.CalledFrom == nil {
		return 1
	}
	var lineNS, allNS int64
	for i := range a.group.All().Causes {
		o := &a.group.All().Causes[i]
		if o.Cause != c.Cause || !isWaitedFor(o.Site) || o.Site.LineKey() != c.Site.LineKey() {
			continue
		}
		if allNS += o.TotalNS; o.Site.Equal(c.Site) {
			lineNS += o.TotalNS
		}
	}
	if lineNS == 0 || float64(lineNS) >= threshold.NearlyAllShare*float64(allNS) {
		return 1
	}
	return float64(lineNS) / float64(allNS)
}
