package debugz

import (
	"bytes"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/flight"
	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
	"github.com/whylate/whylate/service/traps"
	"github.com/whylate/whylate/service/tune"
)

var update = flag.Bool("update", false, "write the golden files")

// TestText compares a complete page, and pages with missing or unknown parts, with a golden file.
func TestText(t *testing.T) {
	started := time.Unix(1.7e9, 0)
	full := page{
		PID: 7, Go: "go1.26.8", GOMAXPROCS: 2, NumCPU: 8, LogLevel: "INFO", Error: "half of it is not readable",
		Limits: &cgroup.Limits{
			CPU:    cgroup.CPU{Effective: 1.5, Bounds: []cgroup.CPUBound{{Won: true, Kind: "quota", CPUs: 1.5, File: "/a/cpu.max", Why: "the tightest"}, {Kind: "affinity", File: "/b", Why: "not read"}}},
			Memory: cgroup.Memory{Effective: 1 << 30, Bounds: []cgroup.MemoryBound{{Won: true, Kind: "limit", Bytes: 1 << 30, File: "/a/memory.max", Why: "the tightest"}, {Kind: "high", Bytes: -1, Why: "not known"}}},
			Notes:  []string{"a note"},
		},
		Traps: []traps.Trap{{Code: "code", Severity: traps.High, Text: "text", Fix: "fix"}},
		Tune: &tune.State{ProcsBy: "whylate", GOGC: 100, EffectiveGOGC: 55.4, GCShare: 0.025, Headroom: 5 << 20,
			Throttled: cgroup.Throttling{Verdict: cgroup.VerdictOwn, Evidence: "by periods", Own: time.Second, Ancestor: time.Millisecond, ThrottledPeriods: 3, Periods: 9},
			Events:    []tune.Event{{Time: started, Knob: tune.KnobGOMAXPROCS, Action: tune.ActionSet, From: 8, To: 2, Reason: "why", Source: "/a/cpu.max", Undo: "remove it"}, {Time: started, Knob: tune.KnobGOGC, Action: tune.ActionKeep, Undo: "nothing"}}},
		Probe: &probeSummary{Started: started, Freezes: 4, FreezesByVerdict: map[string]uint64{string(cgroup.VerdictOwn): 3}, FreezeTime: time.Second, FreezeP50: time.Millisecond, FreezeMax: time.Minute,
			Throttled: cgroup.Throttling{Own: 2 * time.Second, Ancestor: 3 * time.Second}, RunQueue: 4 * time.Second, Unsplit: 5 * time.Second, Steal: 6 * time.Second, NotMeasurable: []string{"steal", "run queue"}},
		Flight: &flight.State{Recording: true, Cost: 0.004, CostFrom: "bytes written", Budget: 0.02, OwnCost: 1e-4, Kept: 3, DiskBytes: 3 << 20, Failed: 1, Last: "flight-x", LastBytes: 1 << 20, LastSnapshot: 12345 * time.Microsecond,
			Triggers: map[flight.Kind]uint64{flight.KindSlow: 5, flight.KindFreeze: 1}, Missed: map[flight.Kind]uint64{flight.KindSlow: 2}, Upload: &flight.UploadState{Sent: 1, Refused: 2, Failed: 3, Waiting: 4, Held: 5, LastError: "upload"}, Unwatched: true, LastError: "disk"},
	}
	bare := page{PID: 7, Go: "go", GOMAXPROCS: 1, NumCPU: 1, Limits: &cgroup.Limits{}, Tune: &tune.State{EffectiveGOGC: -1, GCShare: -1, Headroom: -1}, Probe: &probeSummary{Started: started}, Flight: &flight.State{Why: "over its budget", Upload: &flight.UploadState{}}}
	var b bytes.Buffer
	for _, p := range []page{full, bare, {PID: 7, Go: "go"}} {
		p.writeText(&b)
		b.WriteString("--\n")
	}
	must.Golden(t, *update, "testdata/page.txt", b.Bytes())
}

