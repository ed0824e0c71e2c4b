package explain

import (
	"cmp"
	"slices"
	"time"

	"github.com/whylate/whylate/internal/explain/entry"
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

// searchGoals returns, goal by goal and for each group, whether the group meets the goal and, if it does not, the smallest set of
// changes that is predicted to meet it; if none does, Reached is false. For a group without that percentile only its limit is
// set, and IsNS is nil.
func searchGoals(goals []Goal, rep *report.Report, model *predict.Model) []report.Goal {
	if len(goals) == 0 {
		return nil
	}
	all := []report.Goal{}
	for _, goal := range goals {
		for g := range entry.Each(rep.Groups) {
			out := report.Goal{Group: g.ID, Name: g.Name, Percentile: goal.Percentile, MostNS: int64(goal.Limit), IsNS: g.SenderLatency().P99}
			if goal.Percentile == "p50" {
				out.IsNS = g.SenderLatency().P50
			}
			switch {
			case out.IsNS == nil: // too few requests
			case *out.IsNS <= out.MostNS:
				out.Kept = true
			default:
				out.Predicted, out.Changes, out.Reached = findChanges(g, goal, adviceFor(g, rep.Findings), model)
			}
			all = append(all, out)
		}
	}
	return all
}

// adviceFor returns the changes that the findings of a group advise, one list for each finding above info.
func adviceFor(g *report.Group, findings []report.Finding) (out [][]predict.Change) {
	for f := range entry.Each(findings) {
		if f.Group != g.ID || len(f.Changes) == 0 || f.Severity == report.SeverityInfo {
			continue
		}
		advice := make([]predict.Change, len(f.Changes))
		for k := range f.Changes {
			advice[k] = predict.ChangeOf(&f.Changes[k])
		}
		out = append(out, advice)
	}
	return out
}

// findChanges searches the fewest changes with which group g meets a goal. It tries sets of changes that findings advise, then
// sets of removals of causes at sites. Of sets of equal size it chooses the one that gains most; if removing only half of each
// is enough, the prediction is for that. n is the number of changes. If no set meets the goal, reached is false and the result
// is the nearest, nil if nothing could be predicted.
func findChanges(g *report.Group, goal Goal, advice [][]predict.Change, model *predict.Model) (best *report.Predicted, n int, reached bool) {
	predictedNS := func(p *report.Predicted) int64 {
		if goal.Percentile == "p50" {
			return p.P50NS.Est
		}
		return p.P99NS.Est
	}
	var chosen [][]predict.Change
	search := func(candidates [][]predict.Change) {
		for size := 1; size <= min(maxGoalChanges, len(candidates)) && !reached; size++ {
			for _, set := range subsets(0, len(candidates), size) {
				lists := make([][]predict.Change, size)
				for i, k := range set {
					lists[i] = candidates[k]
				}
				p := model.WhatIf(g.ID, slices.Concat(lists...))
				if p != nil && (best == nil || predictedNS(p) < predictedNS(best)) {
					best, chosen = p, lists
				}
			}
			reached = best != nil && predictedNS(best) <= int64(goal.Limit)
		}
	}
	if search(advice[:min(len(advice), maxGoalCauses)]); reached {
		return best, len(chosen), reached
	}
	var removals [][]predict.Change
	for _, c := range goalCandidates(g) {
		removals = append(removals, []predict.Change{c})
	}
	if search(removals); reached {
		half := slices.Concat(chosen...)
		for i := range half {
			half[i].Scale = 0.5
		}
		if p := model.WhatIf(g.ID, half); p != nil && predictedNS(p) <= int64(goal.Limit) {
			best = p
		}
	}
	return best, len(chosen), reached
}

// goalCandidates returns up to maxGoalCauses removals of causes at sites: those with most time of the group's slow requests,
// where each band counts.
func goalCandidates(g *report.Group) (out []predict.Change) {
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
		for rowCause := range entry.Each(causeBand.Causes) {
			if rowCause.Cause == report.CauseOther || rowCause.Cause == report.CauseUnknown ||
				rowCause.Site == nil && rowCause.Cause != report.CauseSched && rowCause.Cause != report.CauseThrottle {
				continue
			}
			site := ""
			if rowCause.Site != nil {
				site = predict.SiteText(rowCause.Site, rowCause.Cause)
			}
			change := predict.Remove(rowCause.Cause, site)
			entry.FindOrAppend(&all, func(w weighed) bool { return w.change == change }, weighed{change: change}).ns += rowCause.TotalNS
		}
	}
	slices.SortStableFunc(all, func(a, b weighed) int { return cmp.Compare(b.ns, a.ns) })
	for _, w := range all[:min(len(all), maxGoalCauses)] {
		out = append(out, w.change)
	}
	return out
}

// subsets returns all sets of k of the numbers from first up to n, in lexical order.
func subsets(first, n, k int) (out [][]int) {
	if k == 0 {
		return [][]int{nil}
	}
	for i := first; i < n; i++ {
		for _, rest := range subsets(i+1, n, k-1) {
			out = append(out, append([]int{i}, rest...))
		}
	}
	return out
}
