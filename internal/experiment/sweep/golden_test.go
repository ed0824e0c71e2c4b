package sweep

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/experiment/guard"
	"github.com/whylate/whylate/internal/experiment/load"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// richResult returns a result with everything that the text and the page can show.
func richResult(t *testing.T) *Result {
	t.Helper()
	o := Options{Runs: 4, Measure: 10 * time.Second, Warmup: 2 * time.Second, Command: []string{"server", "\x1b[2J"}, Load: load.Options{Targets: []load.Target{{URL: "http://127.0.0.1/"}}}, SLO: must.Have(ParseSLO("p99=41ms"))(t)}
	arms := must.Have(Arms([]Axis{{GOGC, []string{"50", "100", "200", "400"}}, {LoadShare, []string{"50%", "80%"}}}))(t)
	r := newResult(&o, arms)
	periods := int64(20)
	for i, arm := range arms {
		k := float64(i / 2)
		for n, run := range runsOf(20e6*(1+k)/float64(1+i%2), 1e6+2e5*k, 1e8*(1+k), 4) {
			run.Settings, run.Number = arm.Map(), n
			run.Load.AchievedPerS = 50 + 30*float64(i%2) + float64(n)/4
			gcCPU, held, cut := int64(4e8/(1+k)), int64(1e6)*int64(i), int64(i)
			run.GCCPUNS, run.Periods, run.ThrottledPeriods, run.ThrottledNS = &gcCPU, &periods, &cut, &held
			run.Causes = []Cause{{Cause: "throttle", Share: 0.049 + 0.001*float64(i), ShareAll: 0.5}, {Cause: "cpu", Share: 0.5}, {Cause: "gc", Share: 0.2}, {Cause: "lock", Share: 0.1}, {Cause: "chan", Share: 0.004}}
			if i == 3 {
				run.Causes = nil
			}
			if i == 0 {
				run.PredictedLimit = &report.Limit{Kind: report.LimitCPU, Servers: 2, SaturatesPerS: 90 + float64(n), SaturatesLow: 80, SaturatesHigh: 100}
			}
			if i == 7 && n == 0 { // one run far from the others
				run.Load.Intended.P99 *= 40
			}
			r.Measurements = append(r.Measurements, run)
		}
	}
	r.Measurements = append(r.Measurements, Run{Settings: arms[5].Map(), Number: 4, Error: "it \x1b died"}, Run{Settings: arms[5].Map(), Number: 5, Error: "it hung"})
	r.warn("shared-cpus", "the load generator shares %d CPUs \x1b", 2)
	r.Saturation = map[string]float64{"gogc=50": 100, "gogc=100": 100}
	r.summarize()
	return r
}

// TestGoldens compares the text of a complete result and the coordinates of its plots with golden
// files.
func TestGoldens(t *testing.T) {
	r := richResult(t)
	var b bytes.Buffer
	must.Do(t, WriteText(&b, r))
	must.Golden(t, *update, "testdata/rich.txt", b.Bytes())
	check.False(t, bytes.ContainsRune(b.Bytes(), '\x1b'), "a control character came through")
	b.Reset()
	enc := json.NewEncoder(&b)
	for _, p := range r.plots() {
		must.Do(t, enc.Encode(p))
	}
	must.Golden(t, *update, "testdata/plots.json", b.Bytes())
}

// TestSumCauses: the slowest tenth of each group and all requests have separate sums, and a cause that
// is small in both is left out.
func TestSumCauses(t *testing.T) {
	cause := func(name report.CauseName, ns int64) report.Cause { return report.Cause{Cause: name, TotalNS: ns} }
	band := func(b report.BandName, causes ...report.Cause) report.Band {
		return report.Band{Band: b, Causes: causes}
	}
	rep := &report.Report{Groups: []report.Group{
		{Bands: []report.Band{band(report.BandAll, cause("cpu", 60), cause("lock", 20)), band(report.Band5090, cause("chan", 1000)), band(report.Band9099, cause("lock", 6)), band(report.Band99, cause("lock", 1), cause("cpu", 2))}},
		{Bands: []report.Band{band(report.BandAll, cause("cpu", 10), cause("gc", 10)), band(report.Band9099, cause("gc", 1))}},
	}}
	var got []string
	for _, c := range sumCauses(rep) {
		got = append(got, fmt.Sprintf("%s %.2f %.2f", c.Cause, c.Share, c.ShareAll))
	}
	if want := "lock 0.70 0.20; cpu 0.20 0.70; gc 0.10 0.10"; strings.Join(got, "; ") != want {
		t.Errorf("%s, want %s", strings.Join(got, "; "), want)
	}
	if got := sumCauses(&report.Report{}); got == nil || len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
	means := meanCauses([]*Run{{Causes: []Cause{{Cause: "a", Share: 0.6, ShareAll: 0.2}, {Cause: "b", Share: 0.01}, {Cause: "c", Share: 0.009}, {Cause: "d", ShareAll: 0.01}}}, {}, {Causes: []Cause{{Cause: "a", Share: 0.2}}}})
	got = nil
	for _, c := range means {
		got = append(got, fmt.Sprintf("%s %.3f %.3f", c.Cause, c.Share, c.ShareAll))
	}
	if want := "a 0.400 0.100; b 0.005 0.000; d 0.000 0.005"; strings.Join(got, "; ") != want {
		t.Errorf("%s, want %s", strings.Join(got, "; "), want)
	}
}

