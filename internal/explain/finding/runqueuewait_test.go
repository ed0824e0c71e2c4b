package finding

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

func siteOf(fn string) *report.Site { return &report.Site{Func: fn, File: "/src/x.go", Line: 7} }

func ptr[T any](v T) *T { return &v }

// groupWith returns a group of 200 requests of 10 ms, with the same causes in all bands; the time of a cause is that
// of one request.
func groupWith(causes ...report.Cause) report.Group {
	const n = 200
	g := report.Group{ID: "g", Name: "main.handle", Named: true, Kind: report.KindHTTP1, Count: n, TotalNS: n * 10e6, LatencyNS: report.Latency{P50: ptr(int64(10e6)), Max: ptr(int64(12e6))}}
	for _, b := range []report.BandName{report.BandAll, report.Band5090, report.Band9099} {
		count := n
		if b != report.BandAll {
			count = n / 10
		}
		band := report.Band{Band: b, Count: count}
		for _, c := range causes {
			c.Share = float64(c.TotalNS) / 10e6
			c.TotalNS *= int64(count)
			c.Requests = count
			band.Causes = append(band.Causes, c)
		}
		g.Bands = append(g.Bands, band)
	}
	return g
}

func newInput(c process.Stats, groups ...report.Group) *Input {
	if c.SpanNS == 0 {
		c.SpanNS = 10e9
	}
	if c.Procs == 0 {
		c.Procs = 2
	}
	return &Input{Report: &report.Report{Groups: groups, Input: report.Input{GOMAXPROCS: c.Procs, DurationNS: c.SpanNS}}, Process: &c}
}

// findCodes runs all rules and returns the codes of findings above info, those of info, and all findings.
func findCodes(t *testing.T, in *Input) (faults, facts []string, all []report.Finding) {
	all = findWithBounds(t, in, All())
	for _, f := range all {
		if f.Severity == report.SeverityInfo {
			facts = append(facts, string(f.Code))
		} else {
			faults = append(faults, string(f.Code))
		}
	}
	return faults, facts, all
}

// TestManyShortRuns checks what is said about occupants whose runs are short: a loop that only looks whether something happened, and more
// goroutines than their work is worth.
func TestManyShortRuns(t *testing.T) {
	for _, c := range []struct {
		name  string
		runs  process.RunningTime
		title string
	}{
		{"a spin loop", process.RunningTime{NS: 9e9, Count: 1e6, Yields: 99e4}, "spins: it yields 99,000 times a second"},
		{"a loop that does something between yields", process.RunningTime{NS: 9e9, Count: 8e4, Yields: 8e4}, "occupies the CPUs"},
		{"a goroutine for each small thing", process.RunningTime{NS: 9e9, Count: 1e6, Ends: 1e6}, "5,000 goroutines for each request run main.work, for 9µs each"},
		{"goroutines with more work", process.RunningTime{NS: 19e9, Count: 1e6, Ends: 1e6}, "occupies the CPUs"},
		{"few goroutines", process.RunningTime{NS: 9e7, Count: 1e4, Ends: 1e4}, "occupies the CPUs"},
	} {
		c.runs.Start, c.runs.Site = "main.work", siteOf("main.work")
		_, _, all := findCodes(t, newInput(process.Stats{BusyNS: 19e9, RunningTimes: []process.RunningTime{c.runs}}, groupWith(waitingForP(6e6, ranAt("main.work", 0.8)))))
		check.True(t, len(all) > 0 && strings.Contains(all[0].Title, c.title), "%s: %+v", c.name, all)
	}
}

func waitingForP(ns int64, concurrent ...report.Share) report.Cause {
	return report.Cause{Cause: "sched", Site: siteOf("main.handle"), TotalNS: ns, RanMeanwhile: concurrent}
}

func ranAt(fn string, share float64) report.Share {
	return report.Share{Site: siteOf(fn), Share: share}
}

func hostWith(cpus int, busy, delay, cpu int64) *report.Host {
	return &report.Host{Facts: report.HostFacts{CPUs: cpus, Parallelism: cpus}, Lost: report.Lost{BusyNS: &busy, RunDelayNS: &delay, CPUNS: &cpu}}
}

func herdOverlap(waited, time float64) func(string, string) (float64, float64) {
	return func(group, start string) (float64, float64) {
		if group != "g" || start != "main.tick" {
			return 0, 0
		}
		return waited, time
	}
}

