package finding

import (
	"iter"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// siteRoutes returns the routes of a candidate that have the cause of its heaviest route top, one for each site: top first, then
// those with at least threshold.NoticeableShare of the time of top's site, at most maxChangeSites. One line of the service may
// wait at several lines of a dependency, which is one fault.
func siteRoutes(cand *candidate, top *causeRoute) []*causeRoute {
	type siteSum struct {
		route *causeRoute
		ns    int64
	}
	sums := []siteSum{{route: top}}
	for p := range each(cand.routes) {
		if p.Cause.Cause == top.Cause.Cause && p.Site != nil {
			entry.FindOrAppend(&sums, func(o siteSum) bool { return o.route.Site.Equal(p.Site) }, siteSum{route: p}).ns += p.routeNS
		}
	}
	out := []*causeRoute{top}
	for _, sum := range sums[1:] {
		if len(out) < maxChangeSites && float64(sum.ns) >= threshold.NoticeableShare*float64(sums[0].ns) {
			out = append(out, sum.route)
		}
	}
	return out
}

// otherSiteEvidence returns, for each site of siteRoutes except top's, the mean time of the requests that wait there.
func otherSiteEvidence(cand *candidate, top *causeRoute) (out []report.Evidence) {
	for _, p := range siteRoutes(cand, top)[1:] {
		if p.Requests > 0 {
			out = append(out, evidenceOf("evidence also-at", float64(p.TotalNS)/float64(p.Requests), "ns", "activity", activityAt(p.Cause, nil)))
		}
	}
	return out
}

// withoutAllSites returns the changes that remove the sleeps of a candidate at each of their sites (siteRoutes).
func withoutAllSites(attr *attribution, cand *candidate) []predict.Change {
	return attr.withoutSites(slices.Values(siteRoutes(cand, cand.heaviestRoute(report.CauseSleep))))
}

// withoutSites returns the changes of withoutSite for each of the routes, each change once and at most maxChangeSites.
func (a *attribution) withoutSites(routes iter.Seq[*causeRoute]) []predict.Change {
	out := []predict.Change{}
	for p := range routes {
		for _, change := range a.withoutSite(p) {
			if !slices.Contains(out, change) && len(out) < maxChangeSites {
				out = append(out, change)
			}
		}
	}
	return out
}

// withoutSite returns the change that a prediction assumes for a route: no time of its cause at the site that the finding names.
// That is the holder's site if the route leads through a lock, and the cause's own line if no other line waits there. It is empty
// if no site is known.
func (a *attribution) withoutSite(route *causeRoute) []predict.Change {
	site := route.nonStdSite()
	if slices.ContainsFunc(route.via, func(v report.Via) bool { return isLockWait(waitKeyOf(&v)) && v.Site.Equal(site) }) {
		site = route.Site // the holder's work is not that of the line that waits
	}
	if site != route.Site && a.isOnlyLine(route.Cause) {
		site = route.Site.LineKey().Site() // its waits may be behind others that are not known
	}
	if site == nil {
		return []predict.Change{}
	}
	return []predict.Change{predict.Remove(route.Cause.Cause, predict.SiteText(site, route.Cause.Cause))}
}

// isOnlyLine reports whether only one route leads to a cause and one line of the service has nearly all of the group's time of
// that cause at its site.
func (a *attribution) isOnlyLine(c *report.Cause) bool {
	var lineNS, allNS int64
	for o := range each(a.group.All().Causes) {
		if o.Cause != c.Cause || o.Site == nil || o.Site.LineKey() != c.Site.LineKey() {
			continue
		}
		if allNS += o.TotalNS; o.Site.Equal(c.Site) {
			lineNS += o.TotalNS
		}
	}
	return len(c.AllRoutes()) == 1 && float64(lineNS) >= threshold.NearlyAllShare*float64(allNS)
}
