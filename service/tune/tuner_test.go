package tune

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
)

// machine returns the files of a v2 group /pod/app with quotas at both levels, on 8 CPUs.
func machine(pod, app string) fstest.MapFS {
	return fstest.MapFS{
		"proc/self/cgroup":               {Data: []byte("0::/pod/app\n")},
		"proc/self/mountinfo":            {Data: []byte("30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n")},
		"proc/self/status":               {Data: []byte("Name:\tapp\nCpus_allowed_list:\t0-7\n")},
		"sys/devices/system/cpu/online":  {Data: []byte("0-7\n")},
		"sys/fs/cgroup/cgroup.procs":     {},
		"sys/fs/cgroup/pod/cpu.max":      {Data: []byte(pod)},
		"sys/fs/cgroup/pod/app/cpu.max":  {Data: []byte(app)},
		"sys/fs/cgroup/pod/app/cpu.stat": {Data: []byte("usage_usec 1\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n")},
	}
}

// A fakeRuntime records calls.
type fakeRuntime struct {
	procs        int
	defaultProcs int // the runtime's default
	aware        bool
	hasDefault   bool
	procsCalls   []int
	defaultCalls int
	memory       []int64
	gogc         []int
}

func (f *fakeRuntime) runtime() goRuntime {
	return goRuntime{
		setProcs: func(n int) { f.procs = n; f.procsCalls = append(f.procsCalls, n) },
		procs:    func() int { return f.procs },
		defaultProc: func() bool {
			if f.hasDefault {
				f.procs = f.defaultProcs
				f.defaultCalls++
			}
			return f.hasDefault
		},
		observe:   func(s goStats) goStats { return s },
		mapped:    readMapped(),
		setMemory: func(n int64) { f.memory = append(f.memory, n) },
		setGOGC:   func(n int) { f.gogc = append(f.gogc, n) },
		aware:     f.aware,
	}
}

type eventRecorder struct{ events []Event }

func (r *eventRecorder) add(e Event) { r.events = append(r.events, e) }

func (r *eventRecorder) last(k Knob) Event {
	for i := len(r.events) - 1; i >= 0; i-- {
		if r.events[i].Knob == k {
			return r.events[i]
		}
	}
	return Event{}
}

// A runtimeProvider is a fakeRuntime or a simulatedRuntime.
type runtimeProvider interface{ runtime() goRuntime }

// newPassiveTuner returns a tuner without a goroutine; the test calls poll.
func newPassiveTuner(r runtimeProvider, fsys fstest.MapFS, env environment, o Options) *Tuner {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Cgroup = cgroup.Options{FS: fsys}
	t := newTuner(o, r.runtime(), env)
	close(t.done)
	return t
}

// startTuner returns a passive tuner after its first poll, and its events.
func startTuner(f *fakeRuntime, fsys fstest.MapFS, env environment, o Options) (*Tuner, *eventRecorder) {
	r := &eventRecorder{}
	o.OnEvent = r.add
	t := newPassiveTuner(f, fsys, env, o)
	t.poll()
	return t, r
}

func TestFirstPoll(t *testing.T) {
	for _, c := range []struct {
		name     string
		pod, app string
		procs    int // at the start
		aware    bool
		env      environment
		mode     Mode
		policy   Policy
		want     int // GOMAXPROCS after
		action   Action
		says     string
	}{
		{"go 1.24: the whole machine becomes the quota", "max 100000", "150000 100000", 8, false, environment{}, ModeApply, PolicyCeil, 2, ActionSet, "rounded up"},
		{"go 1.25 has it right: left alone", "max 100000", "250000 100000", 3, true, environment{}, ModeApply, PolicyCeil, 3, ActionKeep, "keeps following"},
		{"go 1.25 and a small quota: 1 and not 2", "max 100000", "50000 100000", 2, true, environment{}, ModeApply, PolicyCeil, 1, ActionSet, "0.5 CPUs"},
		{"go 1.25 does not see the parent", "200000 100000", "max 100000", 8, true, environment{}, ModeApply, PolicyCeil, 2, ActionSet, "2 CPUs"},
		{"no quota", "max 100000", "max 100000", 8, true, environment{}, ModeApply, PolicyCeil, 8, ActionKeep, "no CPU quota"},
		{"floor", "max 100000", "290000 100000", 3, true, environment{}, ModeApply, PolicyFloor, 2, ActionSet, "down"},
		{"observe", "max 100000", "150000 100000", 8, false, environment{}, ModeObserve, PolicyCeil, 8, ActionWouldSet, "rounded up"},
		{"environment", "max 100000", "150000 100000", 8, false, environment{procs: "8"}, ModeApply, PolicyCeil, 8, ActionKeep, "by hand"},
		{"automaxprocs was there", "max 100000", "390000 100000", 3, true, environment{}, ModeApply, PolicyCeil, 3, ActionKeep, "other code"},
		{"off", "max 100000", "150000 100000", 8, false, environment{}, ModeOff, PolicyCeil, 8, "", ""},
	} {
		f := &fakeRuntime{procs: c.procs, aware: c.aware, hasDefault: c.aware}
		tuner, r := startTuner(f, machine(c.pod, c.app), c.env, Options{Procs: c.mode, Policy: c.policy, Memory: ModeOff, GC: ModeOff})
		e := r.last(KnobGOMAXPROCS)
		check.True(t, f.procs == c.want && e.Action == c.action && strings.Contains(e.Reason, c.says),
			"%s: GOMAXPROCS %d, want %d; event %+v, want %q with %q", c.name, f.procs, c.want, e, c.action, c.says)
		check.False(t, c.action == ActionKeep && len(f.procsCalls) > 0,
			"%s: runtime.GOMAXPROCS was called with %v: that turns the runtime's updates off", c.name, f.procsCalls)
		check.False(t, c.action != "" && (e.Source == "" || e.Undo == ""), "%s: event without source or undo: %+v", c.name, e)
		n := len(r.events)
		for range 10 {
			tuner.poll()
		}
		check.True(t, len(r.events) == n, "%s: a steady process has further events %+v", c.name, r.events[n:])
		tuner.Stop()
	}
}

