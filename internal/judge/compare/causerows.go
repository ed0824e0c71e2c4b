package compare

import (
	"cmp"
	"math"
	"slices"

	"github.com/whylate/whylate/report"
)

// rowPlace identifies a row in two builds. It contains no lines, which move with every edit, and no files, whose directories
// differ between checkouts.
type rowPlace struct {
	cause      report.CauseName
	kind, fn   string
	callerFunc string // the service's own function that called fn
}

// placeOf returns what identifies a row in both reports. callers says whether both reports have the callers of dependencies; then the caller is part
// of it.
func placeOf(c *report.Cause, callers bool) rowPlace {
	p := rowPlace{cause: c.Cause, kind: c.Kind, fn: c.Site.LineKey().Func}
	if c.Cause == report.CauseQueue {
		p.kind = "" // it may count the slots
	}
	if callers {
		p.callerFunc = c.Site.Key().From.Func
	}
	return p
}

// hasCallers reports whether some row has the caller of a dependency: rows of reports of earlier versions do not.
func hasCallers(b *report.Band) bool {
	return slices.ContainsFunc(b.Causes, func(c report.Cause) bool { return c.Site != nil && c.Site.CalledFrom != nil })
}

// lineOf returns the line of a cause's site, 0 without a site.
func lineOf(c *report.Cause) int {
	if c.Site == nil {
		return 0
	}
	return c.Site.Line
}

// compareRows pairs the rows of two bands and returns them, the largest change first. Rows correspond if they have the same
// cause and function. If a function has several rows, those on the same line are paired first, then those on the nearest
// lines; of equal distances, the smaller lines are paired first. The result does not depend on which side is old.
func compareRows(old, new *report.Band) []Row {
	byPlace := map[rowPlace][2][]*report.Cause{}
	var order []rowPlace
	callers := hasCallers(old) && hasCallers(new)
	for side, band := range []*report.Band{old, new} {
		for i := range band.Causes {
			c := &band.Causes[i]
			p := placeOf(c, callers)
			lists, ok := byPlace[p]
			if !ok {
				order = append(order, p)
			}
			lists[side] = append(lists[side], c)
			byPlace[p] = lists
		}
	}
	var rows []Row
	for _, p := range order {
		lists := byPlace[p]
		for _, pair := range pairByLine(lists[0], lists[1]) {
			rows = append(rows, newRow(pair[0], pair[1], old.Count, new.Count))
		}
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(abs(b.DeltaNS), abs(a.DeltaNS)), cmp.Compare(max(b.OldNS, b.NewNS), max(a.OldNS, a.NewNS)),
			cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Kind, b.Kind), a.Site().Compare(b.Site()))
	})
	return rows
}

func abs(n int64) int64 { return max(n, -n) }

// pairByLine pairs each row of one list with at most one of the other; a row without a partner is paired with nil.
func pairByLine(old, new []*report.Cause) [][2]*report.Cause {
	type candidate struct{ i, j, distance, low, high int }
	var all []candidate
	for i, a := range old {
		for j, b := range new {
			la, lb := lineOf(a), lineOf(b)
			all = append(all, candidate{i, j, max(la-lb, lb-la), min(la, lb), max(la, lb)})
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.low, b.low), cmp.Compare(a.high, b.high))
	})
	usedOld, usedNew := make([]bool, len(old)), make([]bool, len(new))
	var pairs [][2]*report.Cause
	for _, c := range all {
		if !usedOld[c.i] && !usedNew[c.j] {
			usedOld[c.i], usedNew[c.j] = true, true
			pairs = append(pairs, [2]*report.Cause{old[c.i], new[c.j]})
		}
	}
	for i, a := range old {
		if !usedOld[i] {
			pairs = append(pairs, [2]*report.Cause{a, nil})
		}
	}
	for j, b := range new {
		if !usedNew[j] {
			pairs = append(pairs, [2]*report.Cause{nil, b})
		}
	}
	return pairs
}

// newRow returns the row that compares a cause of both reports, of which one may be nil, in ns per request. The counts are the
// numbers of requests. The wait chain is that of the report with more time.
func newRow(a, b *report.Cause, oldCount, newCount int) Row {
	r := Row{OldNS: perRequest(a, oldCount), NewNS: perRequest(b, newCount)}
	r.DeltaNS = r.NewNS - r.OldNS
	if a != nil {
		r.Cause, r.Kind, r.OldSite, r.Via, r.AheadWork = a.Cause, a.Kind, a.Site, a.Via, a.AheadWork
	}
	if b != nil {
		r.Cause, r.Kind, r.NewSite = b.Cause, b.Kind, b.Site
		if a == nil || r.NewNS >= r.OldNS {
			r.Via, r.AheadWork = b.Via, b.AheadWork
		}
	}
	if r.Via == nil {
		r.Via = []report.Via{}
	}
	return r
}

// perRequest returns the time of a cause in ns for each of count requests; 0 for nil.
func perRequest(c *report.Cause, count int) int64 {
	if c == nil || count <= 0 {
		return 0
	}
	return int64(math.Round(float64(c.TotalNS) / float64(count)))
}
