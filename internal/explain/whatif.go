package explain

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/report"
)

// ErrWhatIf is returned, wrapped, if a change of Options.WhatIf cannot be parsed or affects no request. The error names
// similar changes. In the second case, Explain also returns a report without predictions.
var ErrWhatIf = errors.New("no such change")

// ErrRefused is returned, wrapped together with ErrWhatIf, if a trace cannot answer a question about a setting. The
// error says why.
var ErrRefused = errors.New("not answered")

// ParseChange parses a change as predict.Parse does. Its error wraps ErrWhatIf.
func ParseChange(text string) (predict.Change, error) {
	c, err := predict.Parse(text)
	if err != nil {
		return c, fmt.Errorf("%w: %w", ErrWhatIf, err)
	}
	return c, nil
}

// addWhatIf predicts the gain of all requested changes together.
func (e *engine) addWhatIf(rep *report.Report) error {
	if len(e.opts.WhatIf) == 0 {
		return nil
	}
	changes := slices.Clone(e.opts.WhatIf)
	var notes []string
	for i := range changes {
		note, err := e.model.Validate(&changes[i])
		if refusal := (*predict.Refusal)(nil); errors.As(err, &refusal) {
			return &refusalError{refusal}
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrWhatIf, err)
		}
		if note != "" {
			notes = append(notes, note)
		}
	}
	rep.WhatIf = []report.WhatIf{}
	for i := range rep.Groups {
		g := &rep.Groups[i]
		if p := e.model.WhatIf(g.ID, changes); p != nil {
			rep.WhatIf = append(rep.WhatIf, report.WhatIf{
				Group: g.ID, Name: g.Name, Requests: g.Count, Predicted: *p, Note: strings.Join(notes, "; "),
			})
		}
	}
	return nil
}

// refusalError is a predict.Refusal as an error of this package.
type refusalError struct{ *predict.Refusal }

// Is implements the interface of errors.Is.
func (*refusalError) Is(target error) bool { return target == ErrWhatIf || target == ErrRefused }

// setFacts passes the facts about the process to the model. rep must have its runtime and host.
func (e *engine) setFacts(rep *report.Report, stats *process.Stats) {
	gc, rt := &stats.GC, &rep.Runtime
	f := &predict.Facts{
		SpanNS: stats.SpanNS, Procs: stats.Procs, BusyNS: stats.BusyNS,
		Cycles: gc.Cycles, ForcedCycles: gc.Forced, Measured: gc.MeasuredCycles, LiveBytes: gc.LiveBytes, GoalBytes: gc.GoalBytes,
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
					if r.Site != nil && stdlib.IsGCMark(r.Site.Func) {
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
			f.MarkPhases = append(f.MarkPhases, [2]int64{m[0] + e.pass.Start, m[1]})
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
	e.model.SetFacts(f)
}