func TestSourceNamesTheAncestor(t *testing.T) {
	f := &fakeRuntime{procs: 8}
	tuner, r := startTuner(f, machine("200000 100000", "max 100000"), environment{}, Options{Procs: ModeApply})
	defer tuner.Stop()
	if e := r.last(KnobGOMAXPROCS); !strings.Contains(e.Source, "/sys/fs/cgroup/pod/cpu.max") || !strings.Contains(e.Source, "parent") {
		t.Errorf("source %q", e.Source)
	}
}

// writeGroupFile writes a file of the group /pod or of one below it.
func writeGroupFile(fsys fstest.MapFS, name, text string) {
	fsys["sys/fs/cgroup/pod/"+name] = &fstest.MapFile{Data: []byte(text)}
}

func setQuota(fsys fstest.MapFS, app string) {
	writeGroupFile(fsys, "app/cpu.max", app)
}

func TestFollowsAChange(t *testing.T) {
	fsys := machine("max 100000", "50000 100000")
	f := &fakeRuntime{procs: 2, defaultProcs: 2, aware: true, hasDefault: true}
	tuner, r := startTuner(f, fsys, environment{}, Options{Procs: ModeApply, Memory: ModeOff, GC: ModeOff})
	must.Equal(t, f.procs, 1, "quota 0.5: GOMAXPROCS")
	setQuota(fsys, "350000 100000")
	f.defaultProcs = 4
	for range pollsToChange - 1 {
		tuner.poll()
		must.Equal(t, f.procs, 1, "followed before the runtime could")
	}
	tuner.poll()
	// The runtime's default is 4 as well now: it gets control again.
	check.True(t, f.procs == 4 && f.defaultCalls == 1 && len(f.procsCalls) == 1,
		"quota 3.5: GOMAXPROCS %d, calls %v, handed back %d times", f.procs, f.procsCalls, f.defaultCalls)
	if e := r.last(KnobGOMAXPROCS); e.Action != ActionRestore || e.To != 4 {
		t.Errorf("event %+v", e)
	}
	// From here on the runtime follows the quota, and the tuner sets nothing.
	setQuota(fsys, "250000 100000")
	f.defaultProcs, f.procs = 3, 3
	for range 2 * pollsToChange {
		tuner.poll()
	}
	tuner.Stop()
	check.True(t, len(f.procsCalls) == 1 && f.defaultCalls == 1 && f.procs == 3,
		"after the runtime's own update: calls %v, handed back %d times, GOMAXPROCS %d", f.procsCalls, f.defaultCalls, f.procs)
}

func TestStopRestores(t *testing.T) {
	for _, c := range []struct {
		name         string
		f            fakeRuntime
		foreign      int // set by other code before Stop; 0 is none
		want         int
		defaultCalls int
	}{
		{"go 1.25: the runtime's control", fakeRuntime{procs: 8, defaultProcs: 8, aware: true, hasDefault: true}, 0, 8, 1},
		{"go 1.24: the old value", fakeRuntime{procs: 8}, 0, 8, 0},
		{"other code was there since: its value", fakeRuntime{procs: 8, defaultProcs: 8, aware: true, hasDefault: true}, 5, 5, 0},
	} {
		f := c.f
		tuner, r := startTuner(&f, machine("200000 100000", "max 100000"), environment{}, Options{Procs: ModeApply, Memory: ModeOff, GC: ModeOff})
		must.Equal(t, f.procs, 2, "%s: GOMAXPROCS", c.name)
		if c.foreign != 0 {
			f.procs = c.foreign
			tuner.poll()
			if e := r.last(KnobGOMAXPROCS); e.Action != ActionKeep || !strings.Contains(e.Reason, "other code") {
				t.Errorf("%s: %+v", c.name, e)
			}
		}
		tuner.Stop()
		tuner.Stop()
		check.True(t, f.procs == c.want && f.defaultCalls == c.defaultCalls,
			"%s: GOMAXPROCS %d, want %d; handed back %d times, want %d", c.name, f.procs, c.want, f.defaultCalls, c.defaultCalls)
	}
}

