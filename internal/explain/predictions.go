package explain

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/finding"
	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/report"
)

// ErrWhatIf and ErrRefused are those of package whylate.
var (
	ErrWhatIf  = errors.New("no such change")
	ErrRefused = errors.New("not answered")
)

// predictChanges predicts, for each group, the gain of all changes together. The error is an ErrWhatIf if a change is not
// possible, and an ErrRefused as well if the model refuses to answer.
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
	for g := range entry.Each(groups) {
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

// processFacts returns the facts about the process that predictions of settings need: Ps, collector, throttling, CPUs. start is
// when the trace starts, on its own clock.
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
	for g := range entry.Each(rep.Groups) {
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
		f.CPUs = cmp.Or(float64(h.Facts.Parallelism), float64(h.Facts.CPUs))
		f.QuotaCPUs = h.Facts.QuotaCPUs
	}
	return f
}

// addPredictionFacts adds to a model the pools whose size is known, and how often requests call a peer at each line.
func addPredictionFacts(model *predict.Model, in *finding.Input) {
	for i := range in.SlotWaits {
		if s := &in.SlotWaits[i]; s.Slots > 0 && s.FormerWaiterShare >= threshold.HalfShare {
			model.AddPool(predict.Pool{Site: s.Site, Slots: s.Slots, HoldNS: s.HoldNS})
		}
	}
	calls := map[string][]predict.CallSum{}
	for id, list := range in.PeerCalls {
		for c := range entry.Each(list) {
			if c.Requests == 0 || c.AnswerNS == 0 {
				continue
			}
			sum := predict.CallSum{
				Site: c.Site, Via: c.Via, PerRequest: float64(c.Calls) / float64(c.Requests),
				LineShare: c.SequentialShare(), LongestShare: longestShare(list, c, in.Report.Group(id)), SiteShare: 1,
			}
			if c.Via != nil { // the reader of a shared connection waits for the calls of all lines
				sum.SiteShare = callerShare(in.Report.Group(id), c.Site)
			}
			calls[id] = append(calls[id], sum)
		}
	}
	model.SetCalls(calls)
}

// longestShare returns the share of the longest call at a site in the time of all calls there, in whichever wait of the request they are.
func longestShare(list []queues.PeerCalls, at *queues.PeerCalls, g *report.Group) float64 {
	var requests, totalNS int64
	longestNS := 0.0 // in one request
	for i := range list {
		if c := &list[i]; c.Site.Equal(at.Site) && c.Requests > 0 {
			requests, totalNS = requests+c.Requests, totalNS+max(c.TotalNS, c.AnswerNS)
			longestNS = max(longestNS, float64(c.LongestNS)/float64(c.Requests))
		}
	}
	if g != nil {
		requests = max(at.Requests, min(requests, int64(g.Count))) // which may make calls in several of these waits
	}
	return longestNS * float64(requests) / float64(totalNS)
}

// callerShare returns the share of a service's line s in a group's network waits at the line of a dependency; 1 if that is not
// known.
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