// TestOccupants checks which rule a wait for a P belongs to, and which site it names.
func TestOccupants(t *testing.T) {
	spin := process.RunningTime{Start: "main.loop", Site: siteOf("main.spin"), NS: 9e9, Count: 900, LongCount: 890, LongNS: 89e8, LongestNS: 20e6}
	ticks := process.RunningTime{Start: "main.tick", Site: siteOf("main.tick"), NS: 3e9, Count: 1e5}
	herd := process.Herd{Start: "main.tick", Site: siteOf("main.tick"), Times: 50, Wakes: 1e5, Largest: 2000, RanNS: 29e8, ClearNS: 2e9}
	wokenHerd := herd
	wokenHerd.Waker = siteOf("main.send")
	wait := waitingForP(6e6, ranAt("main.spin", 0.8), ranAt("main.tick", 0.2))
	hub := queues.Hub{G: 9, Start: "main.hub", Sites: []*report.Site{siteOf("main.receive")}, LateRuns: 100, DelayedRequests: 300, LateNS: 100 * 6e6}
	hubWait := report.Cause{Cause: "sched", Site: siteOf("main.receive"), Via: []report.Via{{Wait: "chan", Site: siteOf("main.handle")}}, TotalNS: 6e6}
	for _, c := range []struct {
		name   string
		in     *Input
		code   string
		site   string
		share  float64
		change func(*Input)
	}{
		{"Ps always in use", newInput(process.Stats{BusyNS: 19e9, RunningTimes: []process.RunningTime{spin}}, groupWith(wait)), "WL1002", "main.spin", 0.6, nil},
		{"long runs on otherwise free Ps", newInput(process.Stats{BusyNS: 9e9, RunningTimes: []process.RunningTime{spin}}, groupWith(wait)), "WL1007", "main.spin", 0.6, nil},
		{"handshakes, which cannot yield", newInput(process.Stats{BusyNS: 9e9, RunningTimes: []process.RunningTime{{Start: "main.loop", Site: siteOf("crypto/tls.(*Conn).HandshakeContext"), NS: 9e9, Count: 900, LongCount: 890, LongNS: 89e8, LongestNS: 20e6}}},
			groupWith(waitingForP(6e6, ranAt("crypto/tls.(*Conn).HandshakeContext", 1)))), "WL1002", "crypto/tls.(*Conn).HandshakeContext", 0.6, nil},
		// A run of 10 ms whose thread had a CPU for a quarter of it computed for 2.5 ms: yielding more often changes nothing.
		{"short runs that the kernel made long", newInput(process.Stats{BusyNS: 9e9, RunningTimes: []process.RunningTime{spin}}, groupWith(wait)), "WL1002", "main.spin", 0.6, func(in *Input) { in.Report.Host = hostWith(2, 9e9, 1e9, 225e7) }},
		{"long runs that the kernel made longer", newInput(process.Stats{BusyNS: 9e9, RunningTimes: []process.RunningTime{{Start: "main.loop", Site: siteOf("main.spin"), NS: 9e9, Count: 100, LongCount: 90, LongNS: 89e8, LongestNS: 200e6}}}, groupWith(wait)), "WL1007", "main.spin", 0.6,
			func(in *Input) { in.Report.Host = hostWith(2, 9e9, 1e9, 225e7) }},
		{"a herd", newInput(process.Stats{BusyNS: 4e9, RunningTimes: []process.RunningTime{ticks}, Herds: []process.Herd{herd}}, groupWith(waitingForP(6e6, ranAt("main.tick", 0.9)))), "WL1004", "main.tick", 0.6, nil},
		{"a herd that a Broadcast wakes", newInput(process.Stats{BusyNS: 4e9, RunningTimes: []process.RunningTime{ticks}, Herds: []process.Herd{wokenHerd}}, groupWith(waitingForP(6e6, ranAt("main.tick", 0.9)))), "WL1004", "main.send", 0.6, nil},
		{"a herd with a small share of its goroutines' running time", newInput(process.Stats{BusyNS: 19e9, RunningTimes: []process.RunningTime{{Start: "main.tick", Site: siteOf("main.tick"), NS: 9e9}}, Herds: []process.Herd{herd}},
			groupWith(waitingForP(6e6, ranAt("main.tick", 0.9)))), "WL1002", "main.tick", 0.6, nil},
		{"a herd whose goroutines run later as well, with most of the waits in its moments", newInput(process.Stats{BusyNS: 19e9, RunningTimes: []process.RunningTime{{Start: "main.tick", Site: siteOf("main.tick"), NS: 9e9}}, Herds: []process.Herd{herd}},
			groupWith(waitingForP(6e6, ranAt("main.tick", 0.9)))), "WL1004", "main.tick", 0.6, func(in *Input) { in.HerdOverlap = herdOverlap(0.7, 0.1) }},
		{"its moments are a quarter of the time, with nearly all of the waits", newInput(process.Stats{BusyNS: 19e9, RunningTimes: []process.RunningTime{{Start: "main.tick", Site: siteOf("main.tick"), NS: 9e9}}, Herds: []process.Herd{herd}},
			groupWith(waitingForP(6e6, ranAt("main.tick", 0.9)))), "WL1004", "main.tick", 0.6, func(in *Input) { in.HerdOverlap = herdOverlap(0.9, 0.25) }},
		{"its moments are a quarter of the time, with few more of the waits", newInput(process.Stats{BusyNS: 19e9, RunningTimes: []process.RunningTime{{Start: "main.tick", Site: siteOf("main.tick"), NS: 9e9}}, Herds: []process.Herd{herd}},
			groupWith(waitingForP(6e6, ranAt("main.tick", 0.9)))), "WL1002", "main.tick", 0.6, func(in *Input) { in.HerdOverlap = herdOverlap(0.6, 0.25) }},
		{"its moments are most of the time", newInput(process.Stats{BusyNS: 19e9, RunningTimes: []process.RunningTime{{Start: "main.tick", Site: siteOf("main.tick"), NS: 9e9}}, Herds: []process.Herd{herd}},
			groupWith(waitingForP(6e6, ranAt("main.tick", 0.9)))), "WL1002", "main.tick", 0.6, func(in *Input) { in.HerdOverlap = herdOverlap(0.7, 0.6) }},
		{"other goroutines ran in its moments", newInput(process.Stats{BusyNS: 19e9, RunningTimes: []process.RunningTime{spin, {Start: "main.tick", Site: siteOf("main.tick"), NS: 9e9}}, Herds: []process.Herd{herd}},
			groupWith(wait)), "WL1002", "main.spin", 0.6, func(in *Input) { in.HerdOverlap = herdOverlap(0.7, 0.1) }},
		{"mark workers have a share", newInput(process.Stats{BusyNS: 19e9}, groupWith(waitingForP(6e6, ranAt("main.spin", 0.5), ranAt("runtime.gcBgMarkWorker", 0.5)))), "WL1002", "main.spin", 0.3, nil},
		{"the recording is not blamed", newInput(process.Stats{BusyNS: 19e9}, groupWith(waitingForP(6e6, ranAt("main.spin", 0.4), ranAt("runtime.(*traceAdvancerState).start.func1", 0.35), ranAt("main.other", 0.25)))), "WL1002", "main.spin", 0.6, nil},
		{"the recording occupies the Ps", newInput(process.Stats{BusyNS: 19e9}, groupWith(waitingForP(6e6, ranAt("main.spin", 0.4), ranAt("runtime.(*traceAdvancerState).start.func1", 0.4), ranAt("runtime/trace.Start.func1", 0.2)))), "", "", 0, nil},
		{"more CPUs than Ps", newInput(process.Stats{BusyNS: 19e9, RunningTimes: []process.RunningTime{spin}}, groupWith(wait)), "WL1006", "main.spin", 0.6, func(in *Input) { in.Report.Host = hostWith(8, 19e9, 1e9, 19e9) }},
		{"more CPUs than Ps, all in use", newInput(process.Stats{BusyNS: 19e9, RunningTimes: []process.RunningTime{spin}}, groupWith(wait)), "WL1002", "main.spin", 0.6, func(in *Input) { in.Report.Host = hostWith(8, 19e9, 9e9, 19e9) }},
		{"a hub", newInput(process.Stats{BusyNS: 19e9}, groupWith(hubWait)), "WL1001", "main.receive", 0.6, func(in *Input) { in.Hubs = []queues.Hub{hub} }},
		{"a goroutine for each request", newInput(process.Stats{BusyNS: 19e9},
			groupWith(report.Cause{Cause: "sched", Site: siteOf("main.receive"), Via: hubWait.Via, TotalNS: 6e6, RanMeanwhile: wait.RanMeanwhile})), "WL1002", "main.spin", 0.6, func(in *Input) {
			in.Hubs = []queues.Hub{{G: 9, Start: "main.hub", Sites: hub.Sites, LateRuns: 100, DelayedRequests: 100}}
		}},
	} {
		if c.change != nil {
			c.change(c.in)
		}
		faults, _, all := findCodes(t, c.in)
		otherFaults := slices.DeleteFunc(slices.Clone(faults), func(code string) bool { return code == c.code || code == "WL3002" })
		if len(otherFaults) > 0 || slices.Contains(faults, c.code) != (c.code != "") {
			t.Errorf("%s: %v, want %s", c.name, faults, c.code)
			continue
		}
		if c.code == "" {
			continue
		}
		f := all[slices.IndexFunc(all, func(f report.Finding) bool { return string(f.Code) == c.code })]
		check.True(t, f.Site != nil && f.Site.Func == c.site && f.Share >= c.share-0.01 && f.Share <= c.share+0.01 && f.Severity != report.SeverityLow,
			"%s: %s %.2f at %+v, want %.2f at %s", c.name, f.Severity, f.Share, f.Site, c.share, c.site)
	}
}

// TestLongRunsInDependency: a user of a library cannot make its loops yield.
func TestLongRunsInDependency(t *testing.T) {
	compare := siteOf("dep.org/x.compare")
	compare.Module, compare.CalledFrom = "dep.org/x", &report.Caller{Func: "main.diff", File: "/src/x.go", Line: 42, Calls: "dep.org/x.Diff"}
	runs := process.RunningTime{Start: "main.loop", Site: compare, NS: 9e9, Count: 900, LongCount: 890, LongNS: 89e8, LongestNS: 20e6}
	_, _, all := findCodes(t, newInput(process.Stats{BusyNS: 9e9, RunningTimes: []process.RunningTime{runs}}, groupWith(waitingForP(6e6, report.Share{Site: compare, Share: 1}))))
	check.True(t, len(all) == 1 && all[0].Code == report.RuleLongRuns && strings.HasPrefix(all[0].Fix, "make main.diff cheaper"), "%+v", all)
}

