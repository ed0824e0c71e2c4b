package acceptance_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/schematest"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// TestWhatIfPubSub explains a trace of the pub/sub service, whose handler waits for sleeps of 200 and 100 ms on a library's
// goroutine. It predicts the latency with both at 5 ms and compares that with the client's measurement after the change.
func TestWhatIfPubSub(t *testing.T) {
	if err := judgePubSubPrediction(t, testprog.Service(t, "pubsub-long"), testprog.Service(t, "pubsub-fixed")); err != nil {
		t.Error(err)
	}
}

func judgePubSubPrediction(t *testing.T, recs ...*testprog.Recorded) error {
	t.Helper()
	rep := explainBytes(t, recs[0].Trace, whylate.Options{Name: "pubsub", WhatIf: parseChanges(t, "consumer.(*Consumer).fetchOffsets=5ms", "consumer.(*Consumer).release=5ms")})
	fixed := outcomeOf(t, recs[1])
	must.Equal(t, len(rep.WhatIf), 1, "groups are affected by the change, want one")
	e := rep.WhatIf[0].Predicted.P50NS
	must.True(t, e.Low <= e.Est && e.Est <= e.High, "the range %+v does not contain the estimate", e)
	off := float64(e.Est)/float64(fixed.Client.P50NS) - 1
	t.Logf("predicted %v (%v to %v), measured %v", time.Duration(e.Est), time.Duration(e.Low), time.Duration(e.High), time.Duration(fixed.Client.P50NS))
	if math.Abs(off) > 0.15 {
		return fmt.Errorf("the prediction is off by %+.0f%%", 100*off)
	}
	return nil
}

// TestWhatIfCheck: some reads of a service wait for a slow write. The reads that do not show how long the others would take
// without.
func TestWhatIfCheck(t *testing.T) {
	if err := judgeActorPrediction(t, testprog.Service(t, "actor-select-long")); err != nil {
		t.Error(err)
	}
}

func judgeActorPrediction(t *testing.T, recs ...*testprog.Recorded) (wrong error) {
	t.Helper()
	var first []byte
	for _, workers := range []int{1, 3} {
		rep := explainBytes(t, recs[0].Trace, whylate.Options{Name: "actor-select", Workers: workers, WhatIf: parseChanges(t, "(*actor).store=gone")})
		out := must.Have(report.CompactJSON(rep))(t)
		schematest.Validate(t, "actor-select", out)
		if first == nil {
			first = out
		} else if !bytes.Equal(out, first) {
			t.Error("the report depends on the number of workers")
		}
		wrong = checkReads(rep, outcomeOf(t, recs[0]))
	}
	return wrong
}

// checkReads compares the check of the prediction for reads with the service's own measurements.
func checkReads(rep *report.Report, run *outcome) error {
	i := slices.IndexFunc(rep.WhatIf, func(w report.WhatIf) bool { return strings.HasSuffix(w.Name, "(*actor).read") })
	if i < 0 {
		return errors.New("there is no prediction for reads")
	}
	p := &rep.WhatIf[i].Predicted
	if p.Check == nil {
		return fmt.Errorf("the prediction %+v is not checked", *p)
	}
	c := *p.Check
	// Requests at the ends of the trace are counted on one side only.
	isNear := func(n, want int) bool { return math.Abs(float64(n-want)) <= 5+0.15*float64(want) }
	switch unaffected := run.Traced.Count - run.Affected.Count; {
	case !isNear(c.Requests, unaffected) || !isNear(c.Affected, run.Affected.Count):
		return fmt.Errorf("the check %+v does not have the service's numbers: %d reads met a write, %d met none", c, run.Affected.Count, unaffected)
	case !c.Agrees || c.CauseRemoved || c.LeftNS != 0 || c.AtLeastNS != 0 || c.MetNS > c.AtMostNS:
		return fmt.Errorf("the check says %+v", c)
	case p.WasP50NS == nil || c.P50NS > *p.WasP50NS/5 || c.P50NS > run.Affected.P50NS/5:
		return fmt.Errorf("the reads that met no write are slow: %+v", c)
	}
	return nil
}

