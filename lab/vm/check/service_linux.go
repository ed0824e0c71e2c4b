package check

import (
	"log/slog"
	"runtime"
	"strconv"
	"time"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/probe"
	"github.com/whylate/whylate/service/tune"
)

func serviceChecks() []Check {
	checks := []Check{
		{Name: "tune/follows-every-level", Needs: []string{"cpu"}, MinCPUs: 4, Run: tuneFollows},
		{Name: "tune/environment-wins", Needs: []string{"cpu"}, MinCPUs: 4, Run: tuneEnvironment},
		{Name: "tune/many-cores-small-quota", Needs: []string{"cpu"}, MinCPUs: 8, Run: tuneManyCores},
	}
	for _, surroundings := range []Surroundings{Plain, Namespaced, Bound} {
		checks = append(checks,
			Check{Name: "probe/own-" + surroundings.String(), Needs: []string{"cpu"}, MinCPUs: 2, Run: func(e *Env, t *T) { probeOwn(e, t, surroundings) }},
			Check{Name: "probe/ancestor-" + surroundings.String(), Needs: []string{"cpu"}, MinCPUs: 2, Run: func(e *Env, t *T) { probeAncestor(e, t, surroundings) }},
		)
	}
	return checks
}

func serviceChildren() map[string]ChildFunc {
	return map[string]ChildFunc{"tuned": tuned, "frozen": frozen}
}

// Tuned is what the child "tuned" says at each decision on GOMAXPROCS, and at
// the end.
type Tuned struct {
	Event      tune.Event
	GOMAXPROCS int
	Stopped    bool
}

// tuned does what package auto does, with faster looks, until it hears a line;
// then it stops the tuner.
func tuned(c *ChildIO, _ []string) (any, error) {
	var failed error
	t := tune.Start(tune.Options{
		Procs: tune.ModeApply, Policy: tune.PolicyCeil, Memory: tune.ModeOff, GC: tune.ModeOff,
		Interval: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		OnEvent: func(e tune.Event) {
			if err := c.Say(Tuned{Event: e, GOMAXPROCS: runtime.GOMAXPROCS(0)}); err != nil {
				failed = err
			}
		},
	})
	_, err := c.Hear()
	t.Stop()
	if failed != nil {
		return nil, failed
	}
	return Tuned{GOMAXPROCS: runtime.GOMAXPROCS(0), Stopped: true}, err
}

func tuneFollows(e *Env, t *T) {
	top := e.Group(t)
	leaf := top.Sub(t, "leaf")
	top.SetCPU(t, quotaFor(0.7), period)
	c := leaf.Start(t, Plain, nil, "tuned")
	next := func(what string, procs int, action tune.Action) {
		var s Tuned
		c.Receive(t, &s)
		if s.GOMAXPROCS != procs || s.Event.Action != action {
			t.Errorf("%s: GOMAXPROCS %d, %s; want %d, %s", what, s.GOMAXPROCS, s.Event, procs, action)
		}
	}
	next("0.7 CPUs on the parent", 1, tune.ActionSet)
	top.SetCPU(t, quotaFor(2.5), period)
	next("2.5 CPUs on the parent", 3, tune.ActionSet)
	leaf.SetCPU(t, quotaFor(1.5), period)
	// The runtime would pick 2 as well, by the own group: it is in control
	// again.
	next("1.5 CPUs on the own group", 2, tune.ActionRestore)
	c.Send(t, "stop")
	var s Tuned
	c.Receive(t, &s)
	if !s.Stopped || s.GOMAXPROCS != 2 {
		t.Errorf("after Stop: %+v", s)
	}
}

func tuneEnvironment(e *Env, t *T) {
	g := e.Group(t)
	g.SetCPU(t, quotaFor(1), period)
	c := g.Start(t, Plain, []string{"GOMAXPROCS=3"}, "tuned")
	var s Tuned
	c.Receive(t, &s)
	if s.GOMAXPROCS != 3 || s.Event.Action != tune.ActionKeep {
		t.Errorf("GOMAXPROCS %d, %s; want 3, kept", s.GOMAXPROCS, s.Event)
	}
}