// TestPendingRuns: each round has every arm once, in an order that depends on the seed. Finished runs
// are not repeated, failed ones are.
func TestPendingRuns(t *testing.T) {
	arms := must.Have(Arms([]Axis{{GOGC, []string{"1", "2", "3", "4"}}, {Rate, []string{"9"}}}))(t)
	order := func(seed uint64, done ...Run) ([]pendingRun, []Run) {
		s := &sweeper{options: &Options{Runs: 3, Seed: seed, FinishedRuns: done}, arms: arms, result: &Result{}}
		return s.pendingRuns(), s.result.Measurements
	}
	names := func(list []pendingRun) (out []string) {
		for _, n := range list {
			out = append(out, fmt.Sprint(n.number, n.arm.Get(GOGC)))
		}
		return out
	}
	all, _ := order(1)
	for n := range 3 {
		if round := names(all[4*n : 4*n+4]); !slices.Equal(slices.Sorted(slices.Values(round)), []string{fmt.Sprint(n, "1"), fmt.Sprint(n, "2"), fmt.Sprint(n, "3"), fmt.Sprint(n, "4")}) {
			t.Errorf("round %d is %v", n, round)
		}
	}
	sameSeed, _ := order(1)
	otherSeed, _ := order(2)
	check.True(t, len(all) == 12 && slices.Equal(names(all), names(sameSeed)) && !slices.Equal(names(all), names(otherSeed)),
		"%v, again %v, with another seed %v", names(all), names(sameSeed), names(otherSeed))
	rest, finished := order(1, Run{Settings: arms[0].Map(), Number: 0}, Run{Settings: arms[1].Map(), Number: 1, Error: "it died"}, Run{Settings: arms[2].Map(), Number: 3}, Run{Settings: map[string]string{"other": "1"}, Number: 0})
	if want := slices.DeleteFunc(names(all), func(n string) bool { return n == fmt.Sprint(0, "1") }); !slices.Equal(names(rest), want) || len(finished) != 1 || finished[0].Settings[GOGC] != "1" {
		t.Errorf("%v, want %v; kept are %+v", names(rest), want, finished)
	}
}

// TestProgressAndNotes: the remaining time is estimated from the options, and then from the runs; a
// note is sent once and kept in the result.
func TestProgressAndNotes(t *testing.T) {
	var got []Progress
	var notes []string
	s := &sweeper{options: &Options{Warmup: time.Second, Measure: 2 * time.Second, Trace: 3 * time.Second, Progress: func(p Progress) { got = append(got, p) }, Note: func(text string) { notes = append(notes, text) }}, result: &Result{}, notedCodes: map[string]bool{}}
	s.reportProgress(1, 4, Settings{{GOGC, "1"}})
	s.runTime, s.runCount = 10*time.Second, 2
	s.reportProgress(2, 4, nil)
	check.Equal(t, fmt.Sprint(got), fmt.Sprint([]Progress{{1, 4, 24 * time.Second, Settings{{GOGC, "1"}}}, {2, 4, 10 * time.Second, nil}}),
		"%v", got)
	s.noteOnce("a", "first %d", 1)
	s.noteOnce("a", "second")
	s.noteOnce("b", "third")
	if fmt.Sprint(notes) != "[first 1 third]" || len(s.result.Warnings) != 2 || s.result.Warnings[0].Code != "a" || s.result.Warnings[0].Text != "first 1" {
		t.Errorf("%v, %+v", notes, s.result.Warnings)
	}
	quiet := &sweeper{options: &Options{}, result: &Result{}, notedCodes: map[string]bool{}}
	quiet.reportProgress(1, 2, nil)
	quiet.note("x")
	quiet.save()
	full, saves := errors.New("no space"), 0
	s.options.Save = func(*Result) error { saves++; return full }
	notes = nil
	s.save()
	s.save()
	check.True(t, saves == 2 && len(notes) == 1 && strings.HasPrefix(notes[0], "no space; ") && errors.Is(s.saveErr, full),
		"%d times saved: %v, %v", saves, notes, s.saveErr)
	full = nil
	if s.save(); s.saveErr != nil {
		t.Errorf("it could be written in the end: %v", s.saveErr)
	}
}

