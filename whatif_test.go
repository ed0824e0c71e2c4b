package whylate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/schematest"
	"github.com/whylate/whylate/internal/testprog"
	"github.com/whylate/whylate/report"
)

// TestWhatIfPubSub predicts from a trace of the pub/sub service, whose handler
// waits for two sleeps of 200 and 100 ms on a library's goroutine, what it
// would take with both at 5 ms, makes that change, and lets the client measure.
func TestWhatIfPubSub(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a service and its client in real time")
	}
	prog := testprog.Build(t, "lab/truth")
	inThree(t, func() (string, time.Duration) {
		faulty, dir := runService(t, prog, "pubsub", "-fix=false", "-d", "2500ms", "-trace", "1.6")
		fixed, _ := runService(t, prog, "pubsub", "-fix=true", "-d", "1000ms", "-trace", "0.5")
		f, err := os.Open(filepath.Join(dir, "pubsub.trace"))
		if err != nil {
			t.Fatal(err)
		}
		rep := explain(t, f, whylate.Options{Name: "pubsub", WhatIf: changes(t, "consumer.(*Consumer).fetchOffsets=5ms", "consumer.(*Consumer).release=5ms")})
		f.Close()
		if len(rep.WhatIf) != 1 {
			t.Fatalf("%d groups meet the change, not one", len(rep.WhatIf))
		}
		e := rep.WhatIf[0].Predicted.P50NS
		if e.Low > e.Est || e.Est > e.High {
			t.Fatalf("the range %+v does not hold the estimate", e)
		}
		off := float64(e.Est)/float64(fixed.Client.P50NS) - 1
		t.Logf("predicted %v (%v to %v), measured %v", time.Duration(e.Est), time.Duration(e.Low), time.Duration(e.High), time.Duration(fixed.Client.P50NS))
		if math.Abs(off) <= 0.15 {
			return "", 0
		}
		return fmt.Sprintf("the prediction is off by %+.0f%%", 100*off), time.Duration(max(faulty.Lateness.P99NS, fixed.Lateness.P99NS))
	})
}

// inThree tries up to three times until nothing is wrong. What is wrong each time is no proof if timers of the services were
// late at one of them.
func inThree(t *testing.T, try func() (wrong string, late time.Duration)) {
	t.Helper()
	var wrong string
	var latest time.Duration
	for range 3 {
		var late time.Duration
		if wrong, late = try(); wrong == "" {
			return
		}
		latest = max(latest, late)
	}
	if latest > quiet {
		t.Skipf("the machine was not quiet (timers up to %v late, 99th percentile), so this proves nothing: %s", latest, wrong)
	}
	t.Error(wrong)
}

// TestWhatIfCheck: of the reads of a service that some meet a slow write in, those that meet none show what the others
// would take without.
func TestWhatIfCheck(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a service and its client in real time")
	}
	prog := testprog.Build(t, "lab/truth")
	inThree(t, func() (wrong string, late time.Duration) {
		run, dir := runService(t, prog, "actor-select", "-fix=false", "-d", "2500ms", "-trace", "2")
		data, err := os.ReadFile(filepath.Join(dir, "actor-select.trace"))
		if err != nil {
			t.Fatal(err)
		}
		var first []byte
		for _, workers := range []int{1, 3} {
			rep := explain(t, bytes.NewReader(data), whylate.Options{Name: "actor-select", Workers: workers, WhatIf: changes(t, "(*actor).store=gone")})
			out, err := report.CompactJSON(rep)
			if err != nil {
				t.Fatal(err)
			}
			schematest.Validate(t, "actor-select", out)
			if first == nil {
				first = out
			} else if !bytes.Equal(out, first) {
				t.Error("the report depends on the number of workers")
			}
			wrong = checkReads(rep, run)
		}
		return wrong, time.Duration(run.Lateness.P99NS)
	})
}

// checkReads returns what is wrong with the check of what reads would take, by the service's own account.
func checkReads(rep *report.Report, run *serviceRun) string {
	i := slices.IndexFunc(rep.WhatIf, func(w report.WhatIf) bool { return strings.HasSuffix(w.Name, "(*actor).read") })
	if i < 0 {
		return "nothing is predicted for reads"
	}
	p := &rep.WhatIf[i].Predicted
	if p.Check == nil {
		return fmt.Sprintf("the prediction %+v is not checked", *p)
	}
	c := *p.Check
	// Requests at the ends of the trace count on one side only.
	alike := func(n, want int) bool { return math.Abs(float64(n-want)) <= 5+0.15*float64(want) }
	switch free := run.Traced.Count - run.Met.Count; {
	case !alike(c.Requests, free) || !alike(c.Affected, run.Met.Count):
		return fmt.Sprintf("the check %+v is of other numbers than the service's: %d met a write, %d met none", c, run.Met.Count, free)
	case !c.Agrees || c.Gone || c.LeftNS != 0 || c.AtLeastNS != 0 || c.MetNS > c.AtMostNS:
		return fmt.Sprintf("the check says %+v", c)
	case p.WasP50NS == nil || c.P50NS > *p.WasP50NS/5 || c.P50NS > run.Met.P50NS/5:
		return fmt.Sprintf("those that met none are slow: %+v", c)
	}
	return ""
}

type serviceRun struct {
	Client struct {
		P50NS int64 `json:"p50_ns"`
	}
	Traced struct{ Count int }
	// Met is of the requests in the trace that the fault took time of.
	Met struct {
		Count int
		P50NS int64 `json:"p50_ns"`
	}
	Lateness struct {
		P99NS int64 `json:"p99_ns"`
	}
}

