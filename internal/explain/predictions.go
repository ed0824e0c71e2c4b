package explain

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/explain/finding"
	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/report"
)

// ErrWhatIf and ErrRefused are those of package whylate.
var (
	ErrWhatIf  = errors.New("no such change")
	ErrRefused = errors.New("not answered")
)

// predictChanges predicts the gain of all changes together.
func predictChanges(changes []predict.Change, groups []report.Group, model *predict.Model) ([]report.WhatIf, error) {
	if len(changes) == 0 {
		return nil, nil
	}
	changes = slices.Clone(changes)
	var notes []string
	for i := range changes {
		note, err := model.Validate(&changes[i])
		if refusal := (*predict.Refusal)(nil); errors.As(err, &refusal) {
			return nil, &refusalError{refusal}
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrWhatIf, err)
		}
		if note != "" {
			notes = append(notes, note)
		}
	}
	out := []report.WhatIf{}
	for i := range groups {
		g := &groups[i]
		if p := model.WhatIf(g.ID, changes); p != nil {
			out = append(out, report.WhatIf{
				Group: g.ID, Name: g.Name, Requests: g.Count, Predicted: *p, Note: strings.Join(notes, "; "),
			})
		}
	}
	return out, nil
}

// refusalError is a predict.Refusal as an error of this package.
type refusalError struct{ *predict.Refusal }

// Is implements the interface of errors.Is.
func (*refusalError) Is(target error) bool { return target == ErrWhatIf || target == ErrRefused }

// processFacts returns the facts about the process for the model. start is that of the trace.
func processFacts(rep *report.Report, stats *process.Stats, start int64) *predict.Facts {
	gc, rt := &stats.GC, &rep.Runtime
	f := &predict.Facts{
		SpanNS: stats.SpanNS, Procs: stats.Procs, BusyNS: stats.BusyNS,
		Cycles: gc.Cycles, ForcedCycles: gc.Forced, Measured: gc.MeasuredCycles, LiveBytes: gc.LiveBytes, GoalBytes: gc.GoalBytes,
		FullCycles: gc.FullCycles, FullBytes: gc.FullBytes, AllocatedBytes: gc.AllocatedBytes,
		MarkNS: gc.MarkNS, CollectorNS: gc.DedicatedNS + gc.FractionalNS, IdleMarkNS: gc.IdleNS, GCStopShare: 1,
		Throttled: rt.Throttle.Verdict.HeldBack(), FrozenNS: rt.Throttle.LostWallNS, FrozenCPUs: rt.Throttle.CPUs,
		MaybeThrottled: rt.Throttle.Suspect > 0,
	}
	var collectorNS, all float64
	for i := range rep.Groups {
		g := &rep.Groups[i]
		allBand := g.Band(report.BandAll)
		if allBand == nil {
			continue
		}
		all += float64(g.TotalNS)
		for k := range allBand.Causes {
			switch rowCause := &allBand.Causes[k]; rowCause.Cause {
			case report.CauseGCAssist:
				f.AssistNS += rowCause.TotalNS
				collectorNS += float64(rowCause.TotalNS)
			case report.CauseGCWait, report.CauseSTW, report.CauseOther:
				collectorNS += float64(rowCause.TotalNS)
			case report.CauseSched: // the collector marked during the wait
				for _, r := range rowCause.RanMeanwhile {
					if r.Site != nil && knowledge.Has(r.Site.Func, knowledge.GCMark) {
						collectorNS += r.Share * float64(rowCause.TotalNS)
					}
				}
			}
		}
	}
	if all > 0 {
		f.GCShare = collectorNS / all
	}
	var stopped, collecting int64
	for _, s := range rt.STW {
		stopped += s.TotalNS
		if strings.HasPrefix(s.Kind, "GC ") {
			collecting += s.TotalNS
		}
	}
	if stopped > 0 {
		f.GCStopShare = float64(collecting) / float64(stopped)
	}
	if s := rt.Series; s != nil {
		for _, m := range s.GC {
			f.MarkPhases = append(f.MarkPhases, [2]int64{m[0] + start, m[1]})
		}
		f.MarksComplete = len(s.GC) >= gc.Cycles
		f.BusyPs, f.StepNS = s.Running, s.StepNS
		for _, p := range s.Runnable {
			f.MeanReady += float64(p[1]) / 1000 / float64(len(s.Runnable))
		}
	}
	if h := rep.Host; h != nil {
		if f.CPUs = float64(h.Facts.Parallelism); f.CPUs == 0 {
			f.CPUs = float64(h.Facts.CPUs)
		}
		f.QuotaCPUs = h.Facts.QuotaCPUs
	}
	return f
}

// addPredictionFacts adds to a model what sums show of pools and calls.
func addPredictionFacts(model *predict.Model, in *finding.Input) {
	for i := range in.SlotWaits {
		if s := &in.SlotWaits[i]; s.Slots > 0 && s.FormerWaiterShare >= threshold.HalfShare {
			model.AddPool(predict.Pool{Site: s.Site, Slots: s.Slots, HoldNS: s.HoldNS})
		}
	}
	calls := map[string][]predict.CallSum{}
	for id, list := range in.PeerCalls {
		for i := range list {
			c := &list[i]
			if c.Requests == 0 || c.AnswerNS == 0 {
				continue
			}
			sum := predict.CallSum{
				Site: c.Site, Via: c.Via, PerRequest: float64(c.Calls) / float64(c.Requests),
				LongestShare: float64(c.LongestNS) / float64(c.AnswerNS), SiteShare: 1,
			}
			if c.Via != nil { // the reader of a shared connection waits for the calls of all lines
				sum.SiteShare = callerShare(in.Report.Group(id), c.Site)
			}
			calls[id] = append(calls[id], sum)
		}
	}
	model.SetCalls(calls)
}

// callerShare returns the share of a calling line in a group's network waits at a site.
func callerShare(g *report.Group, s *report.Site) float64 {
	var line, all float64
	if g == nil || s == nil {
		return 1
	}
	for i := range g.All().Causes {
		if c := &g.All().Causes[i]; c.Cause == report.CauseNetwork && c.Site != nil && c.Site.LineKey() == s.LineKey() {
			if all += c.Share; c.Site.Matches(s) {
				line += c.Share
			}
		}
	}
	if line == 0 {
		return 1
	}
	return line / all
}

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
func searchGoals(goals []Goal, rep *report.Report, model *predict.Model) []report.Goal {
	if len(goals) == 0 {
		return nil
	}
	all := []report.Goal{}
	for _, goal := range goals {
		for i := range rep.Groups {
			g := &rep.Groups[i]
			out := report.Goal{Group: g.ID, Name: g.Name, Percentile: goal.Percentile, MostNS: int64(goal.Limit), IsNS: g.LatencyNS.P99}
			if goal.Percentile == "p50" {
				out.IsNS = g.LatencyNS.P50
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

// adviceFor returns the changes that findings of a group advise, one list for each finding.
func adviceFor(g *report.Group, findings []report.Finding) [][]predict.Change {
	var out [][]predict.Change
	for i := range findings {
		f := &findings[i]
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

// findChanges returns the prediction for the fewest changes that meet a goal in a group, and their number. What findings advise
// is tried first, then the removal of causes at sites; if removing half of each is enough, the prediction is for that. Of sets of
// equal size it chooses the one that gains most. reached is false if no set meets the goal; then the result is the one nearest to
// it.
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
		half := slices.Clone(slices.Concat(chosen...))
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