// TestLoadOfARun: targets, seeds and pace of a run; a share of the service's capacity; a rate for each
// part.
func TestLoadOfARun(t *testing.T) {
	s := &sweeper{options: &Options{Seed: 7, Pace: load.PaceSpin, PaceShared: load.PaceSleep}, loadCPUs: 3, result: &Result{Saturation: map[string]float64{"gogc=1": 400}}}
	targets := []load.Target{{URL: "http://a/"}}
	if o := s.loadOptions(targets, 2); o.Pace != load.PaceSleep || o.Seed != 2007 || o.CPUs != 3 || len(o.Targets) != 1 {
		t.Errorf("%+v", o)
	}
	if s.hasOwnCPUs = true; s.loadOptions(targets, 0).Pace != load.PaceSpin || s.loadOptions(targets, 0).Seed != 7 {
		t.Errorf("%+v", s.loadOptions(targets, 0))
	}
	for want, arm := range map[string]Settings{
		"[{200 200 4s}]":             {{GOGC, "1"}, {LoadShare, "50%"}},
		"[{8 8 4s}]":                 {{GOGC, "1"}, {Rate, "8"}},
		"[{8 8 2s} {10 20 2s}]":      {{GOGC, "1"}, {Rate, "8,10..20"}},
		"[{0 0 4s}] no percentage\n": {{GOGC, "1"}, {LoadShare, "x"}},
	} {
		p, err := s.phases(arm, 4*time.Second)
		got := fmt.Sprint(p)
		if err != nil {
			got += " " + err.Error() + "\n"
		}
		check.Equal(t, got, want, "%s", arm)
	}
	if got := firstReason(&load.Result{}); got != "it does not answer" {
		t.Errorf("%q", got)
	}
	if got := firstReason(&load.Result{Reasons: []load.Reason{{Text: "refused"}, {Text: "x"}}}); got != "refused" {
		t.Errorf("%q", got)
	}
}

// TestEnvironment: settings become the runtime's environment variables, and gctrace is always on.
func TestEnvironment(t *testing.T) {
	for _, c := range []struct {
		base, want string
		arm        Settings
	}{
		{"A=1", "A=1 GODEBUG=gctrace=1", nil},
		{"A=1 GODEBUG=", "A=1 GODEBUG= GODEBUG=gctrace=1", nil},
		{"GODEBUG=x=1", "GODEBUG=x=1 GODEBUG=x=1,gctrace=1", nil},
		{"A=1", "A=1 GOMAXPROCS=2 GOGC=3 GOMEMLIMIT=4MiB B=5 GODEBUG=gctrace=1", Settings{{GOMAXPROCS, "2"}, {GOGC, "3"}, {GOMEMLIMIT, "4MiB"}, {Quota, "1"}, {Memory, "1"}, {Instances, "1"}, {Rate, "1"}, {LoadShare, "1"}, {"B", "5"}}},
		{"GODEBUG=x=1", "GODEBUG=x=1 GODEBUG=y=2 GODEBUG=y=2,gctrace=1", Settings{{"GODEBUG", "y=2"}}},
	} {
		check.Equal(t, strings.Join(environment(strings.Fields(c.base), c.arm), " "), c.want, "%s with %v", c.base, c.arm)
	}
	for address, want := range map[string]string{"http://u:p@h:1/x?y": "http://h:1", "%zz": "%zz"} {
		check.Equal(t, origin(address), want, "%s", address)
	}
	if got := redactURL("http://u:secret@h/") + redactURL("http://u:secret@h%zz/"); strings.Contains(got, "secret") || !strings.Contains(got, "the URL") {
		t.Error(got)
	}
}