func tuneManyCores(e *Env, t *T) {
	top := e.Group(t)
	leaf := top.Sub(t, "leaf")
	top.SetCPU(t, quotaFor(1.5), period)
	c := leaf.Start(t, Plain, nil, "tuned")
	var s Tuned
	c.Receive(t, &s)
	if s.GOMAXPROCS != 2 || s.Event.From != int64(runtime.NumCPU()) {
		t.Errorf("GOMAXPROCS %d from %d; want 2 from %d", s.GOMAXPROCS, s.Event.From, runtime.NumCPU())
	}
}

// Frozen is the output of the child "frozen".
type Frozen struct {
	Freezes   uint64
	ByVerdict map[cgroup.Verdict]uint64
	Throttled cgroup.Throttling
	CPU, Wall time.Duration
}

// frozen uses CPU time with a probe running, and answers a line with the probe's results.
func frozen(c *ChildIO, args []string) (any, error) {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return nil, err
	}
	runtime.GOMAXPROCS(n)
	p := probe.Start(probe.Options{})
	defer p.Stop()
	for range n {
		go func() {
			for x := uint64(1); ; x = x*6364136223846793005 + 1 {
				if x == 0 {
					return
				}
			}
		}()
	}
	if err := c.Say("spinning"); err != nil {
		return nil, err
	}
	if _, err := c.Hear(); err != nil {
		return nil, err
	}
	p.Stop()
	var s probe.Snapshot
	p.Snapshot(&s)
	f := Frozen{Freezes: s.Freezes.Count, ByVerdict: map[cgroup.Verdict]uint64{}, Throttled: s.Throttled, CPU: s.FreezeCPU, Wall: s.FreezeTime}
	for _, v := range cgroup.Verdicts() {
		f.ByVerdict[v] = s.FreezesBy(v).Count
	}
	return f, nil
}

// probed runs the child until the kernel has throttled holder some times.
func probed(t *T, holder, leaf *Group, surroundings Surroundings) Frozen {
	c := leaf.Start(t, surroundings, nil, "frozen", "2")
	var word string
	c.Receive(t, &word)
	awaitThrottling(t, holder, 10)
	c.Send(t, "stop")
	var f Frozen
	c.Receive(t, &f)
	t.Logf("%d freezes %v, %v of wall time, %v as CPU time; counters: own %v, ancestor %v, %s (%s)", f.Freezes, f.ByVerdict, f.Wall, f.CPU, f.Throttled.Own, f.Throttled.Ancestor, f.Throttled.Verdict, f.Throttled.Evidence)
	if f.Freezes == 0 {
		t.Fatalf("no freeze was seen in ten throttled periods")
	}
	return f
}

// Verdicts of single freezes are checked only where they can be wrong: on an emulated or busy machine, the run queue causes
// some freezes.

func probeOwn(e *Env, t *T, surroundings Surroundings) {
	g := e.Group(t)
	g.SetCPU(t, quotaFor(0.5), period)
	f := probed(t, g, g, surroundings)
	if f.Throttled.Verdict != cgroup.VerdictOwn || f.ByVerdict[cgroup.VerdictOwn] == 0 || f.ByVerdict[cgroup.VerdictAncestor] != 0 {
		t.Errorf("%+v, want own", f)
	}
}

func probeAncestor(e *Env, t *T, surroundings Surroundings) {
	top := e.Group(t)
	leaf := top.Sub(t, "leaf")
	top.SetCPU(t, quotaFor(0.5), period)
	f := probed(t, top, leaf, surroundings)
	want := cgroup.VerdictAncestor
	if surroundings != Plain && !e.HasLocal(leaf) {
		want = cgroup.VerdictUnknown // out of sight, and this kernel does not tell
	}
	if f.Throttled.Verdict != want || f.ByVerdict[want] == 0 || f.ByVerdict[cgroup.VerdictOwn] != 0 {
		t.Errorf("%+v, want %s", f, want)
	}
	if want == cgroup.VerdictUnknown && f.ByVerdict[cgroup.VerdictNone] != 0 {
		t.Errorf("%+v: none was claimed where nobody can tell", f)
	}
}