func TestNothingToRead(t *testing.T) {
	f := &fakeRuntime{procs: 8}
	tuner, r := startTuner(f, fstest.MapFS{}, environment{}, Options{Procs: ModeApply, Memory: ModeApply, GC: ModeApply})
	for range 5 {
		tuner.poll()
	}
	s := tuner.State()
	tuner.Stop()
	// The number of CPUs is this machine's, which may not be 8. The test checks that no
	// limit is invented.
	check.True(t, s.Quota == 0 && s.MemoryLimit == 0 && s.Headroom == -1 && len(f.memory) == 0 && len(f.gogc) == 0,
		"%+v, memory %v, GOGC %v", s, f.memory, f.gogc)
	check.Equal(t, s.Throttled.Verdict, cgroup.VerdictUnknown, "verdict")
	if e := r.last(KnobGOMEMLIMIT); e.Action != ActionKeep || !strings.Contains(e.Reason, "no memory limit") {
		t.Errorf("event %+v", e)
	}
	if e := r.last(KnobGOMAXPROCS); !strings.Contains(e.Reason, cgroup.ErrNotMeasurable.Error()) {
		t.Errorf("event %+v does not say that nothing can be measured", e)
	}
}

// withMemory adds a memory limit to the group.
func withMemory(fsys fstest.MapFS, limit, current string) fstest.MapFS {
	writeGroupFile(fsys, "app/memory.max", limit)
	writeGroupFile(fsys, "app/memory.current", current)
	writeGroupFile(fsys, "app/memory.stat", "inactive_file 0\n")
	return fsys
}

func TestMemoryLimit(t *testing.T) {
	const gib = "1073741824\n"
	for _, c := range []struct {
		name   string
		mode   Mode
		env    environment
		action Action
		set    bool
	}{
		{"observe", ModeObserve, environment{}, ActionWouldSet, false},
		{"apply", ModeApply, environment{}, ActionSet, true},
		{"environment", ModeApply, environment{memory: "700MiB"}, ActionKeep, false},
	} {
		f := &fakeRuntime{procs: 8}
		tuner, r := startTuner(f, withMemory(machine("max 100000", "max 100000"), gib, "1000\n"), c.env, Options{Procs: ModeOff, Memory: c.mode, GC: ModeOff})
		e := r.last(KnobGOMEMLIMIT)
		check.True(t, e.Action == c.action && (len(f.memory) > 0) == c.set, "%s: %+v, set %v", c.name, e, f.memory)
		if want := int64(921 * mib); c.action != ActionKeep && e.To != want {
			t.Errorf("%s: %s, want %s", c.name, e.Value(), bytesText(want))
		}
		tuner.Stop()
	}
}

func TestLogsEveryEvent(t *testing.T) {
	var buf bytes.Buffer
	f := &fakeRuntime{procs: 8}
	tuner := newPassiveTuner(f, machine("max 100000", "150000 100000"), environment{}, Options{Procs: ModeApply, Logger: slog.New(slog.NewTextHandler(&buf, nil)), Memory: ModeOff, GC: ModeOff})
	tuner.poll()
	tuner.Stop()
	lines := strings.Split(strings.TrimSpace(buf.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "value=2") || !strings.Contains(lines[0], "cpu.max") || !strings.Contains(lines[1], "restore") {
		t.Errorf("log:\n%s", buf.String())
	}
}

// TestPollStopsNothing counts stop-the-world pauses that are not for garbage
// collection during many polls.
func TestPollStopsNothing(t *testing.T) {
	pauses := func() (n uint64) {
		s := []metrics.Sample{{Name: "/sched/pauses/total/other:seconds"}}
		metrics.Read(s)
		if s[0].Value.Kind() != metrics.KindFloat64Histogram {
			t.Skip("this runtime does not count pauses")
		}
		for _, c := range s[0].Value.Float64Histogram().Counts {
			n += c
		}
		return n
	}
	o := Options{Logger: slog.New(slog.DiscardHandler)}
	tuner := newTuner(o, realRuntime(), environment{})
	close(tuner.done)
	tuner.poll()
	before := pauses()
	for range 100 {
		tuner.poll()
		tuner.State()
	}
	if n := pauses() - before; n != 0 {
		t.Errorf("100 looks stopped the world %d times", n)
	}
	// The counter must be able to count.
	k := realRuntime()
	n := k.procs()
	k.setProcs(n + 1)
	k.setProcs(n)
	k.defaultProc()
	check.True(t, pauses() != before, "two changes of GOMAXPROCS were not counted: this test proves nothing")
	tuner.Stop()
}

func TestStartAndStop(t *testing.T) {
	events := make(chan Event, 100)
	tuner := Start(Options{Interval: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler), OnEvent: func(e Event) { events <- e }})
	s := tuner.State()
	check.True(t, s.GOMAXPROCS >= 1 && s.Affinity >= 1 && s.Limits != nil && len(s.Events) != 0, "%+v", s)
	tuner.Stop()
	tuner.Stop()
	check.False(t, tuner.State().Time.IsZero(), "no state after Stop")
}

