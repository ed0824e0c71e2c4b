package acceptance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/schematest"
	"github.com/whylate/whylate/internal/testing/testfull"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// kernelCount is the output of lab/throttle about a run.
type kernelCount struct {
	Periods     int64 `json:"periods"`
	Throttled   int64 `json:"throttled"`
	ThrottledNS int64 `json:"throttled_ns"`
	WallNS      int64 `json:"wall_ns"`
	CPUNS       int64 `json:"cpu_ns"`
	// OthersShare is the share of the machine that other processes used during the run.
	OthersShare float64 `json:"others"`
	// StolenNS is the CPU time that the hypervisor did not give to the machine.
	StolenNS int64 `json:"stolen_ns"`
}

// recordThrottle runs a service of lab/throttle and explains its trace. It skips the test if no quota can be set.
func recordThrottle(t *testing.T, args ...string) (*report.Report, kernelCount) {
	t.Helper()
	testfull.Need(t, "a CPU quota, for seconds")
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		t.Skip("CPU quotas need Linux and root")
	}
	file := filepath.Join(t.TempDir(), "x.trace")
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, testprog.Build(t, "lab/throttle"), append([]string{"run", "-d", "3s", "-o", file}, args...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		if text := errs.String(); strings.Contains(text, "cgroup") || strings.Contains(text, "quota") {
			t.Skipf("no CPU quota can be set here: %s", text)
		}
		t.Fatalf("lab/throttle %v: %v\n%s", args, err, errs.Bytes())
	}
	var c kernelCount
	must.Do(t, json.Unmarshal(out, &c))
	f := must.Have(os.Open(file))(t)
	defer f.Close()
	rep := must.Have(whylate.Explain(context.Background(), f, whylate.Options{Name: "x.trace"}))(t)
	schematest.Report(t, rep)
	checkThrottle(t, rep)
	return rep, c
}

// checkThrottle checks that all parts of a report agree about throttling.
func checkThrottle(t *testing.T, rep *report.Report) {
	t.Helper()
	ownQuota := rep.Runtime.Throttle.Verdict == "own"
	if n := len(rep.Runtime.Series.Freezes); ownQuota != (n > 0) {
		t.Errorf("%s, but %d freezes in the series", rep.Runtime.Throttle.Verdict, n)
	}
	for _, g := range rep.Groups {
		var bands, blocks, hist int64
		for _, c := range g.Bands[0].Causes {
			if c.Cause == "throttle" {
				bands += c.TotalNS
			}
		}
		for _, b := range g.Blocks {
			blocks += b.Causes["throttle"]
		}
		for _, ns := range g.HistogramCauses["throttle"] {
			hist += ns
		}
		if bands > blocks || blocks != hist || !ownQuota && hist > 0 {
			t.Errorf("%s: throttle of %s: %d ns in the bands, %d in blocks, %d in the histogram", rep.Runtime.Throttle.Verdict, g.Name, bands, blocks, hist)
		}
		for _, r := range g.Slowest {
			sum := int64(0)
			for _, s := range r.Segments {
				sum += s.DurationNS
			}
			check.True(t, sum == r.LatencyNS, "the segments of %s add up to %d ns of %d", r.ID, sum, r.LatencyNS)
		}
	}
}

// maxOthersShare is the share of the machine up to which other processes, including the load, do not excuse a wrong answer. On
// a quiet machine they use less than a tenth; with half of the machine, freezes end late and lost time is off by a fifth.
const maxOthersShare = 0.3