// TestWaitsBehindOwnWork: requests that wait behind the work of others of their kind, and mostly do that work themselves, have one fault,
// as severe as its waits; without such waits, the work is perhaps what the service is for.
func TestWaitsBehindOwnWork(t *testing.T) {
	match, count := siteOf("dep.org/lexers.Match"), siteOf("main.count")
	match.Module, match.CalledFrom = "dep.org/lexers", &report.Caller{Func: "main.render", File: "/src/x.go", Line: 42, Calls: "dep.org/lexers.Match"}
	for _, c := range []struct {
		name             string
		occupant         *report.Site
		waitNS           int64
		computing, waits report.Severity
		changes          int
	}{
		{"behind each other", match, 3e6, report.SeverityHigh, report.SeverityLow, 2},
		{"behind other work", count, 3e6, report.SeverityLow, report.SeverityHigh, 1},
		{"not at all", match, 1e3, report.SeverityLow, "", 1},
	} {
		runs := process.RunningTime{Start: "main.loop", Site: c.occupant, NS: 9e9, Count: 900, LongCount: 890, LongNS: 89e8, LongestNS: 20e6}
		in := newInput(process.Stats{BusyNS: 9e9, RunningTimes: []process.RunningTime{runs}}, groupWith(
			report.Cause{Cause: report.CauseCPU, Site: match, SiteFrom: "sample", TotalNS: 10e6 - c.waitNS, Samples: 5000},
			waitingForP(c.waitNS, report.Share{Site: c.occupant, Share: 1})))
		severities := map[report.RuleCode]report.Severity{}
		for _, f := range Find(in, All()) {
			if severities[f.Code] = f.Severity; f.Code == report.RuleComputes {
				check.Equal(t, len(f.Changes), c.changes, "%s: %+v", c.name, f.Changes)
			}
		}
		check.True(t, severities[report.RuleComputes] == c.computing && severities[report.RuleLongRuns] == c.waits, "%s: %v", c.name, severities)
	}
}

// TestPsTakenBounds: on Ps that are mostly idle, waits of less than a millisecond or a twentieth of the time are no fault, and the advice for
// a run is another one.
func TestPsTakenBounds(t *testing.T) {
	for _, c := range []struct {
		kind   report.Kind
		busyNS int64 // of 20 s
		slowNS int64
		share  float64
		fix    textKey // "": no verdict
	}{
		{report.KindHTTP1, 16e9, 1e6 - 1, 0.04, "fix ps-taken"}, {report.KindHTTP1, 16e9 - 1, 1e6, 0.05, "fix ps-taken"},
		{report.KindHTTP1, 16e9 - 1, 1e6 - 1, 0.05, ""}, {report.KindHTTP1, 16e9 - 1, 1e6, 0.04, ""},
		{report.KindRun, 16e9, 1e6, 0.05, "fix ps-taken-in-run"}, {report.KindRun, 16e9 - 1, 1e6, 0.05, "fix ps-idle-in-run"},
	} {
		in := newInput(process.Stats{BusyNS: c.busyNS}, groupWith())
		group := &in.Report.Groups[0]
		group.Kind = c.kind
		want, got := "", ""
		if c.fix != "" {
			want = textOf(c.fix, "function", "main.spin")
		}
		for _, v := range checkPsTaken(in, &runQueueWait{group: group, share: c.share, gain: Gain{Slow: Loss{NS: c.slowNS}}, occupants: []occupant{{site: siteOf("main.spin"), share: 1}}}) {
			got = v.Fix
		}
		check.Equal(t, got, want, "%+v", c)
	}
}

// TestQueuePrediction checks that the prediction is about the sites of waiting requests, not about the occupants, and
// not about waits that a hub's finding predicts.
func TestQueuePrediction(t *testing.T) {
	receive := report.Cause{Cause: "sched", Site: siteOf("main.receive"), Via: []report.Via{{Wait: "chan", Site: siteOf("main.handle")}}, TotalNS: 2e6}
	hub := queues.Hub{G: 9, Start: "main.hub", Sites: []*report.Site{siteOf("main.receive")}, LateRuns: 100, DelayedRequests: 300, LateNS: 100 * 2e6}
	waitAt := func(fn string, ns int64) report.Cause {
		return report.Cause{Cause: "sched", Site: siteOf(fn), TotalNS: ns, RanMeanwhile: []report.Share{ranAt("main.spin", 1)}}
	}
	manySites := []report.Cause{receive}
	for _, fn := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		manySites = append(manySites, waitAt("main."+fn, 1e6))
	}
	for _, c := range []struct {
		name   string
		causes []report.Cause
		hubs   []queues.Hub
		want   []string
	}{
		{"no hub", []report.Cause{waitAt("main.handle", 4e6)}, nil, []string{"sched@=gone"}},
		{"a hub", []report.Cause{receive, waitAt("main.handle", 4e6), waitAt("main.spin", 3e5)}, []queues.Hub{hub}, []string{"sched@main.handle:7=gone", "sched@main.spin:7=gone"}},
		{"too many sites", manySites, []queues.Hub{hub}, nil},
		{"a hub at the same site", []report.Cause{receive, waitAt("main.receive", 4e6)}, []queues.Hub{hub}, nil},
	} {
		in := newInput(process.Stats{BusyNS: 19e9}, groupWith(c.causes...))
		in.Hubs = c.hubs
		var got []string
		isFound := false
		in.Predict = func(_ string, changes []predict.Change) *report.Predicted {
			p := new(report.Predicted)
			for _, c := range changes {
				p.Change += c.String() + " "
			}
			return p
		}
		for _, f := range findAll(t, in, All()) {
			if f.Code == "WL1002" {
				isFound = true
				if f.Predicted != nil {
					got = strings.Fields(f.Predicted.Change)
				}
			}
		}
		check.True(t, isFound && slices.Equal(got, c.want), "%s: %v (found: %v), want %v", c.name, got, isFound, c.want)
	}
}

// TestFreePs checks that rare waits for a P and rare late wake-ups on free Ps are no fault.
func TestFreePs(t *testing.T) {
	group := groupWith(waitingForP(4e6, ranAt("main.handle", 0.9)))
	for i := range group.Bands {
		group.Bands[i].Causes[0].TotalNS /= 10 // 400 us of 10 ms
	}
	if faults, _, _ := findCodes(t, newInput(process.Stats{BusyNS: 4e9}, group)); faults != nil {
		t.Errorf("on free Ps: %v", faults)
	}
	woken := report.Cause{Cause: "sched-wake", Site: siteOf("main.handle"), TotalNS: 300e3}
	g := groupWith(woken)
	for i := range g.Bands {
		g.Bands[i].Causes[0].Share = 0.3
	}
	if faults, facts, _ := findCodes(t, newInput(process.Stats{BusyNS: 4e9}, g)); faults != nil || !slices.Contains(facts, "WL1003") {
		t.Errorf("300 us of wake-up latency: %v, facts %v", faults, facts)
	}
	woken.TotalNS = 3e6
	if faults, _, _ := findCodes(t, newInput(process.Stats{BusyNS: 4e9}, groupWith(woken))); !slices.Equal(faults, []string{"WL1003"}) {
		t.Errorf("3 ms of wake-up latency for each request: %v", faults)
	}
	// Without samples of the host, other processes may have had the CPUs.
	if found := findAll(t, newInput(process.Stats{BusyNS: 4e9}, groupWith(woken)), rulesByCode(report.RuleSlowWakeup)); len(found) != 1 || found[0].Severity != report.SeverityLow {
		t.Errorf("in a bare trace: %+v", found)
	}
}

