package compare

import (
	"math"
	"slices"

	"github.com/whylate/whylate/report"
)

// setRowIntervals sets the intervals of rows.
//
// The blocks of a report have causes but no sites. So the time of a site is assumed to vary as the time of its cause does and,
// in addition, as the number of requests that have the site varies by chance (binomial). For a row that every request has, the
// latter is 0; for a row of a single request it is as large as the row, so that one rare wait is never evidence.
//
// Computing between two events is divided among lines by samples, so it moves between rows of equal services. A row of it is evidence only
// if all computing changed in the same direction, by at least half as much.
//
// minChange is the smallest change, in ns per request, of a row with an interval. The bounds of these rows hold together
// (Bonferroni).
func (p *sidePair) setRowIntervals(rows []Row, oldBand, newBand *report.Band, alpha, minChange float64) {
	examined := 0
	var computing int64 // change of all rows
	for i := range rows {
		if rows[i].Cause == report.CauseCPU {
			computing += rows[i].DeltaNS
		}
		if math.Abs(float64(rows[i].DeltaNS)) > minChange {
			examined++
		}
	}
	factor := p.studentFactor(alpha / float64(max(examined, 1)))
	for i := range rows {
		r := &rows[i]
		if math.Abs(float64(r.DeltaNS)) <= minChange {
			continue
		}
		distance := factor * math.Hypot(p.old.rowError(r, r.OldSite, r.OldNS, oldBand), p.new.rowError(r, r.NewSite, r.NewNS, newBand))
		low, high := float64(r.DeltaNS)-distance, float64(r.DeltaNS)+distance
		// If a list was capped, a missing row may be in its row "other".
		if r.OldNS == 0 {
			low -= maxHiddenTime(oldBand)
		}
		if r.NewNS == 0 {
			high += maxHiddenTime(newBand)
		}
		r.LowNS, r.HighNS = roundBound(low), roundBound(high)
		isMoved := r.Cause == report.CauseCPU && (2*abs(computing) < abs(r.DeltaNS) || (computing > 0) != (r.DeltaNS > 0))
		r.Evidence = (low > 0 || high < 0) && !isMoved
	}
}

// rowError returns the standard error of the time per request, ns, of a row on this side, where it has the given site and band; 0 if the time is 0.
func (s *side) rowError(r *Row, site *report.Site, ns int64, band *report.Band) float64 {
	if ns == 0 {
		return 0
	}
	spread := 0.0
	if found := band.Find(r.Cause, r.Kind, site); found != nil && band.Count > 0 {
		hit := float64(max(found.Requests, 1))
		spread = max(0, 1-hit/float64(band.Count)) / hit
	}
	total := 0.0
	for i := range s.blocks {
		total += float64(s.blocks[i].causes[r.Cause])
	}
	if total > 0 { // blocks do not have the row "other"
		variance := s.variance(1, func(b *sideBlock) float64 { return float64(b.causes[r.Cause]) - total/s.n*b.count })
		spread += variance * s.n / (total * total)
	}
	return float64(ns) * math.Sqrt(spread)
}

// maxHiddenTime returns the largest time, in ns per request, that a row can have that the band's list of causes leaves out; 0 if the list is
// complete.
func maxHiddenTime(b *report.Band) float64 {
	capped := slices.ContainsFunc(b.Causes, func(c report.Cause) bool { return c.Cause == report.CauseOther })
	if !capped || b.Count == 0 {
		return 0
	}
	smallest, otherNS := int64(math.MaxInt64), int64(0)
	for i := range b.Causes {
		if b.Causes[i].Cause == report.CauseOther {
			otherNS = b.Causes[i].TotalNS
		} else {
			smallest = min(smallest, b.Causes[i].TotalNS)
		}
	}
	return float64(min(smallest, otherNS)) / float64(b.Count)
}