// TestWhatIfUnchanged: on traces of real programs, the prediction for an unchanged cause is the old value in every group that
// it affects, and removing any cause never makes a group slower.
func TestWhatIfUnchanged(t *testing.T) {
	names := []string{"locks", "timers", "http1", "http2", "channels", "grpc"}
	if testing.Short() {
		names = names[:2]
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := testprog.Trace(t, name)
			causes := []string{"cpu", "sched", "gc", "sleep", "network", "syscall", "lock", "chan", "unknown"}
			for _, to := range []string{"@=100%", "@=50%", "@=gone"} {
				var effective []string
				for _, c := range causes {
					rep, err := whylate.Explain(t.Context(), bytes.NewReader(data), whylate.Options{WhatIf: parseChanges(t, c+to)})
					if errors.Is(err, whylate.ErrWhatIf) {
						continue // no request has this cause
					}
					must.Do(t, err)
					checkWhatIf(t, rep, c+to)
					effective = append(effective, c+to)
				}
				rep := explain(t, bytes.NewReader(data), whylate.Options{WhatIf: parseChanges(t, effective...)})
				checkWhatIf(t, rep, strings.Join(effective, " "))
			}
		})
	}
}

func checkWhatIf(t *testing.T, rep *report.Report, changes string) {
	t.Helper()
	for _, w := range rep.WhatIf {
		p := &w.Predicted
		for _, x := range []struct {
			name      string
			predicted report.Estimate
			before    *int64
		}{{"p50", p.P50NS, p.WasP50NS}, {"p99", p.P99NS, p.WasP99NS}} {
			switch {
			case x.predicted.Low > x.predicted.Est || x.predicted.Est > x.predicted.High || x.predicted.Low < 0:
				t.Errorf("%s: %s of %s is %+v", changes, x.name, w.Name, x.predicted)
			case x.before == nil:
			case strings.Contains(changes, "100%") && (x.predicted.Low != *x.before || x.predicted.High != *x.before):
				t.Errorf("%s: %s of %s would be %+v, not %d", changes, x.name, w.Name, x.predicted, *x.before)
			case x.predicted.High > *x.before+*x.before/500: // three digits
				t.Errorf("%s: %s of %s would grow from %d to %+v", changes, x.name, w.Name, *x.before, x.predicted)
			}
		}
	}
}

// TestWhatIfWorkers: a prediction does not depend on the number of workers.
func TestWhatIfWorkers(t *testing.T) {
	for _, name := range []string{"http1", "locks"} {
		data := testprog.Trace(t, name)
		var want []byte
		for _, workers := range []int{1, 3} {
			rep := explain(t, bytes.NewReader(data), whylate.Options{Workers: workers, WhatIf: parseChanges(t, "cpu@=50%")})
			got := must.Have(json.Marshal(rep))(t)
			if want == nil {
				want = got
			} else if !bytes.Equal(got, want) {
				t.Errorf("%s: the report depends on the number of workers", name)
			}
		}
	}
}

func TestWhatIfErrors(t *testing.T) {
	data := testprog.Trace(t, "locks")
	rep, err := whylate.Explain(t.Context(), bytes.NewReader(data), whylate.Options{WhatIf: parseChanges(t, "nowhere=5ms")})
	check.True(t, errors.Is(err, whylate.ErrWhatIf) && strings.Contains(err.Error(), "nowhere=5ms"), "the error is %v", err)
	check.True(t, rep != nil && rep.WhatIf == nil, "want a report without predictions")
	for _, bad := range []string{"f=soon", "f", "=5ms", "f=120%", "queue@f=5ms"} {
		if c, err := whylate.ParseChange(bad); !errors.Is(err, whylate.ErrWhatIf) || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: it is read as %v, the error is %v", bad, c, err)
		}
	}
}

// TestChangesRoundTrip: Change.String returns the text that ParseChange reads.
func TestChangesRoundTrip(t *testing.T) {
	for text, want := range map[string]whylate.Change{
		"sleep@main.f:12=5ms": {Cause: "sleep", Site: "main.f:12", To: 5 * time.Millisecond},
		"main.f=50%":          {Site: "main.f", Relative: true, Scale: 0.5},
		"queue@main.f=gone":   {Cause: "queue", Site: "main.f", Relative: true},
	} {
		c, err := whylate.ParseChange(text)
		check.True(t, err == nil && c == want && c.String() == text,
			"%s: it is read as %+v, want %+v, and written as %s: %v", text, c, want, c, err)
	}
}

// parseChanges parses changes.
func parseChanges(t *testing.T, texts ...string) (out []whylate.Change) {
	t.Helper()
	for _, text := range texts {
		c := must.Have(whylate.ParseChange(text))(t)
		out = append(out, c)
	}
	return out
}