// TestStateInACallback tests that a callback may call State and gets the new values.
func TestStateInACallback(t *testing.T) {
	f := &fakeRuntime{procs: 8}
	var tuner *Tuner
	var got []int
	tuner = newPassiveTuner(f, machine("max 100000", "150000 100000"), environment{}, Options{
		Procs: ModeApply, Memory: ModeOff, GC: ModeOff, OnEvent: func(Event) { got = append(got, tuner.State().GOMAXPROCS) },
	})
	tuner.poll()
	tuner.Stop()
	check.True(t, equalInts(got, []int{2, 8}), "GOMAXPROCS in the callbacks: %v, want 2 and then 8", got)
}

func TestEventText(t *testing.T) {
	e := Event{Knob: KnobGOMEMLIMIT, Action: ActionSet, From: noMemoryLimit, To: 900 * mib, Reason: "because"}
	if got := fmt.Sprint(e); got != "set GOMEMLIMIT=900 MiB (was none): because" {
		t.Error(got)
	}
}

// A simulatedRuntime has a heap that follows the pacer's formula, the limit and GOGC.
type simulatedRuntime struct {
	fakeRuntime
	live, limit    int64
	percent        int
	cycles         uint64
	log            []string // settings in their order
	mappedReadings func() int64
}

// simulate returns a simulatedRuntime without a limit.
func simulate(live int64) *simulatedRuntime {
	return &simulatedRuntime{fakeRuntime: fakeRuntime{procs: 8}, live: live, limit: noMemoryLimit, percent: 100}
}

func (s *simulatedRuntime) goal() int64 {
	goal := s.live + s.live*int64(s.percent)/100
	if s.limit != noMemoryLimit {
		goal = max(s.live, min(goal, s.limit-4*mib))
	}
	return goal
}

func (s *simulatedRuntime) runtime() goRuntime {
	k := s.fakeRuntime.runtime()
	k.setMemory = func(n int64) { s.limit = n; s.log = append(s.log, "limit "+bytesText(n)) }
	k.setGOGC = func(n int) { s.percent = n; s.log = append(s.log, fmt.Sprint("GOGC ", n)) }
	k.observe = func(g goStats) goStats {
		s.cycles += 5
		g.cycles, g.gcSeconds, g.totalSeconds, g.idleSeconds = s.cycles, float64(s.cycles), 3*float64(s.cycles), 0
		g.live, g.stacks, g.globals, g.overhead = s.live, 0, 0, 4*mib
		g.gogc, g.memoryLimit = s.percent, s.limit
		g.goal = s.goal()
		g.mapped = k.mapped()
		return g
	}
	k.mapped = func() int64 {
		if s.mappedReadings != nil {
			return s.mappedReadings()
		}
		return s.goal() + 4*mib
	}
	return k
}

// TestALimitComesBeforeGOGC tests, for each mode of GOMEMLIMIT, that GOGC never rises
// without a limit: the limit is set first and removed last.
func TestALimitComesBeforeGOGC(t *testing.T) {
	for _, mode := range []Mode{ModeObserve, ModeOff, ModeApply} {
		s := simulate(60 * mib)
		fsys := withMemory(machine("max 100000", "max 100000"), "536870912\n", "1000\n")
		tuner := newPassiveTuner(s, fsys, environment{}, Options{Procs: ModeOff, Memory: mode, GC: ModeApply})
		// Not even between the two settings of one poll.
		setGOGC, setMemory := tuner.runtime.setGOGC, tuner.runtime.setMemory
		bounded := func() {
			check.False(t, s.percent > 100 && s.limit == noMemoryLimit, "%v: GOGC %d without a limit: %q", mode, s.percent, s.log)
		}
		tuner.runtime.setGOGC = func(n int) { setGOGC(n); bounded() }
		tuner.runtime.setMemory = func(n int64) { setMemory(n); bounded() }
		for range 30 {
			// The share is measured in wall time, which does not pass in this test.
			tuner.gcShare = 0.3
			tuner.poll()
			if s.percent > 100 && s.limit != 358*mib {
				t.Fatalf("%v: GOGC %d with a limit of %s: %q", mode, s.percent, bytesText(s.limit), s.log)
			}
		}
		check.True(t, s.percent >= 300 && strings.HasPrefix(s.log[len(s.log)-1], "GOGC"), "%v: GOGC %d: %q", mode, s.percent, s.log)
		// The live heap exceeds the share: GOGC falls first, and the limit stays as
		// long as the heap would exceed it.
		s.live = 300 * mib
		tuner.poll()
		tuner.poll()
		check.True(t, s.percent == 100 && s.limit >= 450*mib && s.limit != noMemoryLimit,
			"%v: GOGC %d, limit %s: %q", mode, s.percent, bytesText(s.limit), s.log)
		s.live = 100 * mib
		tuner.poll()
		if want := mode == ModeApply; (s.limit != noMemoryLimit) != want {
			t.Errorf("%v: limit %s when GOGC is no longer raised: %q", mode, bytesText(s.limit), s.log)
		}
		tuner.Stop()
		check.True(t, s.percent == 100 && s.limit == noMemoryLimit, "%v: after Stop: GOGC %d, limit %s", mode, s.percent, bytesText(s.limit))
	}
}