// TestParse tests the ranges of levels and durations.
func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		"DEBUG-4 ": "DEBUG-4 0s", "debug-4 1s": "DEBUG-4 1s", "error+4 24h": "ERROR+4 24h0m0s", "info ": "INFO 0s",
		"debug-5 ": "use one from DEBUG-4 to ERROR+4", "error+5 ": "use one from DEBUG-4 to ERROR+4", "x ": "use debug, info, warn or error", "info 999ms": "from 1s to 24h0m0s", "info 24h1ns": "from 1s to 24h0m0s", "info x": "use a duration such as 5m",
	} {
		level, d, _ := strings.Cut(in, " ")
		l, for_, err := parseChange(url.Values{"level": {level}, "for": {d}})
		if got := fmt.Sprint(l, " ", for_); err == nil && got != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, %v, want %s", in, got, err, want)
		}
	}
}

// TestSetter tests the origin of GOMAXPROCS that follows from its value.
func TestSetter(t *testing.T) {
	l := &cgroup.Limits{CPU: cgroup.CPU{Parallelism: 8, RuntimeQuota: 3.5, Levels: []cgroup.CPULevel{{CPUs: 3.5}}}}
	l.CPU.Version, l.CPU.MountPoint, l.CPU.MountRoot = cgroup.V2, "/sys/fs/cgroup", "/"
	for _, c := range []struct {
		f    traps.Facts
		l    *cgroup.Limits
		t    *tune.State
		want traps.Setter
	}{
		{traps.Facts{EnvProcs: 4, Procs: 4}, l, &tune.State{ProcsBy: "whylate"}, traps.SetByEnvironment},
		{traps.Facts{Procs: 4}, l, &tune.State{ProcsBy: "whylate"}, traps.SetByAuto},
		{traps.Facts{Procs: 4}, nil, &tune.State{ProcsBy: "runtime"}, traps.SetByUnknown},
		{traps.Facts{Procs: 4}, l, nil, traps.SetByRuntime},
		{traps.Facts{Procs: 8}, l, nil, traps.SetByRuntime},
		{traps.Facts{Procs: 3, Automaxprocs: "v1"}, l, nil, traps.SetByAutomaxprocs},
		{traps.Facts{Procs: 4, Automaxprocs: "v1"}, l, nil, traps.SetByRuntime},
		{traps.Facts{Procs: 3}, l, nil, traps.SetByProgram},
		{traps.Facts{Procs: 5}, l, nil, traps.SetByProgram},
	} {
		check.Equal(t, procsSetter(c.f, c.l, c.t), c.want, "%+v", c.f)
	}
	for env, want := range map[string]int{"": 0, "0": 0, "-1": 0, "1": 1, "5": 5, "x": 0} {
		t.Setenv("GOMAXPROCS", env)
		if got := gatherFacts(machine(), nil, nil); got.EnvProcs != want || got.NumCPU < 1 || got.Procs < 1 || got.Go == "" || got.GOMEMLIMIT <= 0 {
			t.Errorf("GOMAXPROCS=%s: %+v", env, got)
		}
	}
}

// TestChange tests that the answer has the previous level, that a form is bounded, and that neither is cached.
func TestChange(t *testing.T) {
	var level slog.LevelVar
	h := Handler(Options{Level: &level, Cgroup: machine(), Logger: slog.New(slog.DiscardHandler)})
	post := func(body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	if w := post("level=warn"); w.Code != 200 || w.Body.String() != "log level WARN, was INFO\n" || w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%d %q %v", w.Code, w.Body, w.Header())
	}
	const form = "level=info&x="
	for size, code := range map[int]int{4 << 10: 200, 4<<10 + 1: 400} {
		if w := post(form + strings.Repeat("x", size-len(form))); w.Code != code {
			t.Errorf("a form of %d bytes: %d %s", size, w.Code, w.Body)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodDelete, "/", nil))
	check.True(t, w.Code == 405 && w.Header().Get("Allow") == "GET, HEAD, POST", "%d %v", w.Code, w.Header())
}