func TestTooManyPs(t *testing.T) {
	woken := groupWith(report.Cause{Cause: "sched-wake", Site: siteOf("main.handle"), TotalNS: 4e6})
	idle := groupWith(report.Cause{Cause: "sleep", Site: siteOf("main.handle"), TotalNS: 1})
	searching := process.Stats{Procs: 32, BusyNS: 10e9, Samples: process.Samples{All: 1000, Scheduler: 400}}
	for _, c := range []struct {
		name  string
		in    *Input
		fault bool
		fact  bool
	}{
		{"samples in the scheduler, requests that wait to be woken", newInput(searching, woken), true, false},
		{"samples in the scheduler", newInput(searching, idle), false, true},
		{"too few samples", newInput(process.Stats{Procs: 32, BusyNS: 10e9, Samples: process.Samples{All: 90, Scheduler: 80}}, idle), false, false},
		{"two Ps", newInput(process.Stats{Procs: 2, BusyNS: 1e9, Samples: searching.Samples}, idle), false, false},
		{"Ps in use", newInput(process.Stats{Procs: 32, BusyNS: 300e9, Samples: searching.Samples}, idle), false, false},
	} {
		faults, facts, _ := findCodes(t, c.in)
		if slices.Contains(faults, "WL1005") != c.fault || slices.Contains(facts, "WL1005") != c.fact || slices.Contains(faults, "WL1003") {
			t.Errorf("%s: %v, facts %v", c.name, faults, facts)
		}
	}
	in := newInput(process.Stats{Procs: 32, BusyNS: 10e9}, woken)
	in.Report.Host = hostWith(4, 10e9, 5e9, 5e9)
	in.Report.Host.ToNS = 2e9 // five threads were ready at a time
	if faults, _, _ := findCodes(t, in); !slices.Contains(faults, "WL1005") {
		t.Errorf("32 Ps, 4 CPUs, threads that wait for each other: %v", faults)
	}
	in.Report.Host.ToNS = 10e9
	check.False(t, slices.Contains(faultsOf(findCodes(t, in)), "WL1005"),
		"32 Ps, one ready thread at a time: other processes use the 4 CPUs; yet WL1005")
	in.Report.Host.ToNS = 2e9
	in.Report.Host.Series = report.HostSeries{CPUNS: [][2]int64{{1e9, 4e9}, {2e9, 1e9}}, RunDelayNS: [][2]int64{{1e9, 4e9}, {2e9, 1e9}}}
	check.True(t, slices.Contains(faultsOf(findCodes(t, in)), "WL1005"),
		"for most of their waiting, eight threads were ready for four CPUs; yet no WL1005")
	in.Report.Host.Series.CPUNS, in.Report.Host.Series.RunDelayNS = [][2]int64{{1e9, 3e9}, {2e9, 2e9}}, [][2]int64{{1e9, 1e9}, {2e9, 1e9}}
	check.False(t, slices.Contains(faultsOf(findCodes(t, in)), "WL1005"), "never more than four threads were ready for four CPUs; yet WL1005")
	if in.Report.Host = hostWith(64, 10e9, 5e9, 5e9); slices.Contains(faultsOf(findCodes(t, in)), "WL1005") {
		t.Error("other processes use the CPUs, of which there are more than Ps; yet WL1005")
	}
}

func faultsOf(list, _ []string, _ []report.Finding) []string { return list }

// TestComputes checks the severity of computing: by the time of slow requests against others, and by CPU samples.
func TestComputes(t *testing.T) {
	heavy := func(from string, sampledShare float64) report.Group {
		g := groupWith(report.Cause{Cause: "cpu", Site: siteOf("main.parse"), SiteFrom: from, TotalNS: 9e6})
		// A typical request computes for 1 ms, a slow one for 18 ms.
		g.LatencyNS.P50 = ptr(int64(1e6))
		for i := range g.Bands {
			b := &g.Bands[i]
			per := int64(1e6)
			if b.Band == report.Band9099 {
				per = 18e6
			}
			b.Causes[0].TotalNS = per * int64(b.Count)
			b.Causes[0].Samples = int(float64(b.Causes[0].TotalNS) * sampledShare / report.SampleNS)
		}
		return g
	}
	// longer returns a group whose slow requests compute for a multiple of the typical 10 ms.
	longer := func(times float64) report.Group {
		g := heavy("sample", 0.9)
		g.LatencyNS.P50 = ptr(int64(10e6))
		for i := range g.Bands {
			b := &g.Bands[i]
			per := 10e6
			if b.Band == report.Band9099 {
				per *= times
			}
			b.Causes[0].TotalNS = int64(per) * int64(b.Count)
			b.Causes[0].Samples = int(float64(b.Causes[0].TotalNS) * 0.9 / report.SampleNS)
		}
		return g
	}
	computeAt := func(s *report.Site, sampledShare float64) report.Group {
		g := longer(1.5)
		for i := range g.Bands {
			c := &g.Bands[i].Causes[0]
			c.Site, c.Samples = s, int(float64(c.Samples)*sampledShare)
		}
		return g
	}
	calledLibrary := siteOf("dep.org/x.Do")
	calledLibrary.Module, calledLibrary.CalledFrom = "dep.org/x", &report.Caller{Func: "main.parse", File: "/src/x.go", Line: 9, Calls: "dep.org/x.Do"}
	hash := siteOf("golang.org/x/crypto/bcrypt.CompareHashAndPassword")
	hash.Module, hash.CalledFrom = "golang.org/x/crypto", &report.Caller{Func: "main.verify", File: "/src/x.go", Line: 9, Calls: hash.Func}
	libraryOnly := siteOf("dep.org/x.Do")
	libraryOnly.Module = "dep.org/x"
	all := func(ns int64) report.Group {
		return groupWith(report.Cause{Cause: "cpu", Site: siteOf("main.parse"), SiteFrom: "sample", TotalNS: ns})
	}
	for _, c := range []struct {
		name string
		g    report.Group
		want report.Severity
	}{
		{"four times as long", longer(4), report.SeverityHigh},
		{"two and a half times as long", longer(2.5), report.SeverityLow},
		{"half as long again", longer(1.5), report.SeverityLow},
		{"half as long again, in a called library", computeAt(calledLibrary, 1), report.SeverityLow},
		{"a password's hash", computeAt(hash, 1), report.SeverityInfo},
		{"in a library's goroutine", computeAt(libraryOnly, 1), report.SeverityInfo},
		{"in the standard library", computeAt(siteOf("net/http.(*conn).serve"), 1), report.SeverityInfo},
		{"half as long again, samples for a tenth of it", computeAt(siteOf("main.parse"), 0.1), report.SeverityInfo},
		{"only slow ones compute, by samples", heavy("sample", 0.9), report.SeverityLow},
		{"slow ones run longer, but have no CPU sample", heavy("bracket", 0), report.SeverityInfo},
		{"slow ones run longer, each with a sample, but samples cover a tenth of it", heavy("sample", 0.1), report.SeverityInfo},
		{"all compute", all(9e6), report.SeverityInfo},
		{"little", all(1e6), ""},
	} {
		_, _, list := findCodes(t, newInput(process.Stats{BusyNS: 4e9}, c.g))
		got := report.Severity("")
		for i := range list {
			if f := &list[i]; f.Code == report.RuleComputes {
				check.True(t, f.Decided == nil || f.Decided.Share <= 1, "%s: decided by %+v, more than all of their time", c.name, f.Decided)
				if got = f.Severity; f.Site.CalledFrom != nil && f.Title != "x.Do, called from main.parse, computes" && !strings.HasPrefix(f.Fix, "nothing, if the hash's cost is intended") {
					t.Errorf("%s: %s: %s", c.name, f.Title, f.Fix)
				}
			}
		}
		check.Equal(t, got, c.want, "%s", c.name)
	}
	// A new picture takes what its size asks for.
	decodes := map[string]*process.SampledFunc{"main.parse": {Samples: 10, ByCall: map[string]process.CallSamples{"image/jpeg.Decode": {Samples: 8, Depth: 8}}}}
	_, _, list := findCodes(t, newInput(process.Stats{BusyNS: 4e9, SampledFuncs: decodes}, heavy("sample", 0.9)))
	check.True(t, len(list) == 1 && list[0].Severity == report.SeverityLow && strings.HasPrefix(list[0].Fix, "keep each result"), "pictures: %+v", list)
	// Time that is no request's latency is a fact, and so are less than a few ms.
	in := newInput(process.Stats{BusyNS: 4e9}, longer(1.5))
	in.UnawaitedGroups = map[string]bool{in.Report.Groups[0].ID: true}
	if _, facts, _ := findCodes(t, in); !slices.Contains(facts, "WL1008") {
		t.Errorf("unawaited iterations: %v", facts)
	}
	brief := longer(0.19)
	if _, facts, _ := findCodes(t, newInput(process.Stats{BusyNS: 4e9}, brief)); !slices.Contains(facts, "WL1008") {
		t.Errorf("1.9 ms: %v", facts)
	}
}

