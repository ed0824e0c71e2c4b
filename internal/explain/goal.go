package explain

import (
	"cmp"
	"slices"
	"time"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/report"
)

// A Goal is a limit for a percentile of latency: p50 or p99, the ones that can be predicted.
type Goal struct {
	Percentile string
	Limit      time.Duration
}

// Limits of the search for changes. It tries all sets of at most maxGoalChanges of the causes that take most of the
// slow requests' time: at most 92 predictions for a group.
const (
	maxGoalCauses  = 8
	maxGoalChanges = 3
)

// searchGoals returns for each group whether it meets the goals, and if not, the fewest changes predicted to meet them.
func searchGoals(goals []Goal, groups []report.Group, model *predict.Model) []report.Goal {
	if len(goals) == 0 {
		return nil
	}
	all := []report.Goal{}
	for _, goal := range goals {
		for i := range groups {
			g := &groups[i]
			out := report.Goal{Group: g.ID, Name: g.Name, Percentile: goal.Percentile, MostNS: int64(goal.Limit), IsNS: g.LatencyNS.P99}
			if goal.Percentile == "p50" {
				out.IsNS = g.LatencyNS.P50
			}
			switch {
			case out.IsNS == nil: // too few requests
			case *out.IsNS <= out.MostNS:
				out.Kept = true
			default:
				out.Predicted, out.Changes, out.Reached = findChanges(g, goal, model)
			}
			all = append(all, out)
		}
	}
	return all
}

// findChanges returns the prediction for the fewest changes that meet a goal in a group, and their number. Of sets of
// equal size it chooses the one that gains most. A change removes a cause at a site; if removing half of each is
// enough, the prediction is for that. reached is false if no set meets the goal; then the result is the one nearest to
// it.
func findChanges(g *report.Group, goal Goal, model *predict.Model) (best *report.Predicted, n int, reached bool) {
	candidates := goalCandidates(g)
	predictedNS := func(p *report.Predicted) int64 {
		if goal.Percentile == "p50" {
			return p.P50NS.Est
		}
		return p.P99NS.Est
	}
	var chosen []predict.Change
	for size := 1; size <= min(maxGoalChanges, len(candidates)) && !reached; size++ {
		for _, set := range subsets(len(candidates), size) {
			changes := make([]predict.Change, size)
			for i, k := range set {
				changes[i] = candidates[k]
			}
			p := model.WhatIf(g.ID, changes)
			if p != nil && (best == nil || predictedNS(p) < predictedNS(best)) {
				best, chosen = p, changes
			}
		}
		reached = best != nil && predictedNS(best) <= int64(goal.Limit)
	}
	if reached {
		half := slices.Clone(chosen)
		for i := range half {
			half[i].Scale = 0.5
		}
		if p := model.WhatIf(g.ID, half); p != nil && predictedNS(p) <= int64(goal.Limit) {
			best = p
		}
	}
	return best, len(chosen), reached
}

// goalCandidates returns the removals of the causes that take most of the time of a group's slow requests, then of all.
func goalCandidates(g *report.Group) []predict.Change {
	type weighed struct {
		change predict.Change
		ns     int64
	}
	var all []weighed
	for _, band := range []report.BandName{report.Band99, report.Band9099, report.BandAll} {
		causeBand := g.Band(band)
		if causeBand == nil {
			continue
		}
		for i := range causeBand.Causes {
			rowCause := &causeBand.Causes[i]
			if rowCause.Cause == report.CauseOther || rowCause.Cause == report.CauseUnknown ||
				rowCause.Site == nil && rowCause.Cause != report.CauseSched && rowCause.Cause != report.CauseThrottle {
				continue
			}
			site := ""
			if rowCause.Site != nil {
				site = predict.SiteText(rowCause.Site, rowCause.Cause)
			}
			change := predict.Remove(rowCause.Cause, site)
			if k := slices.IndexFunc(all, func(w weighed) bool { return w.change == change }); k >= 0 {
				all[k].ns += rowCause.TotalNS
			} else {
				all = append(all, weighed{change, rowCause.TotalNS})
			}
		}
	}
	slices.SortStableFunc(all, func(a, causeBand weighed) int { return cmp.Compare(causeBand.ns, a.ns) })
	var out []predict.Change
	for _, w := range all[:min(len(all), maxGoalCauses)] {
		out = append(out, w.change)
	}
	return out
}

// subsets returns all sets of k of the numbers below n, in lexical order.
func subsets(n, k int) (out [][]int) {
	set := make([]int, k)
	for i := range set {
		set[i] = i
	}
	for k <= n {
		out = append(out, slices.Clone(set))
		i := k - 1
		for ; i >= 0 && set[i] == n-k+i; i-- {
		}
		if i < 0 {
			break
		}
		for set[i]++; i < k-1; i++ {
			set[i+1] = set[i] + 1
		}
	}
	return out
}