// TestThrottled runs services under real quotas and compares the answers from the trace alone with the kernel's counters.
// Other processes disturb both, so one of three runs must be right.
func TestThrottled(t *testing.T) {
	for _, c := range []struct {
		name   string
		period time.Duration
		first  string // the first finding
		args   []string
	}{
		{"busy loops, half a CPU", 100 * time.Millisecond, "", []string{"-kind", "spin", "-quota", "0.5", "-procs", "2"}},
		{"busy loops, half a CPU, 8 Ps", 100 * time.Millisecond, "", []string{"-kind", "spin", "-quota", "0.5", "-procs", "8"}},
		{"a server, half a CPU, 8 Ps", 100 * time.Millisecond, "WL4001", []string{"-kind", "http", "-quota", "0.5", "-procs", "8", "-conns", "32"}},
		{"a server, a period of 50 ms", 50 * time.Millisecond, "WL4001", []string{"-kind", "http", "-quota", "0.5", "-procs", "4", "-period", "50ms", "-conns", "32"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var quietErr error
			for range 3 {
				rep, k := recordThrottle(t, c.args...)
				err := throttleError(rep, &k, c.period, c.first)
				if err == nil {
					return
				}
				t.Logf("others used %.0f %% of the machine: %v", 100*k.OthersShare, err)
				if k.OthersShare < maxOthersShare {
					quietErr = err
				}
			}
			if quietErr == nil {
				t.Skip("others used too much of the machine")
			}
			t.Error(quietErr)
		})
	}
}

func throttleError(rep *report.Report, k *kernelCount, period time.Duration, first string) error {
	th := &rep.Runtime.Throttle
	if th.Verdict != "own" || th.PeriodNS != period.Nanoseconds() {
		return fmt.Errorf("%s, period %v: %s", th.Verdict, time.Duration(th.PeriodNS), th.Text)
	}
	if math.Abs(float64(th.LostCPUNS-k.ThrottledNS)) > 0.2*float64(k.ThrottledNS) {
		return fmt.Errorf("%v of CPU time lost, the kernel counted %v", time.Duration(th.LostCPUNS), time.Duration(k.ThrottledNS))
	}
	if first != "" && (len(rep.Findings) == 0 || string(rep.Findings[0].Code) != first) {
		return fmt.Errorf("findings %v; want %s first", codesOf(rep), first)
	}
	return nil
}

func codesOf(rep *report.Report) (codes []string) {
	for _, f := range rep.Findings {
		codes = append(codes, string(f.Code))
	}
	return codes
}

// TestNotThrottled runs services without a quota, and one with both a quota and other processes on the machine. Each run must
// be right.
func TestNotThrottled(t *testing.T) {
	for _, c := range []struct {
		name  string
		quota bool
		args  []string
	}{
		{"healthy", false, []string{"-kind", "light"}},
		{"garbage collection", false, []string{"-kind", "gc"}},
		{"work by a ticker", false, []string{"-kind", "bursts", "-procs", "4"}},
		{"other processes", false, []string{"-kind", "http", "-neighbours", "4"}},
		{"busy loops and other processes", false, []string{"-kind", "spin", "-neighbours", "4"}},
		{"a quota and other processes", true, []string{"-kind", "http", "-quota", "0.5", "-procs", "4", "-neighbours", "4"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			skipReason := ""
			for range 3 {
				rep, k := recordThrottle(t, c.args...)
				th := &rep.Runtime.Throttle
				var wrong []string
				if !c.quota && th.Verdict == "own" || c.quota && k.Throttled > 0 && th.Verdict == "none" {
					wrong = append(wrong, fmt.Sprintf("%s (%d of %d periods throttled): %s", th.Verdict, k.Throttled, k.Periods, th.Text))
				}
				for _, f := range rep.Findings {
					if !c.quota && strings.HasPrefix(string(f.Code), "WL4") {
						wrong = append(wrong, "finding "+string(f.Code)+": "+f.Title)
					}
				}
				if len(wrong) == 0 {
					return
				}
				if c.quota || k.StolenNS <= th.LostCPUNS/4 {
					t.Fatal(strings.Join(wrong, "\n"))
				}
				// A virtual machine with a quota on its host: the trace is right about the freezes.
				skipReason = fmt.Sprintf("the hypervisor kept %v from the machine, by its own counter: %s", time.Duration(k.StolenNS), strings.Join(wrong, "; "))
				t.Log(skipReason)
			}
			t.Skip(skipReason)
		})
	}
}