// TestReady: any answer with a status below 500 means that the service is ready. A service that ends
// or stays silent is an error.
func TestReady(t *testing.T) {
	in := &instance{process: new(guard.Process), output: new(output)}
	in.output.addLine("no configuration")
	status := 200
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer srv.Close()
	for code, ok := range map[int]bool{200: true, 302: true, 404: true, 499: true, 500: false, 503: false} {
		status = code
		err := in.waitUntilReady(t.Context(), srv.URL, 1)
		check.Equal(t, err == nil, ok, "%d: %v", code, err)
		if want := fmt.Sprintf("the service was not ready within 1ns: %d %s; its last output: no configuration; is --url right", code, http.StatusText(code)); !ok && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := in.waitUntilReady(ended, srv.URL, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	check.Error(t, in.waitUntilReady(t.Context(), "http://%zz", time.Minute), "an address that is none is ready")
	check.True(t, isListening(srv.URL) && isListening(srv.URL+"/x"), "nothing listens where a server does")
	srv.Close()
	for _, free := range []string{srv.URL, "%zz", "http://127.0.0.1:1"} {
		check.False(t, isListening(free), "something listens at %s", free)
	}
}

// TestTail: the last five lines are kept, in bounded length.
func TestTail(t *testing.T) {
	var o output
	if o.lastLines() != "" {
		t.Error(o.lastLines())
	}
	for i := range 7 {
		o.addLine(fmt.Sprint("line ", i))
	}
	o.addLine("gc 1 @1s 0%: 0+0+0 ms clock, 1+2/3/4+5 ms cpu, 4->5->2 MB")
	check.True(t, o.lastLines() == "; its last output: line 2 / line 3 / line 4 / line 5 / line 6" && o.gcs == 1 && o.gcCPU == 11e6,
		"%s, %+v", o.lastLines(), &o)
	var blank output
	if blank.addLine("  "); blank.lastLines() != "" {
		t.Error(blank.lastLines())
	}
}

// TestValues: the ends of each setting's range are allowed.
func TestValues(t *testing.T) {
	for name, c := range map[string]struct{ good, bad []string }{
		GOMAXPROCS: {[]string{"1", "10000"}, []string{"0", "10001", "x"}},
		GOGC:       {[]string{"1", "off", "100000"}, []string{"0", "x"}},
		Memory:     {[]string{"1", "1B", "1TiB", "1kB", "1KiB", "1MB", "1GB"}, []string{"0", "0.5", "1XB", "NaN", "1e30", "-1"}},
		GOMEMLIMIT: {[]string{"1MiB"}, []string{"0MiB"}},
		Quota:      {[]string{"0.01", "10000"}, []string{"0.0099", "10000.1", "NaN"}},
		Instances:  {[]string{"1", "100"}, []string{"0", "101"}},
		Rate:       {[]string{"1", "1..2"}, []string{"0"}},
		LoadShare:  {[]string{"1%", "200%", "50"}, []string{"0%", "201%", "NaN%"}},
		"VARIABLE": {[]string{"", "="}, []string{"\x00"}},
	} {
		for _, v := range c.good {
			if err := checkValue(name, v); err != nil {
				t.Errorf("%s of %q: %v", name, v, err)
			}
		}
		for _, v := range c.bad {
			check.Error(t, checkValue(name, v), "%s of %q is taken", name, v)
		}
	}
	check.True(t, checkValue("", "x") != nil && checkValue("A\x00", "x") != nil, "a name that is none is taken")
	for text, want := range map[string]int64{"1TiB": 1 << 40, "1GiB": 1 << 30, "1MiB": 1 << 20, "1KiB": 1 << 10, "2GB": 2e9, "2MB": 2e6, "2kB": 2e3, "2B": 2, "2": 2} {
		if got, err := words.ParseBytes(text); got != want || err != nil {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	axisOf := func(n int) []Axis {
		var a []string
		for i := range n {
			a = append(a, fmt.Sprint(i))
		}
		return []Axis{{"A", a}, {Rate, []string{"1"}}}
	}
	if arms, err := Arms(axisOf(maxArms)); len(arms) != maxArms || err != nil {
		t.Errorf("%d arms, %v", len(arms), err)
	}
	if _, err := Arms(axisOf(maxArms + 1)); err == nil {
		t.Error("more than the most arms")
	}
	if _, err := Arms([]Axis{{"A", nil}, {Rate, []string{"1"}}}); err == nil {
		t.Error("an axis without values")
	}
}