// TestGOGCFallsBeforeTheLimitGoes tests that GOGC falls before the limit is removed in
// one poll.
func TestGOGCFallsBeforeTheLimitGoes(t *testing.T) {
	s := simulate(60 * mib)
	fsys := withMemory(machine("max 100000", "max 100000"), "536870912\n", "1000\n")
	tuner := newPassiveTuner(s, fsys, environment{}, Options{Procs: ModeOff, Memory: ModeOff, GC: ModeApply})
	defer tuner.Stop()
	for range 30 {
		tuner.gcShare = 0.3
		tuner.poll()
	}
	must.True(t, s.percent >= 300 && s.limit != noMemoryLimit, "GOGC %d, limit %s", s.percent, bytesText(s.limit))
	s.log = nil
	// The container's limit is removed.
	writeGroupFile(fsys, "app/memory.max", "max\n")
	for range 3 {
		tuner.poll()
	}
	check.True(t, len(s.log) == 2 && s.log[0] == "GOGC 100" && s.log[1] == "limit none", "it did %q", s.log)
}

// TestALimitRisesWhenSettled tests that a limit rises after other memory has been less for
// ten polls in a row, and falls at once. Otherwise memory that varies every few seconds
// would change it all the time.
func TestALimitRisesWhenSettled(t *testing.T) {
	s := simulate(10 * mib)
	fsys := withMemory(machine("max 100000", "max 100000"), "1073741824\n", "")
	setOtherMemory := func(n int64) {
		writeGroupFile(fsys, "app/memory.current", fmt.Sprint(n*mib+s.goal()+4*mib))
	}
	setOtherMemory(500)
	tuner := newPassiveTuner(s, fsys, environment{}, Options{Procs: ModeOff, Memory: ModeApply, GC: ModeOff})
	defer tuner.Stop()
	tuner.poll()
	low := s.limit
	must.True(t, low <= 430*mib, "GOMEMLIMIT is %s with 500 MiB of other memory", bytesText(low))
	for round := range 3 {
		setOtherMemory(100)
		for range pollsToSettle - 1 {
			if tuner.poll(); s.limit != low {
				t.Fatalf("round %d: GOMEMLIMIT rises to %s although other memory comes and goes", round, bytesText(s.limit))
			}
		}
		setOtherMemory(500)
		tuner.poll()
	}
	setOtherMemory(100)
	looks := 0
	for ; s.limit == low && looks < 100; looks++ {
		tuner.poll()
	}
	check.True(t, looks == pollsToSettle+1 && s.limit >= 800*mib, "after %d looks GOMEMLIMIT is %s", looks, bytesText(s.limit))
	setOtherMemory(500)
	tuner.poll()
	check.Equal(t, s.limit, low, "GOMEMLIMIT is %s when others need memory again", bytesText(s.limit))
}

// TestAlarmsAreFew tests that an alarm is reported at most once a minute, but always if the
// guard relaxes the limit.
func TestAlarmsAreFew(t *testing.T) {
	f := &fakeRuntime{procs: 8}
	tuner, r := startTuner(f, machine("max 100000", "max 100000"), environment{}, Options{Procs: ModeOff})
	defer tuner.Stop()
	start := time.Now()
	recordAlarm := func(after time.Duration, d gcDecision) (recorded bool) {
		tuner.mu.Lock()
		tuner.current.readAt = start.Add(after)
		n := len(tuner.events)
		tuner.recordAlarm(d)
		recorded = len(tuner.events) > n
		tuner.unlockAndDeliver()
		return recorded
	}
	alarm := gcDecision{alarm: true, reason: "it crawls"}
	for _, c := range []struct {
		after time.Duration
		d     gcDecision
		want  bool
	}{
		{0, gcDecision{}, false}, {time.Second, alarm, true}, {2 * time.Second, alarm, false}, {60 * time.Second, alarm, false}, {61 * time.Second, alarm, true},
		{62 * time.Second, gcDecision{alarm: true, relax: true, reason: "it crawls"}, true}, {63 * time.Second, alarm, false},
	} {
		check.Equal(t, recordAlarm(c.after, c.d), c.want, "after %v: %+v: want the opposite; the events are %+v", c.after, c.d, r.events)
	}
}

