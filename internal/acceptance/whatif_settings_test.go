package acceptance_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// TestWhatIfSettings predicts the effect of a setting from recordings of services and compares it with the client's
// measurements after the setting was changed. The client's latencies include the transport and all requests of its runs; those
// of a trace only requests that show their handler. So the test compares the ratios of percentiles. It fails if a prediction
// removes collections but not the waits behind their workers, if freezes become shorter but not rarer, or if a second P
// removes half of a wait where two thirds go.
func TestWhatIfSettings(t *testing.T) {
	for name, s := range testprog.Settings(t) {
		for _, setting := range s.Changes {
			rep := explainBytes(t, s.Trace, whylate.Options{Name: name, WhatIf: parseChanges(t, setting.Question)})
			var p *report.Predicted
			for i := range rep.WhatIf {
				w := &rep.WhatIf[i]
				check.True(t, w.Note != "", "%s %s: there is no note about the basis of the prediction", name, setting.Question)
				for k := range rep.Groups {
					if g := &rep.Groups[k]; g.ID == w.Group && g.Entry != nil && g.Entry.Func == s.Group {
						p = &w.Predicted
					}
				}
			}
			if p == nil {
				t.Errorf("%s %s: there is no prediction for %s", name, setting.Question, s.Group)
				continue
			}
			for _, q := range []struct {
				name                      string
				predicted                 report.Estimate
				traced                    *int64
				clientBefore, clientAfter int64
				maxFactor                 float64 // how far off the estimate may be, by its factor
			}{
				{"p50", p.P50NS, p.WasP50NS, s.Client.P50NS, setting.Client.P50NS, 1.4},
				{"p99", p.P99NS, p.WasP99NS, s.Client.P99NS, setting.Client.P99NS, 1.75},
			} {
				if q.traced == nil || *q.traced == 0 || s.Tail && q.name == "p50" {
					continue
				}
				tracedNS := float64(*q.traced)
				measured := float64(q.clientAfter) / float64(q.clientBefore)
				low, est, high := float64(q.predicted.Low)/tracedNS, float64(q.predicted.Est)/tracedNS, float64(q.predicted.High)/tracedNS
				t.Logf("%s %s: %s predicted %v -> %v, x %.2f (%.2f to %.2f), measured %v -> %v, x %.2f", name, setting.Question, q.name,
					time.Duration(*q.traced), time.Duration(q.predicted.Est), est, low, high, time.Duration(q.clientBefore), time.Duration(q.clientAfter), measured)
				const slack = 0.05 // runs differ
				check.True(t, measured >= low-slack && measured <= high+slack,
					"%s %s: %s became %.2f of the old value, the predicted range was %.2f to %.2f", name, setting.Question, q.name, measured, low, high)
				check.False(t, name != "procs-one" && (measured < est/q.maxFactor || measured > est*q.maxFactor),
					"%s %s: %s became %.2f of the old value, the estimate was %.2f", name, setting.Question, q.name, measured, est)
			}
		}
	}
}

// TestWhatIfWithoutCollector: without the collector's time, requests do not wait behind its workers either. So the answer is
// close to that for GOGC=400, which the clients of TestWhatIfSettings measured. It fails if only assists and stops go away.
func TestWhatIfWithoutCollector(t *testing.T) {
	recording := testprog.Settings(t)["gogc-50"]
	predict := func(change string) *report.Predicted {
		rep := explainBytes(t, recording.Trace, whylate.Options{WhatIf: parseChanges(t, change)})
		for i := range rep.WhatIf {
			if g := rep.Group(rep.WhatIf[i].Group); g != nil && g.Entry != nil && g.Entry.Func == recording.Group {
				return &rep.WhatIf[i].Predicted
			}
		}
		t.Fatalf("%s: no prediction", change)
		return nil
	}
	without, gogc := predict("gc@=gone"), predict("GOGC=400")
	check.True(t, without.P50NS.Est <= gogc.P50NS.Est && without.P99NS.Est <= gogc.P99NS.Est,
		"p50 %v, p99 %v without the collector; %v and %v with a larger GOGC", without.P50NS, without.P99NS, gogc.P50NS, gogc.P99NS)
}

// TestWhatIfRefused: a trace without a garbage collection does not allow a prediction about GOGC; the report is complete
// otherwise.
func TestWhatIfRefused(t *testing.T) {
	rec := testprog.Service(t, "routes")
	rep, err := whylate.Explain(t.Context(), bytes.NewReader(rec.Trace), whylate.Options{WhatIf: parseChanges(t, "GOGC=400")})
	must.True(t, errors.Is(err, whylate.ErrRefused) && errors.Is(err, whylate.ErrWhatIf) && rep != nil && len(rep.Groups) != 0,
		"%v, %v", err, rep)
}