// TestComputesInCall: computing in a function of the standard library is named, with advice for that function, if enough samples show it.
func TestComputesInCall(t *testing.T) {
	for _, c := range []struct {
		samples    map[string]process.CallSamples
		title, fix string
	}{
		{map[string]process.CallSamples{"encoding/json.Unmarshal": {Samples: 8, Depth: 8}}, "main.parse, mostly in json.Unmarshal, computes", "keep what was parsed"},
		{map[string]process.CallSamples{"strings.Repeat": {Samples: 8, Depth: 8}}, "main.parse, mostly in strings.Repeat, computes", "make main.parse cheaper"},
		{map[string]process.CallSamples{"encoding/json.Unmarshal": {Samples: 5, Depth: 5}, "strings.Repeat": {Samples: 3, Depth: 3}}, "main.parse computes", "make main.parse cheaper"},
	} {
		g := groupWith(report.Cause{Cause: "cpu", Site: siteOf("main.parse"), SiteFrom: "sample", TotalNS: 9e6})
		_, _, list := findCodes(t, newInput(process.Stats{BusyNS: 4e9, SampledFuncs: map[string]*process.SampledFunc{"main.parse": {Samples: 10, ByCall: c.samples}}}, g))
		if len(list) != 1 || list[0].Title != c.title || !strings.HasPrefix(list[0].Fix, c.fix) {
			t.Errorf("%v: %+v", c.samples, list)
		}
	}
}

// TestBusyMachine checks that other processes' use of the CPUs is reported if there is evidence of it, and before the
// findings that it makes worse. Without evidence, a wait for a CPU is not attributed to other processes.
func TestBusyMachine(t *testing.T) {
	slow := func() report.Group {
		return groupWith(report.Cause{Cause: "cpu", Site: siteOf("main.handle"), TotalNS: 8e6}, report.Cause{Cause: "sched-wake", Site: siteOf("main.handle"), TotalNS: 4e6})
	}
	host := func(procsNS, machine int64) *report.Host {
		h := hostWith(2, 2e9, 1e9, procsNS)
		h.ToNS, h.Lost.MachineNS = 2e9, &machine
		return h
	}
	for _, c := range []struct {
		name  string
		host  *report.Host
		procs int
		fault bool
	}{
		{"others use more than the service", host(1e9, 39e8), 2, true},
		{"no other process", host(1e9, 11e8), 2, false},
		{"others use little", host(1e9, 15e8), 2, false},
		{"an old recording, no more Ps than CPUs", hostSpan(hostWith(2, 2e9, 1e9, 1e9), 2e9), 2, true},
		{"an old recording, more Ps than CPUs", hostSpan(hostWith(2, 2e9, 1e9, 1e9), 2e9), 8, false},
		{"threads found CPUs", hostSpan(hostWith(2, 2e9, 1e8, 2e9), 2e9), 2, false},
		{"no samples", nil, 2, false},
	} {
		in := newInput(process.Stats{Procs: c.procs, BusyNS: 2e9}, slow())
		in.Report.Host = c.host
		faults, _, _ := findCodes(t, in)
		if got := slices.Contains(faults, "WL1009"); got != c.fault || got && faults[0] != "WL1009" || got && slices.Contains(faults, "WL1003") {
			t.Errorf("%s: %v", c.name, faults)
		}
	}
}

// TestCPUsOfServiceOnBusyMachine: the evidence names the CPUs that the service used while the kernel's counters were read, which
// may begin long after the recording.
func TestCPUsOfServiceOnBusyMachine(t *testing.T) {
	in := newInput(process.Stats{Procs: 2, BusyNS: 2e9}, groupWith(report.Cause{Cause: "cpu", Site: siteOf("main.handle"), TotalNS: 8e6}))
	in.Report.Host = hostSpan(hostWith(2, 2e9, 1e9, 1e9), 2e9)
	in.Report.Host.Lost.MachineNS = ptr(int64(39e8))
	in.Report.Host.FromNS, in.Report.Host.ToNS = 5e9, 7e9
	used := func(e report.Evidence) bool { return e.Text == textOf("evidence service-cpus") && e.Value == 0.5 }
	_, _, all := findCodes(t, in)
	check.True(t, slices.ContainsFunc(all, func(f report.Finding) bool { return slices.ContainsFunc(f.Evidence, used) }), "1 s of CPU time in 2 s: %+v", all)
}

// TestObservedCPUWaits: by the kernel's events, other processes took only the time in which they had the CPU. Waits for the
// service's own threads, and waits for a peer, are not theirs.
func TestObservedCPUWaits(t *testing.T) {
	waited := func(c report.CauseName, process string) report.Cause {
		return report.Cause{Cause: c, Kind: process, Site: siteOf("main.handle"), TotalNS: 4e6}
	}
	for _, c := range []struct {
		name   string
		causes []report.Cause
		want   float64 // of the 4 ms of each wait
	}{
		{"a batch job had the CPU", []report.Cause{waited(report.CauseCPUWait, "batch")}, 4e6},
		{"also own threads", []report.Cause{waited(report.CauseCPUWait, "batch"), waited(report.CauseCPUWait, report.OwnThreads)}, 4e6},
		{"also a process without a name", []report.Cause{waited(report.CauseCPUWait, "batch"), waited(report.CauseCPUWait, "")}, 4e6},
		{"also a peer", []report.Cause{waited(report.CauseCPUWait, "batch"), waited(report.CauseNetwork, "outbound")}, 4e6},
		{"own threads alone", []report.Cause{waited(report.CauseCPUWait, report.OwnThreads)}, 0},
	} {
		in := newInput(process.Stats{}, groupWith(c.causes...))
		in.Report.Kernel = &report.Kernel{Coverage: 1, RunningNS: 10e9, CPUNS: 6e9, CPUWaitNS: 4e9, Processes: []report.ProcessShare{{Process: "batch", Share: 0.75}, {Process: report.OwnThreads, Share: 0.25}}}
		got, verdicts := 0., checkBusyMachine(in)
		check.Equal(t, len(verdicts) > 0, c.want > 0, "%s: a verdict", c.name)
		for _, v := range verdicts {
			got += v.Evidence[0].Value
			check.True(t, v.Evidence[1].Value == 0.3, "%s: batch had a CPU for 3 s of 10 s, not %v", c.name, v.Evidence[1].Value)
		}
		check.Equal(t, got, c.want, "%s", c.name)
	}
	in := newInput(process.Stats{}, groupWith(waited(report.CauseCPUWait, "first"), waited(report.CauseCPUWait, "second")))
	in.Report.Kernel = &report.Kernel{Coverage: 1, RunningNS: 10e9, CPUNS: 9e9, CPUWaitNS: 1e9, Processes: []report.ProcessShare{{Process: "first", Share: 0.5}, {Process: "second", Share: 0.05}, {Process: "third", Share: 0.04}, {Process: "fourth", Share: 0.41}}}
	list := checkBusyMachine(in)
	check.True(t, len(list) == 1 && strings.Contains(list[0].Title, "first") && len(list[0].Evidence) == 4, "%+v", list)
	in.Report.Kernel.CPUWaitNS = 5e8
	for i := range in.Report.Groups[0].Bands {
		in.Report.Groups[0].Bands[i].Causes[1].TotalNS *= 2
	}
	list = checkBusyMachine(in)
	check.True(t, len(list) == 1 && strings.Contains(list[0].Title, "second"), "%+v", list)
	_, ok := measureOtherLoad(in)
	check.True(t, ok, "others had a CPU for 5 %% of the running time")
	for _, k := range []report.Kernel{{Coverage: 1, CPUNS: 1, CPUWaitNS: 1}, {Coverage: 1, RunningNS: 1}} {
		load, ok := observedLoad(&k)
		check.True(t, !ok && load == otherLoad{}, "%+v", load)
	}
}