// TestGOGCStaysDownWithoutABound tests that GOGC does not rise if a GOMEMLIMIT set by hand
// does not bound the heap.
func TestGOGCStaysDownWithoutABound(t *testing.T) {
	for limit, raised := range map[int64]bool{noMemoryLimit: false, 600 * mib: false, 512 * mib: false, 400 * mib: true} {
		s := &simulatedRuntime{fakeRuntime: fakeRuntime{procs: 8}, live: 60 * mib, limit: limit, percent: 100}
		fsys := withMemory(machine("max 100000", "max 100000"), "536870912\n", "1000\n")
		tuner := newPassiveTuner(s, fsys, environment{memory: "by hand"}, Options{Procs: ModeOff, Memory: ModeApply, GC: ModeApply})
		for range 30 {
			tuner.gcShare = 0.3
			tuner.poll()
		}
		check.True(t, (s.percent > 100) == raised, "GOMEMLIMIT=%s: GOGC %d", bytesText(limit), s.percent)
		tuner.Stop()
	}
}

// TestCollectionHook tests that the hook sends a token after a collection, and none after
// stop.
func TestCollectionHook(t *testing.T) {
	h := newCollectionHook()
	for range 3 {
		runtime.GC()
		select {
		case <-h.tokens:
		case <-time.After(10 * time.Second):
			t.Fatal("no token after a collection")
		}
	}
	h.stop()
	for range 3 {
		runtime.GC()
	}
	select {
	case <-h.tokens: // sent before stop
	default:
	}
	runtime.GC()
	select {
	case <-h.tokens:
		t.Error("a token after stop")
	default:
	}
}

// TestPageCacheIsNotOtherMemory tests that the heap leaves room for shared memory, but not
// for page cache.
func TestPageCacheIsNotOtherMemory(t *testing.T) {
	for stat, want := range map[string]int64{
		"inactive_file 209715200\nactive_file 209715200\nslab_reclaimable 104857600\n": 921,
		"inactive_file 0\nactive_file 0\nshmem 524288000\n":                            421,
	} {
		s := simulate(10 * mib)
		fsys := withMemory(machine("max 100000", "max 100000"), "1073741824\n", "550502400\n") // 525 MiB, of which Go has 24
		writeGroupFile(fsys, "app/memory.stat", stat)
		tuner := newPassiveTuner(s, fsys, environment{}, Options{Procs: ModeOff, Memory: ModeApply, GC: ModeOff})
		tuner.poll()
		if got := s.limit / mib; got < want-1 || got > want+1 {
			t.Errorf("%q: GOMEMLIMIT %d MiB, want %d", stat, got, want)
		}
		tuner.Stop()
	}
}

// TestHeapGivenBackIsNotOtherMemory tests that memory which the heap releases while the
// group's counters are read, or before the next decision, does not count as other memory.
func TestHeapGivenBackIsNotOtherMemory(t *testing.T) {
	s := simulate(10 * mib)
	readings := []int64{500 * mib}
	s.mappedReadings = func() int64 {
		n := readings[0]
		if len(readings) > 1 {
			readings = readings[1:]
		}
		return n
	}
	fsys := withMemory(machine("max 100000", "max 100000"), "1073741824\n", "524288000\n") // 500 MiB
	writeGroupFile(fsys, "app/memory.stat", "inactive_file 0\n")
	tuner := newPassiveTuner(s, fsys, environment{}, Options{Procs: ModeOff, Memory: ModeApply, GC: ModeOff})
	tuner.poll()
	readings = []int64{500 * mib, 100 * mib} // before the counters are read, and later
	tuner.poll()
	tuner.pollAfterCollection() // with the counters of the last poll
	if got := s.limit / mib; got != 921 {
		t.Errorf("GOMEMLIMIT %d MiB, want 921: what the heap gave back was taken for memory of others", got)
	}
	tuner.Stop()
}

// TestSiblingsUnderTheParentsLimit tests that memory of sibling groups counts against the
// parent's limit.
func TestSiblingsUnderTheParentsLimit(t *testing.T) {
	s := simulate(10 * mib)
	fsys := withMemory(machine("max 100000", "max 100000"), "max\n", "25165824\n")
	writeGroupFile(fsys, "memory.max", "1073741824\n")
	writeGroupFile(fsys, "memory.current", "445644800\n") // 425 MiB
	writeGroupFile(fsys, "memory.stat", "active_file 0\n")
	tuner := newPassiveTuner(s, fsys, environment{}, Options{Procs: ModeOff, Memory: ModeApply, GC: ModeOff})
	tuner.poll()
	if got := s.limit / mib; got < 519 || got > 521 {
		t.Errorf("GOMEMLIMIT %d MiB, want 921 less the 401 of siblings", got)
	}
	if st := tuner.State(); st.MemoryUsed != 24*mib || st.Headroom != (1024-425)*mib {
		t.Errorf("used %s, headroom %s", bytesText(st.MemoryUsed), bytesText(st.Headroom))
	}
	tuner.Stop()
}