func runService(t *testing.T, prog, name string, args ...string) (*serviceRun, string) {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, prog, append([]string{"run", name, "-o", dir}, args...)...)
	cmd.WaitDelay = 5 * time.Second
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("running the service: %v\n%s", err, msg)
	}
	b, err := os.ReadFile(filepath.Join(dir, "truth.json"))
	if err != nil {
		t.Fatal(err)
	}
	r := new(serviceRun)
	if err := json.Unmarshal(b, r); err != nil {
		t.Fatal(err)
	}
	return r, dir
}

// TestWhatIfUnchanged: on traces of real programs, no change predicts what was,
// in every group that it meets, and everything gone no more than that.
func TestWhatIfUnchanged(t *testing.T) {
	for _, name := range []string{"http1", "http2", "locks", "channels", "timers", "grpc"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := testprog.Trace(t, name, "-d", "150ms")
			all := []string{"cpu", "sched", "gc", "sleep", "network", "syscall", "lock", "chan", "unknown"}
			for _, to := range []string{"@=100%", "@=50%", "@=gone"} {
				var met []string
				for _, c := range all {
					rep, err := whylate.Explain(t.Context(), bytes.NewReader(data), whylate.Options{WhatIf: changes(t, c+to)})
					if errors.Is(err, whylate.ErrWhatIf) {
						continue // nobody spent time on that
					}
					if err != nil {
						t.Fatal(err)
					}
					checkWhatIf(t, rep, c+to)
					met = append(met, c+to)
				}
				rep := explain(t, bytes.NewReader(data), whylate.Options{WhatIf: changes(t, met...)})
				checkWhatIf(t, rep, strings.Join(met, " "))
			}
		})
	}
}

func checkWhatIf(t *testing.T, rep *report.Report, changes string) {
	t.Helper()
	for _, w := range rep.WhatIf {
		p := &w.Predicted
		for _, x := range []struct {
			name string
			e    report.Estimate
			was  *int64
		}{{"p50", p.P50NS, p.WasP50NS}, {"p99", p.P99NS, p.WasP99NS}} {
			switch {
			case x.e.Low > x.e.Est || x.e.Est > x.e.High || x.e.Low < 0:
				t.Errorf("%s: %s of %s is %+v", changes, x.name, w.Name, x.e)
			case x.was == nil:
			case strings.Contains(changes, "100%") && (x.e.Low != *x.was || x.e.High != *x.was):
				t.Errorf("%s: %s of %s would be %+v, not %d", changes, x.name, w.Name, x.e, *x.was)
			case x.e.High > *x.was+*x.was/500: // three digits
				t.Errorf("%s: %s of %s would grow from %d to %+v", changes, x.name, w.Name, *x.was, x.e)
			}
		}
	}
}

// TestWhatIfWorkers: a prediction does not depend on how many workers there
// were.
func TestWhatIfWorkers(t *testing.T) {
	for _, name := range []string{"http1", "locks"} {
		data := testprog.Trace(t, name, "-d", "300ms")
		var want []byte
		for _, workers := range []int{1, 3} {
			rep := explain(t, bytes.NewReader(data), whylate.Options{Workers: workers, WhatIf: changes(t, "cpu@=50%")})
			got, err := json.Marshal(rep)
			if err != nil {
				t.Fatal(err)
			}
			if want == nil {
				want = got
			} else if !bytes.Equal(got, want) {
				t.Errorf("%s: the report depends on the number of workers", name)
			}
		}
	}
}

func TestWhatIfErrors(t *testing.T) {
	data := testprog.Trace(t, "locks", "-d", "150ms")
	rep, err := whylate.Explain(t.Context(), bytes.NewReader(data), whylate.Options{WhatIf: changes(t, "nowhere=5ms")})
	if !errors.Is(err, whylate.ErrWhatIf) || !strings.Contains(err.Error(), "nowhere=5ms") {
		t.Errorf("the error is %v", err)
	}
	if rep == nil || rep.WhatIf != nil {
		t.Errorf("no report, or one that predicts")
	}
	for _, bad := range []string{"f=soon", "f", "=5ms", "f=120%", "queue@f=5ms"} {
		if c, err := whylate.ParseChange(bad); !errors.Is(err, whylate.ErrWhatIf) || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: it is read as %v, the error is %v", bad, c, err)
		}
	}
}

// TestChangesAreWrittenAsTheyAreRead holds ParseChange and String to each other.
func TestChangesAreWrittenAsTheyAreRead(t *testing.T) {
	for text, want := range map[string]whylate.Change{
		"sleep@main.f:12=5ms": {Cause: "sleep", Site: "main.f:12", To: 5 * time.Millisecond},
		"main.f=50%":          {Site: "main.f", Relative: true, Scale: 0.5},
		"queue@main.f=gone":   {Cause: "queue", Site: "main.f", Relative: true},
	} {
		c, err := whylate.ParseChange(text)
		if err != nil || c != want || c.String() != text {
			t.Errorf("%s: it is read as %+v, want %+v, and written as %s: %v", text, c, want, c, err)
		}
	}
}

// changes reads changes.
func changes(t *testing.T, texts ...string) (out []whylate.Change) {
	t.Helper()
	for _, text := range texts {
		c, err := whylate.ParseChange(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	return out
}