// TestObservedOwnThreads: by the kernel's events, more Ps than CPUs cost the time in which the service's own threads had the CPU,
// and not the time in which another process had it.
func TestObservedOwnThreads(t *testing.T) {
	for own, want := range map[float64]bool{0.25: true, 0.01: false} {
		in := newInput(process.Stats{Procs: 8}, groupWith(report.Cause{Cause: report.CauseCPUWait, Kind: "batch", Site: siteOf("main.handle"), TotalNS: 4e6}))
		in.Report.Host = hostWith(2, 6e9, 4e9, 6e9)
		in.Report.Kernel = &report.Kernel{Coverage: 1, RunningNS: 10e9, CPUNS: 6e9, CPUWaitNS: 4e9, Processes: []report.ProcessShare{{Process: "batch", Share: 1 - own}, {Process: report.OwnThreads, Share: own}}}
		got := checkTooManyPs(in)
		check.Equal(t, len(got) == 1, want, "own threads had the CPU for %g of the waits: %+v", own, got)
		check.True(t, !want || slices.ContainsFunc(got[0].Evidence, func(e report.Evidence) bool {
			return e.Text == textOf("evidence threads-without-cpu") && math.Abs(e.Value-own*0.4) < 1e-9
		}), "%g of 4 s in 10 s: %+v", own, got)
	}
}

// TestOtherLoadShares checks that other processes get the share of the threads' waits for a CPU that they have in the
// CPU time. Waits of the service's threads for each other are not theirs, and threads that are woken next to idle CPUs
// did not run without one.
func TestOtherLoadShares(t *testing.T) {
	const span = int64(2e9)
	for _, c := range []struct {
		name                       string
		busy, delay, cpu, otherCPU int64 // of two CPUs for two seconds
		waitShare, lostShare       float64
		hasOtherLoad               bool
	}{
		{"eight Ps, and no other process", 15e9, 12e9, 39e8, 0, 0, 0, false},
		{"eight Ps, and others use a fifth of the machine", 15e9, 12e9, 31e8, 85e7, 0.171, 0.171, true},
		{"others use nearly all of it", 2e9, 3e9, 5e8, 35e8, 0.75, 0.656, true},
		{"woken threads, on a busy machine", 1e8, 4e8, 2e8, 37e8, 0.632, 0, true},
		{"woken threads, on an idle machine", 1e8, 4e8, 2e8, 1e8, 0, 0, false},
	} {
		in := newInput(process.Stats{Procs: 8, BusyNS: c.busy})
		in.Report.Host = hostSpan(hostWith(2, c.busy, c.delay, c.cpu), span)
		machine := c.cpu + c.otherCPU
		in.Report.Host.Lost.MachineNS = &machine
		n, hasOtherLoad := measureOtherLoad(in)
		if hasOtherLoad != c.hasOtherLoad || hasOtherLoad && (math.Abs(n.waitShare-c.waitShare) > 0.005 || math.Abs(n.lostShare-c.lostShare) > 0.005) {
			t.Errorf("%s: %v %+v, want %v, off %v, lost %v", c.name, hasOtherLoad, n, c.hasOtherLoad, c.waitShare, c.lostShare)
		}
	}
}

// TestMeasureOtherLoad: the load of other processes by each set of the kernel's counters, and its bounds. Two CPUs were in use for two seconds, for one by the service, whose goroutines ran for four and whose threads waited for two.
func TestMeasureOtherLoad(t *testing.T) {
	base := func() *Input {
		in := newInput(process.Stats{Procs: 2, BusyNS: 4e9})
		in.Report.Host = hostSpan(hostWith(2, 4e9, 2e9, 1e9), 2e9)
		in.Report.Host.Lost.MachineNS = ptr(int64(4e9))
		return in
	}
	type lost = report.Lost
	const none = "0 0 0, 0 CPUs, 0 false"
	for _, c := range []struct {
		change func(*lost)
		host   func(*report.Host)
		want   string // waitShare wakeShare lostShare, cpus, confidence, and whether it counts
	}{
		{nil, nil, "0.5 0.75 0.375, 1.5 CPUs, 0.9 true"},
		{nil, func(h *report.Host) { h.FromNS, h.ToNS = 1e9, 3e9 }, "0.5 0.75 0.375, 1.5 CPUs, 0.9 true"},
		{nil, func(h *report.Host) { h.ToNS = h.FromNS }, none},
		{func(l *lost) { l.BusyNS = nil }, nil, none},
		{func(l *lost) { l.BusyNS = ptr(int64(0)) }, nil, none},
		{func(l *lost) { l.CPUNS = nil }, nil, none},
		{func(l *lost) { l.RunDelayNS = nil }, nil, none},
		{func(l *lost) { l.RunDelayNS = ptr(int64(4e8)) }, nil, "0.2143 0.75 0.075, 1.5 CPUs, 0.9 false"},
		{func(l *lost) { l.RunDelayNS = ptr(int64(4e8 - 1)) }, nil, none},
		{func(l *lost) { l.RunQueueNS = ptr(int64(1e9)) }, nil, "0.375 0.75 0.1875, 1.5 CPUs, 0.9 true"},
		{func(l *lost) { l.QuotaNS = ptr(int64(0)) }, nil, "0.5 0.75 0.375, 1.5 CPUs, 0.9 true"},
		{func(l *lost) { l.QuotaNS = ptr(int64(1)) }, nil, none},
		{func(l *lost) { l.QuotaNS, l.RunQueueNS = ptr(int64(1e9)), ptr(int64(2e9)) }, nil, "0.5 0.75 0.375, 1.5 CPUs, 0.9 true"},
		{func(l *lost) { l.LongDelayNS = ptr(int64(1e9)) }, nil, "0.375 0.375 0.375, 1.5 CPUs, 0.9 true"},
		{func(l *lost) { l.LongDelayNS = ptr(int64(9e9)) }, nil, "0.5 0.75 0.375, 1.5 CPUs, 0.9 true"},
		{func(l *lost) { l.MachineNS = ptr(int64(1e9)) }, nil, "0.6667 1 0.5, 0 CPUs, 0.9 false"},
		{func(l *lost) { l.MachineNS = ptr(int64(1)) }, nil, "0.6667 1 0.5, 0 CPUs, 0.9 false"},
		{func(l *lost) { l.MachineNS, l.RunDelayNS = ptr(int64(26e8)), ptr(int64(1e9)) }, nil, "0.3077 0.6154 0.1538, 0.8 CPUs, 0.9 true"},
		{func(l *lost) { l.MachineNS, l.RunDelayNS = ptr(int64(26e8-1)), ptr(int64(1e9)) }, nil, "0.3077 0.6154 0.1538, 0.8 CPUs, 0.9 false"},
		{nil, func(h *report.Host) { h.Facts.CPUs = 5 }, "0.5 0.75 0.375, 1.5 CPUs, 0.9 false"},
		{func(l *lost) { l.PressureNS = ptr(int64(4e8)) }, func(h *report.Host) { h.Facts.CPUs = 5 }, "0.5 0.75 0.375, 1.5 CPUs, 0.9 true"},
		{func(l *lost) { l.PressureNS = ptr(int64(4e8 - 1)) }, func(h *report.Host) { h.Facts.CPUs = 5 }, "0.5 0.75 0.375, 1.5 CPUs, 0.9 false"},
		{func(l *lost) { l.MachineNS = ptr(int64(18e8)) }, nil, "0.2963 0.4444 0.2222, 0.4 CPUs, 0.9 true"},
		{func(l *lost) { l.MachineNS = ptr(int64(18e8 - 1)) }, nil, "0.2963 0.4444 0.2222, 0.4 CPUs, 0.9 false"},
		{func(l *lost) { l.MachineNS = nil }, nil, "0.5 0.75 0.375, 0 CPUs, 0.7 true"},
		{nil, func(h *report.Host) { h.Facts.CPUs = 0 }, "0.6667 1 0.5, 0 CPUs, 0.7 true"},
		{func(l *lost) { l.MachineNS = nil }, func(h *report.Host) { h.Facts.Parallelism = 1 }, "0.5 0.75 0.375, 0 CPUs, 0.7 false"},
		{func(l *lost) { l.MachineNS = nil }, func(h *report.Host) { h.Facts.Parallelism = 0 }, "0.5 0.75 0.375, 0 CPUs, 0.7 false"},
		{func(l *lost) { l.MachineNS = nil }, func(h *report.Host) { h.Quota.Periods, h.Quota.ThrottledPeriods = 2, 1 }, none},
		{func(l *lost) { l.MachineNS = nil }, func(h *report.Host) { h.Quota.Periods, h.Quota.ThrottledPeriods = 3, 1 }, "0.5 0.75 0.375, 0 CPUs, 0.7 true"},
		{func(l *lost) { l.MachineNS, l.CPUNS, l.RunDelayNS = nil, ptr(int64(2e9)), ptr(int64(16e8)) }, nil, "0.2222 0.5 0.2, 0 CPUs, 0.7 true"},
		{func(l *lost) { l.MachineNS, l.CPUNS, l.RunDelayNS = nil, ptr(int64(2e9)), ptr(int64(16e8-2)) }, nil, "0.2222 0.5 0.2, 0 CPUs, 0.7 false"},
	} {
		in := base()
		if c.change != nil {
			c.change(&in.Report.Host.Lost)
		}
		if c.host != nil {
			c.host(in.Report.Host)
		}
		load, ok := measureOtherLoad(in)
		check.Equal(t, fmt.Sprintf("%.4g %.4g %.4g, %.4g CPUs, %g %v", load.waitShare, load.wakeShare, load.lostShare, load.cpus, load.confidence, ok), c.want, "%+v", in.Report.Host)
	}
}