// TestTheProgramsOwnMemoryLimit tests that Options.MemoryLimit replaces the group's limit.
func TestTheProgramsOwnMemoryLimit(t *testing.T) {
	s := simulate(10 * mib)
	limit, source := int64(400*mib), "the machine"
	tuner := newPassiveTuner(s, fstest.MapFS{}, environment{}, Options{
		Procs: ModeOff, Memory: ModeApply, GC: ModeOff, MemoryReserve: 50 * mib, MemoryLimit: func() (int64, string) { return limit, source },
	})
	tuner.poll()
	if st := tuner.State(); s.limit != 310*mib || st.MemoryLimit != limit || st.MemorySource != source {
		t.Errorf("GOMEMLIMIT %s, state %+v", bytesText(s.limit), st)
	}
	tuner.Stop()
}

func TestBoundsOfProcs(t *testing.T) {
	double := func(q float64) int { return int(2 * q) }
	for _, c := range []struct {
		in   procsInput
		want int
	}{
		{procsInput{quota: 0.5, cpus: 8, minProcs: 2}, 2},
		{procsInput{quota: 6, cpus: 8, maxProcs: 4}, 4},
		{procsInput{quota: 0, cpus: 64, maxProcs: 16}, 16},
		{procsInput{quota: 0.5, cpus: 1, minProcs: 2}, 1},
		{procsInput{quota: 2.5, cpus: 8, rounding: double}, 5},
		{procsInput{quota: 0.2, cpus: 8, rounding: double}, 1},
		{procsInput{quota: 2.5, cpus: 4, rounding: double}, 4},
		{procsInput{policy: PolicyFloor, quota: 2.5, cpus: 8, minProcs: 1, maxProcs: 8}, 2},
	} {
		if got, reason := procsFor(c.in); got != c.want || reason == "" {
			t.Errorf("%+v: %d (%s), want %d", c.in, got, reason, c.want)
		}
	}
	s := latencyState{}
	if n, _ := s.step(latencyWindow{quota: 4, cpus: 16, current: 16, maxProcs: 5}); n != 5 {
		t.Errorf("latency with at most 5: %d", n)
	}
	if n, _ := s.step(latencyWindow{quota: 0.5, cpus: 16, current: 1, minProcs: 3}); n != 3 {
		t.Errorf("latency with at least 3: %d", n)
	}
}

// TestOverruledIsReportedAgain tests that a GOMAXPROCS of other code is reported once, and
// again when the tuner would set another value.
func TestOverruledIsReportedAgain(t *testing.T) {
	fsys := machine("max 100000", "150000 100000")
	f := &fakeRuntime{procs: 5}
	tuner, r := startTuner(f, fsys, environment{}, Options{Procs: ModeApply, Memory: ModeOff, GC: ModeOff})
	for range 10 {
		tuner.poll()
	}
	if n := len(r.events); n != 1 || !strings.Contains(r.events[0].Reason, "other code") || !strings.Contains(r.events[0].Reason, "would be 2") {
		t.Fatalf("%+v", r.events)
	}
	setQuota(fsys, "max 100000")
	for range 10 {
		tuner.poll()
	}
	check.True(t, len(r.events) == 2 && strings.Contains(r.events[1].Reason, "would be 8"), "after the quota was lifted: %+v", r.events)
	tuner.Stop()
}

// TestSmallContainersKeepMoreFree tests that a small container keeps more than a tenth
// free unless the program chose a ratio, and that the guard relaxes to nine tenths.
func TestSmallContainersKeepMoreFree(t *testing.T) {
	for _, c := range []struct {
		limit int64
		in    memoryInput
		want  int64
		says  string
	}{
		{32, memoryInput{ratio: defaultMemoryRatio, defaultRatio: true}, 24, "75%"},
		{64, memoryInput{ratio: defaultMemoryRatio, defaultRatio: true}, 48, "75%"},
		{128, memoryInput{ratio: defaultMemoryRatio, defaultRatio: true}, 104, "81%"},
		{256, memoryInput{ratio: defaultMemoryRatio, defaultRatio: true}, 230, "90%"},
		{64, memoryInput{ratio: 0.9}, 57, "89%"},
		{64, memoryInput{ratio: defaultMemoryRatio, defaultRatio: true, relaxed: true}, 57, "89%"},
		{64, memoryInput{ratio: defaultMemoryRatio, defaultRatio: true, needed: 54 * mib}, 54, "live heap"},
		{64, memoryInput{ratio: defaultMemoryRatio, defaultRatio: true, high: 40 * mib}, 38, "memory.high"},
		{64, memoryInput{ratio: defaultMemoryRatio, defaultRatio: true, needed: 80 * mib}, 57, "live heap"},
	} {
		c.in.limit = c.limit * mib
		if got, says := memoryFor(c.in); got != c.want*mib || !strings.Contains(says, c.says) {
			t.Errorf("%d MiB, %+v: %s (%s), want %d MiB and %q", c.limit, c.in, bytesText(got), says, c.want, c.says)
		}
	}
}

