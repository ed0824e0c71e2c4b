package finding

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/report"
)

// places returns the distinct places of a claim with the same cause as its heaviest part, that one first: where one line of the
// service's own waits at several lines of a dependency, they are one fault.
func places(cand *candidate, top *causeRoute) []*report.Cause {
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

// together says at which further places a claim's time is spent, and how much of it each request.
func together(cand *candidate, top *causeRoute) []report.Evidence {
	var out []report.Evidence
	for _, p := range places(cand, top)[1:] {
		if p.Requests > 0 {
			out = append(out, measured("mean per request that also "+doing(p, nil), float64(p.TotalNS)/float64(p.Requests), "ns"))
		}
	}
	return out
}

// halfOfAll is the change that a prediction assumes where a claim has several places: half at each, at once.
func halfOfAll(attr *attribution, cand *candidate) []predict.Change {
	out := []predict.Change{}
	for _, p := range places(cand, cand.heaviestRoute(report.CauseSleep)) {
		out = append(out, attr.halfOf(p)...)
	}
	return out
}

// halfOf is the change that a prediction assumes for a cause whose finding may be at another site: the user's line rather than the
// library's. Of a library's line on a goroutine of its own a prediction does not know which line it waited for: where several lines of
// the service wait for it, half of one line's part is taken from all.
func (a *attribution) halfOf(c *report.Cause) []predict.Change {
	if c.Site == nil {
		return []predict.Change{}
	}
	change := predict.Half(c.Cause, predict.SiteText(c.Site, c.Cause))
	change.Scale = 1 - change.Scale*a.partOfLine(c)
	return []predict.Change{change}
}

// partOfLine returns which part of the time at a cause's line belongs to the cause's own line of the service, of the time to which
// waits led.
func (a *attribution) partOfLine(c *report.Cause) float64 {
	waitedFor := func(s *report.Site) bool { return s != nil && (s.CalledFrom == nil || s.CalledFrom.Calls == "") }
	if !waitedFor(c.Site) || c.Site.CalledFrom == nil {
		return 1
	}
	var mine, all int64
	for i := range a.group.All().Causes {
		o := &a.group.All().Causes[i]
		if o.Cause != c.Cause || !waitedFor(o.Site) || o.Site.LineKey() != c.Site.LineKey() {
			continue
		}
		if all += o.TotalNS; o.Site.Equal(c.Site) {
			mine += o.TotalNS
		}
	}
	if mine == 0 || float64(mine) >= scale.NearlyAll*float64(all) {
		return 1
	}
	return float64(mine) / float64(all)
}
