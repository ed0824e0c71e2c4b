package finding

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/report"
)

// siteCauses returns the distinct places of a claim with the same cause as its heaviest part, that one first: where one line of the
// service's own waits at several lines of a dependency, they are one fault.
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
		if float64(ns[k]) >= scale.Some*float64(ns[0]) {
			out = append(out, list[k])
		}
	}
	return out
}

// otherSiteEvidence says at which further places a claim's time is spent, and how much of it each request.
func otherSiteEvidence(cand *candidate, top *causeRoute) []report.Evidence {
	var out []report.Evidence
	for _, p := range siteCauses(cand, top)[1:] {
		if p.Requests > 0 {
			out = append(out, measurement("mean per request that also "+activityAt(p, nil), float64(p.TotalNS)/float64(p.Requests), "ns"))
		}
	}
	return out
}

// halfAtAllSites is the change that a prediction assumes where a claim has several places: half at each, at once.
func halfAtAllSites(attr *attribution, cand *candidate) []predict.Change {
	out := []predict.Change{}
	for _, p := range siteCauses(cand, cand.heaviestRoute(report.CauseSleep)) {
		out = append(out, attr.halfAtSite(p)...)
	}
	return out
}

// halfAtSite is the change that a prediction assumes for a cause whose finding may be at another site: the user's line rather than the
// library's. Of a library's line on a goroutine of its own a prediction does not know which line it waited for: where several lines of
// the service wait for it, half of one line's part is taken from all.
func (a *attribution) halfAtSite(c *report.Cause) []predict.Change {
	if c.Site == nil {
		return []predict.Change{}
	}
	change := predict.Halve(c.Cause, predict.SiteText(c.Site, c.Cause))
	change.Scale = 1 - change.Scale*a.lineShare(c)
	return []predict.Change{change}
}

// lineShare returns which part of the time at a cause's line belongs to the cause's own line of the service, of the time to which
// waits led.
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
	if lineNS == 0 || float64(lineNS) >= scale.NearlyAll*float64(allNS) {
		return 1
	}
	return float64(lineNS) / float64(allNS)
}