// TestLimitsThatVanish removes or empties the limits' files while a service runs: the last
// limits and the last other memory remain in use. A limit that returns with another value
// is followed.
func TestLimitsThatVanish(t *testing.T) {
	const pod, app = "sys/fs/cgroup/pod/", "sys/fs/cgroup/pod/app/"
	for name, spoil := range map[string]func(fstest.MapFS){
		"all gone": func(fsys fstest.MapFS) {
			for file := range fsys {
				if strings.HasPrefix(file, "sys/fs/cgroup/") {
					delete(fsys, file)
				}
			}
		},
		"all empty": func(fsys fstest.MapFS) {
			for file := range fsys {
				if strings.HasPrefix(file, "sys/fs/cgroup/") {
					fsys[file] = &fstest.MapFile{}
				}
			}
		},
		"the inner files alone": func(fsys fstest.MapFS) {
			delete(fsys, app+"memory.max")
			delete(fsys, app+"memory.stat")
			delete(fsys, pod+"cpu.max")
		},
		"no mounts either": func(fsys fstest.MapFS) {
			clear(fsys)
		},
	} {
		s := simulate(10 * mib)
		whole := func() fstest.MapFS {
			f := withMemory(machine("200000 100000", "max 100000"), "1073741824\n", "550502400\n") // 525 MiB, of which Go has 24
			f[pod+"memory.max"] = &fstest.MapFile{Data: []byte("max\n")}
			return f
		}
		fsys := whole()
		tuner := newPassiveTuner(s, fsys, environment{}, Options{Procs: ModeApply, Memory: ModeApply, GC: ModeOff})
		tuner.poll()
		limit := s.limit
		must.True(t, s.procs == 2 && limit <= 430*mib, "%s: %d Ps and a limit of %s at first", name, s.procs, bytesText(limit))
		spoil(fsys)
		for i := range 40 {
			if i == 20 {
				tuner.reader.nextFullRead = time.Time{} // as half a minute later
			}
			tuner.poll()
			tuner.current.memoryAt = time.Time{}
			tuner.pollAfterCollection()
			must.True(t, s.procs == 2 && s.limit == limit,
				"%s: after %d looks %d Ps and a limit of %s, want 2 and %s", name, i+1, s.procs, bytesText(s.limit), bytesText(limit))
		}
		clear(fsys)
		for file, x := range whole() {
			fsys[file] = x
		}
		fsys[pod+"cpu.max"] = &fstest.MapFile{Data: []byte("300000 100000")}
		for range 5 {
			tuner.poll()
		}
		check.Equal(t, s.procs, 3, "%s: Ps when the files came back with a quota of 3", name)
		tuner.Stop()
	}
}

// TestRepeatedEvents tests which events repeat the previous one.
func TestRepeatedEvents(t *testing.T) {
	f := &fakeRuntime{procs: 8}
	tuner, _ := startTuner(f, machine("max 100000", "max 100000"), environment{}, Options{Procs: ModeOff, Memory: ModeOff, GC: ModeOff})
	defer tuner.Stop()
	for _, c := range []struct {
		first, second Action
		to            int64
		source        string
		want          bool
	}{
		{ActionKeep, ActionKeep, 2, "a", false},
		{ActionKeep, ActionKeep, 3, "a", true},
		{ActionKeep, ActionKeep, 2, "b", true},
		{ActionSet, ActionKeep, 2, "a", false}, // kept because it was set
		{ActionRestore, ActionKeep, 2, "a", false},
		{ActionWouldSet, ActionKeep, 2, "a", true}, // other code set it
		{ActionKeep, ActionSet, 2, "a", true},
		{ActionSet, ActionRestore, 2, "a", true},
	} {
		var k knob
		tuner.mu.Lock()
		tuner.record(&k, Event{Action: c.first, To: 2, Source: "a"})
		n := len(tuner.undelivered)
		tuner.record(&k, Event{Action: c.second, To: c.to, Source: c.source})
		recorded := len(tuner.undelivered) > n
		tuner.unlockAndDeliver()
		check.Equal(t, recorded, c.want, "%s, then %s of %d by %s: recorded", c.first, c.second, c.to, c.source)
	}
}
