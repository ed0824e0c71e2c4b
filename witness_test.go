package whylate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testprog"
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

// observe runs a service of lab/truth under its load and explains its trace.
// Of the trace, and of the witness, only the requests count that end in its
// middle: both know all of those. late is how much timers overran meanwhile,
// at the 99th percentile.
func observe(t *testing.T, prog, name string, args ...string) (rep *report.Report, o *outcome, all, slow []int64, late time.Duration) {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, prog, append([]string{"run", name, "-o", dir, "-d", "2400ms", "-trace", "2"}, args...)...)
	cmd.WaitDelay = 5 * time.Second
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("running the service %s: %v\n%s", name, err, msg)
	}
	read := func(file string, v any) {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err == nil {
			err = json.Unmarshal(text, v)
		}
		if err != nil {
			t.Fatalf("reading %s: %v", file, err)
		}
	}
	o = new(outcome)
	read("truth.json", o)
	var w witness
	read("client.json", &w)
	data, err := os.ReadFile(filepath.Join(dir, name+".trace"))
	if err != nil {
		t.Fatal(err)
	}
	whole := explainBytes(t, data, whylate.Options{Slowest: -1})
	if whole.Input.Start == nil {
		t.Fatal("the trace does not say when it began")
	}
	const margin = 300e6
	from, to := int64(margin), whole.Input.DurationNS-margin
	rep = explainBytes(t, data, whylate.Options{Slowest: -1, From: time.Duration(from), To: time.Duration(to)})
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
	return rep, o, all, slow, time.Duration(o.Lateness.P99NS)
}

func quantile(sorted []int64, q float64) float64 {
	return float64(sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)])
}

// onQuietMachine tries three times; one good one is enough, and on a machine
// that is busy otherwise a bad one proves nothing.
func onQuietMachine(t *testing.T, try func() (time.Duration, error)) {
	t.Helper()
	var bad error
	var late time.Duration
	for range 3 {
		l, err := try()
		if err == nil {
			return
		}
		bad, late = err, max(late, l)
	}
	if late > quiet {
		t.Skipf("the machine was not quiet (timers up to %v late, 99th percentile), so this proves nothing: %v", late, bad)
	}
	t.Error(bad)
}

// TestWitness holds counts and latencies against a client's, for servers whose
// Ps are not saturated.
func TestWitness(t *testing.T) {
	if testing.Short() {
		t.Skip("runs services and their clients in real time")
	}
	prog := testprog.Build(t, "lab/truth")
	for _, c := range []struct {
		name string
		kind report.Kind
	}{
		{"waitgroup", report.KindHTTP1}, {"h2-sleep", report.KindHTTP2}, {"grpc-unary", report.KindGRPC},
	} {
		t.Run(c.name, func(t *testing.T) {
			onQuietMachine(t, func() (time.Duration, error) {
				rep, o, all, slow, late := observe(t, prog, c.name)
				var errs []error
				found := 0
				for _, g := range rep.Groups {
					if g.Kind == c.kind {
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
					return late, errors.Join(append(errs, errors.New("the slow group is missing"))...)
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
				return late, errors.Join(errs...)
			})
		})
	}
}

// TestWitnessOfSaturation does so for servers whose one P is never free: data
// that has come is seen only when somebody polls, so the client's latency lies
// between ours and ours plus the gap.
func TestWitnessOfSaturation(t *testing.T) {
	if testing.Short() {
		t.Skip("runs services and their clients in real time")
	}
	prog := testprog.Build(t, "lab/truth")
	for _, name := range []string{"cpu-hogs", "waitgroup", "h2-sleep", "grpc-unary"} {
		t.Run(name, func(t *testing.T) {
			onQuietMachine(t, func() (time.Duration, error) {
				rep, o, _, slow, late := observe(t, prog, name, "-procs", "1", "-hogs", "2")
				g := slowGroup(rep, o)
				if g == nil || g.LatencyNS.P50 == nil || g.PollGapNS.Max == nil || len(slow) < 10 {
					return late, fmt.Errorf("too few requests: the client has %d", len(slow))
				}
				theirs, ours, gap := quantile(slow, 0.5), float64(*g.LatencyNS.P50), float64(*g.PollGapNS.Max)
				if gap == 0 {
					return late, errors.New("no poll gap was found")
				}
				t.Logf("ours %v, gap up to %v, the client's %v", time.Duration(ours), time.Duration(gap), time.Duration(theirs))
				const grain = 0.05 // the buckets of our histogram, and the way to the client
				if theirs < (1-grain)*ours || theirs > (1+grain)*(ours+gap) {
					return late, fmt.Errorf("the client's p50 is %v, ours %v with a gap of at most %v", time.Duration(theirs), time.Duration(ours), time.Duration(gap))
				}
				return late, nil
			})
		})
	}
}