// TestPreemptedHolder: a holder that computes at a few moments, while the service's threads wait for CPUs of other processes most of the
// time, perhaps had no CPU.
func TestPreemptedHolder(t *testing.T) {
	for _, c := range []struct {
		moments map[string]int
		delayNS int64
		loud    bool
	}{
		{map[string]int{"g": 2}, 2e9, false}, {map[string]int{"g": 20}, 2e9, true}, {nil, 2e9, true}, {map[string]int{"g": 2}, 1e6, true},
	} {
		rep := oneGroup(report.Cause{Cause: "cpu", Site: site("hold@3"), Via: via("lock get@2 sync.(*Mutex).Lock"), TotalNS: ms(4000)})
		in := &Input{Report: rep, Process: &process.Stats{Procs: 2, BusyNS: 1e9}, OutlierMoments: c.moments}
		rep.Host = hostSpan(hostWith(2, 1e9, c.delayNS, 2e8), 2e9)
		rep.Host.Lost.MachineNS = ptr(int64(4e9))
		found := findAll(t, in, rulesByCode(report.RuleLockConvoy))
		check.True(t, len(found) == 1 && found[0].Severity.IsMajor() == c.loud && (found[0].DoubtedBy == report.RuleBusyMachine) != c.loud, "%+v: %+v", c, found)
	}
}

// TestMorePsThanCPUs checks that with more Ps than CPUs the excess of Ps comes first, before the collector and
// computing. Other processes come first only if they leave no CPU time unused.
func TestMorePsThanCPUs(t *testing.T) {
	for _, c := range []struct {
		name          string
		procs         int
		cpu, otherCPU int64 // of 8 s of the two CPUs
		want          string
	}{
		{"24 Ps, CPUs to spare", 24, 3.5e9, 3e9, "WL1005"},
		{"24 Ps, others use the rest", 24, 1e9, 6.5e9, "WL1009"},
		{"24 Ps that have a CPU when they run", 24, 7.5e9, 0, "WL3001"},
		{"two Ps, others use the rest", 2, 5e9, 2.9e9, "WL3001"},
	} {
		assist := report.Cause{Cause: report.CauseGCAssist, Site: siteOf("main.handle"), TotalNS: 40e6}
		woken := report.Cause{Cause: report.CauseSchedWake, Site: siteOf("main.handle"), TotalNS: 1e6}
		in := newInput(process.Stats{Procs: c.procs, BusyNS: 8e9, SpanNS: 4e9}, groupWith(assist, woken))
		in.Report.Host = hostSpan(hostWith(2, 8e9, 20e9, c.cpu), 4e9)
		machine := c.cpu + c.otherCPU
		in.Report.Host.Facts.CPUs, in.Report.Host.Lost.MachineNS = 2, &machine
		var got []string
		for _, f := range findAll(t, in, All()) {
			got = append(got, string(f.Code))
		}
		check.True(t, len(got) != 0 && got[0] == c.want, "%s: %v, want %s first", c.name, got, c.want)
	}
}

// TestPsTakenBeforeTooManyPs checks that waits behind goroutines that occupy the Ps come first, because they would be
// as long with fewer Ps.
func TestPsTakenBeforeTooManyPs(t *testing.T) {
	woken := report.Cause{Cause: report.CauseSchedWake, Site: siteOf("main.handle"), TotalNS: 3e6}
	in := newInput(process.Stats{Procs: 24, BusyNS: 190e9}, groupWith(waitingForP(40e6, ranAt("main.spin", 1)), woken))
	in.Report.Host = hostSpan(hostWith(2, 8e9, 20e9, 35e8), 4e9)
	machine := int64(65e8)
	in.Report.Host.Facts.CPUs, in.Report.Host.Lost.MachineNS = 2, &machine
	if faults, _, _ := findCodes(t, in); len(faults) < 2 || faults[0] != "WL1002" || !slices.Contains(faults, "WL1005") {
		t.Errorf("%v, want WL1002 first, and WL1005", faults)
	}
}

func hostSpan(h *report.Host, to int64) *report.Host {
	h.ToNS = to
	return h
}

// TestQuotaBeforeBusyMachine checks that the service's own quota comes first: threads that it releases at the same
// time wait for each other, and goroutines behind throttled ones wait for a P.
func TestQuotaBeforeBusyMachine(t *testing.T) {
	wait := waitingForP(6e6, ranAt("main.spin", 1))
	spin := process.RunningTime{Start: "main.loop", Site: siteOf("main.spin"), NS: 9e9, Count: 900, LongCount: 890, LongNS: 89e8, LongestNS: 20e6}
	for _, c := range []struct {
		name      string
		throttled int64
		busy      bool
	}{
		{"throttled in most periods", 16, false},
		{"throttled in few periods", 4, true},
	} {
		in := newInput(process.Stats{Procs: 2, BusyNS: 2e9, RunningTimes: []process.RunningTime{spin}}, groupWith(wait, report.Cause{Cause: "throttle", Site: siteOf("main.handle"), TotalNS: 35e5}))
		h := hostSpan(hostWith(2, 2e9, 1e9, 1e9), 2e9)
		quota, queue := int64(4e8), int64(6e8)
		h.Lost.QuotaNS, h.Lost.RunQueueNS, h.Facts.QuotaCPUs = &quota, &queue, 0.5
		h.Quota = report.HostQuota{Verdict: report.ThrottleOwn, Periods: 21, ThrottledPeriods: c.throttled}
		in.Report.Host = h
		in.Report.Runtime.Throttle = report.Throttle{Verdict: report.ThrottleOwn, Confidence: 1, LostCPUNS: quota, CPUs: 2}
		faults, _, all := findCodes(t, in)
		check.True(t, len(faults) >= 2 && faults[0] == "WL4001" && slices.Contains(faults, "WL1009") == c.busy,
			"%s: %v, want WL4001 first, and WL1009: %v", c.name, faults, c.busy)
		for _, f := range all {
			isExplained := func(e report.Evidence) bool { return strings.HasPrefix(e.Text, "less than it seems") }
			check.False(t, f.Code == report.RulePsTaken && !slices.ContainsFunc(f.Evidence, isExplained),
				"%s: the evidence does not state what the time of %s is due to: %+v", c.name, f.Code, f.Evidence)
		}
	}
}

