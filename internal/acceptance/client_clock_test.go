package acceptance_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// A witness is the load generator: another process, which timed each request
// by its own clock.
type witness struct {
	Start    time.Time
	Requests []struct {
		Name  string
		Slow  bool
		Start int64  `json:"start_ns"`
		End   int64  `json:"end_ns"`
		Err   string `json:"err"`
	}
}

// observe explains the trace of a run of lab/truth. Of the trace, and of the witness, only the requests count that end in
// its middle: both know all of those.
func observe(t *testing.T, rec *testprog.Recorded) (rep *report.Report, o *outcome, all, slow []int64) {
	t.Helper()
	o = outcomeOf(t, rec)
	var w witness
	if err := json.Unmarshal(rec.Client, &w); err != nil {
		t.Fatalf("reading what the client saw: %v", err)
	}
	whole := explainBytes(t, rec.Trace, whylate.Options{Slowest: -1})
	if whole.Input.Start == nil {
		t.Fatal("the trace does not say when it began")
	}
	const margin = 300e6
	from, to := int64(margin), whole.Input.DurationNS-margin
	rep = explainBytes(t, rec.Trace, whylate.Options{Slowest: -1, From: time.Duration(from), To: time.Duration(to)})
	for _, r := range w.Requests {
		if r.Err != "" {
			t.Fatalf("the client: %s", r.Err)
		}
		if end := int64(w.Start.Add(time.Duration(r.End)).Sub(*whole.Input.Start)); end < from || end >= to {
			continue
		}
		all = append(all, r.End-r.Start)
		if r.Slow {
			slow = append(slow, r.End-r.Start)
		}
	}
	slices.Sort(all)
	slices.Sort(slow)
	return rep, o, all, slow
}

func quantile(sorted []int64, q float64) float64 {
	return float64(sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)])
}

// TestWitness holds counts and latencies against a client's, for servers whose
// Ps are not saturated.
func TestWitness(t *testing.T) {
	for _, name := range []string{"waitgroup", "h2-sleep", "grpc-unary"} {
		t.Run(name, func(t *testing.T) {
			if err := judgeWitness(t, testprog.Service(t, name+"-long")); err != nil {
				t.Error(err)
			}
		})
	}
}

func judgeWitness(t *testing.T, recs ...*testprog.Recorded) error {
	t.Helper()
	rep, o, all, slow := observe(t, recs[0])
	var errs []error
	found := 0
	for _, g := range rep.Groups {
		if string(g.Kind) == o.Service.Truth.Kind {
			found += g.Count
		}
	}
	// The response travels between our end and the client's: at either
	// edge one connection's request may lie on the other side.
	if math.Abs(float64(found-len(all))) > 0.01*float64(len(all))+2 {
		errs = append(errs, fmt.Errorf("%d requests found, the client has %d", found, len(all)))
	}
	g := slowGroup(rep, o)
	if g == nil || g.LatencyNS.P50 == nil {
		return errors.Join(append(errs, errors.New("the slow group is missing"))...)
	}
	for q, ours := range map[float64]*int64{0.5: g.LatencyNS.P50, 0.99: g.LatencyNS.P99} {
		if ours == nil {
			continue // too few requests for a 99th percentile
		}
		if theirs := quantile(slow, q); math.Abs(float64(*ours)-theirs) > 0.1*theirs {
			errs = append(errs, fmt.Errorf("p%g is %v, the client's %v", 100*q, time.Duration(*ours), time.Duration(theirs)))
		}
	}
	if g.LatencyNS.P99 == nil && len(slow) >= 200 {
		errs = append(errs, errors.New("no 99th percentile"))
	}
	return errors.Join(errs...)
}

// TestWitnessOfSaturation does so for servers whose one P is never free: data
// that has come is seen only when somebody polls, so the client's latency lies
// between ours and ours plus the gap.
func TestWitnessOfSaturation(t *testing.T) {
	for _, name := range []string{"cpu-hogs", "waitgroup", "h2-sleep", "grpc-unary"} {
		t.Run(name, func(t *testing.T) {
			if err := judgeSaturated(t, testprog.Service(t, name+"-saturated")); err != nil {
				t.Error(err)
			}
		})
	}
}

func judgeSaturated(t *testing.T, recs ...*testprog.Recorded) error {
	t.Helper()
	rep, o, _, slow := observe(t, recs[0])
	g := slowGroup(rep, o)
	if g == nil || g.LatencyNS.P50 == nil || g.PollGapNS.Max == nil || len(slow) < 10 {
		return fmt.Errorf("too few requests: the client has %d", len(slow))
	}
	theirs, ours, gap := quantile(slow, 0.5), float64(*g.LatencyNS.P50), float64(*g.PollGapNS.Max)
	if gap == 0 {
		return errors.New("no poll gap was found")
	}
	t.Logf("ours %v, gap up to %v, the client's %v", time.Duration(ours), time.Duration(gap), time.Duration(theirs))
	const grain = 0.05 // the buckets of our histogram, and the way to the client
	if theirs < (1-grain)*ours || theirs > (1+grain)*(ours+gap) {
		return fmt.Errorf("the client's p50 is %v, ours %v with a gap of at most %v", time.Duration(theirs), time.Duration(ours), time.Duration(gap))
	}
	return nil
}
