package verify

import (
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/judge/compare"
	"github.com/whylate/whylate/report"
)

// populationOf returns the requests by which a promise is judged: those of the finding's group, or, if requests moved between groups
// or the group is gone, all requests of the server. It returns nil if there are none in both reports.
func populationOf(f *report.Finding, name string, before *report.Report, diff *compare.Diff) *compare.Group {
	if i := slices.IndexFunc(diff.Groups, func(g compare.Group) bool { return g.ID == f.Group || g.Name == name }); i >= 0 && !diff.Groups[i].Moved {
		return &diff.Groups[i]
	}
	if g := before.Group(f.Group); g != nil {
		if i := slices.IndexFunc(diff.Servers, func(s compare.Group) bool { return s.Kind == g.Kind }); i >= 0 {
			return &diff.Servers[i]
		}
	}
	return nil
}

// An attribution is the time that requests spent on a finding's cause at its site, before and after, in ns per request.
type attribution struct {
	wasNS, isNS int64
	// share and tailShare are the shares of their time that all requests, and the slowest of the finding's group, spent on it before.
	share, tailShare float64
	// isShown says that the first report has this time. Without it, nothing can be attributed to the finding.
	isShown bool
	// isUntouched says that the wait itself is as long as before on the chains of waits that both reports have: other requests
	// no longer wait for it, because of another change.
	isUntouched bool
}

const (
	// leastRemoved is the smallest part of a wait that has to be gone for a change to be attributed to it.
	leastRemoved = 0.2
	// leastDirect is the smallest part of a wait on chains that remain by which these chains show whether it changed.
	leastDirect = 0.1
)

// attribute returns the time of a finding's own wait in a population before and after; the zero value without a population.
func attribute(f *report.Finding, population *compare.Group, before, after *report.Report) attribution {
	var a attribution
	if population == nil {
		return a
	}
	oldWaits, newWaits := waitsOf(f, population, before), waitsOf(f, population, after)
	a.wasNS, a.isNS = oldWaits.perRequest(), newWaits.perRequest()
	a.isShown = oldWaits.ns > 0
	a.share = oldWaits.share()
	a.tailShare = a.share
	if g := before.Group(f.Group); g != nil {
		tail := ownWaits{}
		tail.addBand(f, g.Tail())
		a.tailShare = max(a.share, tail.share())
	}
	if f.Queue == nil {
		var direct, remaining float64
		for chain, ns := range oldWaits.byChain {
			if newWaits.byChain[chain] > 0 {
				direct += float64(ns) / float64(max(oldWaits.requests, 1))
				remaining += float64(newWaits.byChain[chain]) / float64(max(newWaits.requests, 1))
			}
		}
		a.isUntouched = direct >= leastDirect*float64(a.wasNS) && direct < float64(a.wasNS) && remaining > (1-leastRemoved)*direct
	}
	return a
}

// wentAway reports whether the wait became shorter.
func (a *attribution) wentAway() bool {
	return !a.isUntouched && float64(a.isNS) < (1-leastRemoved)*float64(a.wasNS)
}

// partOf returns the part of a change of a percentile (ns, of metric such as "p99") that the wait explains: what requests near it lost of the wait.
// wasNS is the percentile before. A change for the worse is returned unchanged.
func (a *attribution) partOf(ns *int64, metric string, wasNS *int64) *int64 {
	if ns == nil || *ns >= 0 || wasNS == nil || !a.isShown {
		return ns
	}
	share := a.share
	if metric == "p99" {
		share = a.tailShare
	}
	removed := 0.0
	if a.wentAway() {
		removed = 1 - float64(a.isNS)/float64(a.wasNS)
	}
	return new(max(*ns, -int64(removed*share*float64(*wasNS))))
}

// ownWaits are the waits of a finding in the requests of one report.
type ownWaits struct {
	ns, totalNS, requests int64
	byChain               map[string]int64 // by the functions of the chain of waits
}

// waitsOf returns a finding's waits in the requests of a population in report r.
func waitsOf(f *report.Finding, population *compare.Group, r *report.Report) ownWaits {
	var w ownWaits
	for i := range r.Groups {
		g := &r.Groups[i]
		isMember := slices.ContainsFunc(population.Members, func(m compare.Member) bool { return g.Kind == population.Kind && m.Name == g.Name })
		if isMember || population.Members == nil && (g.ID == population.ID || g.Kind == population.Kind && g.Name == population.Name) {
			w.addBand(f, g.All())
		}
	}
	return w
}

func (w *ownWaits) perRequest() int64 { return w.ns / max(w.requests, 1) }

func (w *ownWaits) share() float64 { return float64(w.ns) / float64(max(w.totalNS, 1)) }

// addBand adds the requests of a band, their time, and the waits of the finding in them.
func (w *ownWaits) addBand(f *report.Finding, b *report.Band) {
	if w.byChain == nil {
		w.byChain = map[string]int64{}
	}
	w.requests += int64(b.Count)
	w.totalNS += b.TotalNS()
	for i := range b.Causes {
		for _, c := range b.Causes[i].Works() {
			w.addRow(f, &c)
		}
	}
}

// addRow adds the time of those routes of a row that belong to the finding.
func (w *ownWaits) addRow(f *report.Finding, c *report.Cause) {
	isOfCause := f.Cause == "" || c.In(f.Cause)
	for _, route := range c.AllRoutes() {
		isOfFinding := isOfCause && (f.Site == nil || isSameCode(f.Site, c.Site) || slices.ContainsFunc(route.Via, func(v report.Via) bool { return isSameCode(f.Site, v.Site) }))
		if f.Queue != nil {
			isOfFinding = slices.ContainsFunc(route.Via, func(v report.Via) bool { return isQueueWait(f.Queue, &v) })
		}
		if isOfFinding {
			w.ns += route.TotalNS
			w.byChain[chainOf(route.Via)] += route.TotalNS
		}
	}
}

// isSameCode reports whether two sites, of two builds, are of the same function or are called from the same one. A finding's site can be
// the caller of the function that a row has.
func isSameCode(a, b *report.Site) bool {
	if a == nil || b == nil {
		return a == b
	}
	if a.CalledFrom != nil && b.CalledFrom != nil {
		return a.OwnLine().Func == b.OwnLine().Func
	}
	return a.Func == b.Func || a.OwnLine().Func == b.OwnLine().Func
}

// isQueueWait reports whether a wait is one in the queue, perhaps of another build.
func isQueueWait(q *report.Queue, v *report.Via) bool {
	return slices.ContainsFunc(q.Waits, func(wait report.Via) bool {
		return v.Wait == wait.Wait && v.Call == wait.Call && v.Site.LineKey().Func == wait.Site.LineKey().Func
	})
}

// chainOf returns the kinds and functions of a wait chain as text, the key of ownWaits.byChain.
func chainOf(chain []report.Via) string {
	var names []string
	for i := range chain {
		names = append(names, string(chain[i].Wait)+" "+chain[i].Site.LineKey().Func)
	}
	return strings.Join(names, "\n")
}