// TestBusyMachineOrder checks that of one severity a busy machine comes first, except before a fault of the service
// with a far larger loss.
func TestBusyMachineOrder(t *testing.T) {
	for _, c := range []struct {
		code   report.RuleCode
		lossNS int64 // against 10 for the machine
		want   report.RuleCode
	}{
		{report.RulePsTaken, 29, report.RuleBusyMachine}, {report.RulePsTaken, 31, report.RulePsTaken},
		{report.RuleLockConvoy, 9, report.RuleBusyMachine}, {report.RuleLockConvoy, 11, report.RuleLockConvoy}, // a lock's waits do not depend on the machine
	} {
		all := []Verdict{
			{Finding: report.Finding{Code: "WL2001", Severity: report.SeverityHigh}},
			{Finding: report.Finding{Code: c.code, Severity: report.SeverityMedium}, Gain: Gain{TotalNS: c.lossNS}},
			{Finding: report.Finding{Code: report.RuleBusyMachine, Severity: report.SeverityMedium}, Gain: Gain{TotalNS: 10}},
		}
		if (&Input{Report: &report.Report{}}).sortVerdicts(all); all[0].Code != "WL2001" || all[1].Code != c.want {
			t.Errorf("%d against 10: %v, %v", c.lossNS, all[0].Code, all[1].Code)
		}
	}
}

// TestMajorityExplained checks that findings about the collector and the scheduler are at most low if the process had
// no CPU for the larger part of its running time, whatever the reason. If it is the smaller part, they keep their
// severity.
func TestMajorityExplained(t *testing.T) {
	span := int64(4e9)
	for _, c := range []struct {
		name          string
		procs         int
		cpu, otherCPU int64   // of 8 s of the two CPUs; 0: no host samples
		offCPUShare   float64 // by CPU samples
		isLoud        bool
	}{
		{"others use most", 2, 1e9, 65e8, 0, false},
		{"others use a fifth", 2, 6e9, 19e8, 0, true},
		{"others and more Ps than CPUs, a third each", 24, 25e8, 5e9, 0, false},
		{"the reason is unknown", 2, 0, 0, 0.7, false},
		{"a trace alone", 2, 0, 0, 0, true},
	} {
		assist := report.Cause{Cause: report.CauseGCAssist, Site: siteOf("main.handle"), TotalNS: 60e6}
		stats := process.Stats{Procs: c.procs, BusyNS: 8e9, SpanNS: span}
		stats.GC = process.GC{Cycles: 400, MeasuredCycles: 400, LiveBytes: 8e6, GoalBytes: 16e6, MarkNS: 2e9}
		in := newInput(stats, groupWith(assist, waitingForP(60e6, ranAt("main.spin", 1))))
		in.Report.Runtime.Sched.WithoutCPU = c.offCPUShare
		if c.cpu > 0 {
			machine := c.cpu + c.otherCPU
			in.Report.Host = hostSpan(hostWith(2, 8e9, 20e9, c.cpu), span)
			in.Report.Host.Lost.MachineNS = &machine
		}
		count := 0
		for _, f := range findAll(t, in, All()) {
			if f.Code != report.RuleGCTooFrequent && (f.Code != report.RulePsTaken || c.procs > 2) {
				continue
			}
			count++
			check.Equal(t, f.Severity.IsMajor(), c.isLoud, "%s: %s %s", c.name, f.Severity, f.Code)
			if hasReason := slices.ContainsFunc(f.Evidence, func(e report.Evidence) bool { return strings.HasPrefix(e.Text, "less than it seems") }); !c.isLoud && !hasReason {
				t.Errorf("%s: %s has no reason for its low severity", c.name, f.Code)
			}
		}
		check.True(t, count != 0, "%s: no finding about the collector", c.name)
	}
}

// TestBurst checks that waits behind other requests on mostly idle Ps are reported as a burst of clients, at the site
// of the computing and not at the call in which a run ended. Waits behind other goroutines, or on busy Ps, keep their
// severity.
func TestBurst(t *testing.T) {
	for _, c := range []struct {
		name       string
		busy       int64 // of 20 s
		concurrent string
		isLoud     bool
		site       string
	}{
		{"requests on idle Ps", 2e9, "main.ask", false, "main.compute"},
		{"requests on Ps that are in use", 12e9, "main.ask", true, "main.ask"},
		{"others on idle Ps", 2e9, "main.refresh", true, "main.refresh"},
		{"goroutines of others in the function of requests", 2e9, "main.shade", true, "main.shade"},
		{"goroutines of requests", 2e9, "main.part", false, "main.compute"},
		{"jobs in the function of requests", 2e9, "main.work", true, "main.work"},
	} {
		shades := report.Cause{Cause: report.CauseCPU, Site: siteOf("main.shade"), TotalNS: 1e6}
		parts := report.Cause{Cause: report.CauseCPU, Site: siteOf("main.part"), TotalNS: 1e6, Via: via("waitgroup handle@4")}
		works := report.Cause{Cause: report.CauseCPU, Site: siteOf("main.work"), TotalNS: 1e6}
		computes := report.Cause{Cause: report.CauseCPU, Site: siteOf("main.compute"), TotalNS: 1e6, Samples: 9}
		longer := report.Cause{Cause: report.CauseCPU, Site: siteOf("main.render"), TotalNS: 2e6, Samples: 3} // a site where runs ended
		g := groupWith(waitingForP(4e6, ranAt(c.concurrent, 1)), computes, longer, shades, parts, works)
		g.Entry = siteOf("main.handle")
		const started = "sync.(*WaitGroup).Go.func1"
		runs := []process.RunningTime{{Start: "main.handle", Site: siteOf("main.ask"), NS: 1e9, Count: 900}, {Start: "main.beside", Site: siteOf("main.refresh"), NS: 1e9, Count: 900},
			{Start: started, Site: siteOf("main.shade"), NS: 1e9, Count: 900}, {Start: started, Site: siteOf("main.part"), NS: 1e9, Count: 900}, {Start: "main.job", Site: siteOf("main.work"), NS: 1e9, Count: 900}}
		in := newInput(process.Stats{BusyNS: c.busy, RunningTimes: runs}, g)
		in.Report.Groups = append(in.Report.Groups, report.Group{ID: "jobs", Kind: report.KindGoroutine, Entry: siteOf("main.job")})
		_, _, all := findCodes(t, in)
		i := slices.IndexFunc(all, func(f report.Finding) bool { return f.Code == report.RulePsTaken })
		check.True(t, i >= 0 && all[i].Severity.IsMajor() == c.isLoud && all[i].Site != nil && all[i].Site.Func == c.site,
			"%s: %+v", c.name, all)
		check.True(t, i >= 0 && slices.ContainsFunc(all[i].Evidence, func(e report.Evidence) bool {
			return strings.HasPrefix(e.Text, c.concurrent+" (of ") && strings.HasSuffix(e.Text, ") ran meanwhile") && e.Value == 1
		}),
			"%s: the evidence does not say what ran: %+v", c.name, all)
	}
}
