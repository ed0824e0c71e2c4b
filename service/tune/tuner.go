package tune

import (
	"cmp"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/whylate/whylate/service/cgroup"
)

// A Mode says what is done about one knob.
type Mode int

const (
	// ModeObserve decides and tells, and changes nothing.
	ModeObserve Mode = iota
	// ModeApply also sets the value.
	ModeApply
	// ModeOff does not look at the knob.
	ModeOff
)

func (m Mode) String() string {
	switch m {
	case ModeObserve:
		return "observe"
	case ModeApply:
		return "apply"
	case ModeOff:
		return "off"
	}
	return fmt.Sprintf("mode %d", int(m))
}

// MarshalText makes the mode readable in JSON; an unknown one is an error.
func (m Mode) MarshalText() ([]byte, error) {
	if _, err := ParseMode(m.String()); err != nil {
		return nil, err
	}
	return []byte(m.String()), nil
}

// UnmarshalText reads what MarshalText wrote, and so flags and configuration
// files.
func (m *Mode) UnmarshalText(b []byte) (err error) {
	*m, err = ParseMode(string(b))
	return err
}

// ParseMode is the reverse of Mode.String.
func ParseMode(s string) (Mode, error) {
	for _, m := range []Mode{ModeObserve, ModeApply, ModeOff} {
		if s == m.String() {
			return m, nil
		}
	}
	return 0, fmt.Errorf("mode %q: use observe, apply or off", s)
}

// Options say what to do. The zero value observes all three knobs.
type Options struct {
	// Procs, Memory and GC say what to do about GOMAXPROCS, GOMEMLIMIT and
	// GOGC.
	Procs, Memory, GC Mode
	// Policy is how GOMAXPROCS follows the quota; PolicyCeil by default.
	Policy Policy
	// MinProcs and MaxProcs bound GOMAXPROCS under every policy; 0 is no bound.
	// More than the CPUs of the affinity mask is never set.
	MinProcs, MaxProcs int
	// Rounding, if not nil, makes a number of Ps of a quota in CPUs in place of
	// PolicyCeil, PolicyFloor and PolicyRound. A result below 1 is taken as 1.
	Rounding func(quota float64) int
	// MemoryRatio is the share of the memory limit that Go and the rest may
	// use together, above 0 and up to 1. Anything else is 0.9, and less of a limit
	// below 240 MiB: 24 MiB or a quarter of it stay free.
	MemoryRatio float64
	// MemoryReserve is how many bytes are left for memory that is not Go's, also
	// while less is used: for C code that allocates later, say.
	MemoryReserve int64
	// MemoryLimit, if not nil, gives the memory limit in bytes at each look in
	// place of the cgroup's, and where it is from; 0 bytes is none, and an empty
	// source leaves it to the cgroup.
	MemoryLimit func() (limit int64, source string)
	// Interval is the time between two looks; 0 is a second, less than 10 ms
	// is taken as 10 ms.
	Interval time.Duration
	// Logger gets every event; nil is slog.Default at the time of Start.
	// slog.DiscardHandler makes it silent.
	Logger *slog.Logger
	// OnEvent gets every event, in order; nil is none. It is called by Start,
	// by Stop, and by the goroutine that looks, for which Stop waits: so it
	// must not call Stop. A panic in it, in Rounding or in MemoryLimit ends the
	// process.
	OnEvent func(Event)
	// Cgroup says where limits are read; the zero value is this process.
	Cgroup cgroup.Options
}

// A Tuner looks and decides from Start to Stop. Its methods may be called
// concurrently.
type Tuner struct {
	opts Options
	// usualRatio says that MemoryRatio was not given.
	usualRatio bool

	knobs knobs
	env   environment
	stop  chan struct{}
	done  chan struct{}
	once  sync.Once

	mu    sync.Mutex
	read  *reader
	now   inputs
	prev  inputs
	looks int

	hook    *collectionHook
	alarmed time.Time
	// settled counts the looks in a row at which GOMEMLIMIT could rise, and
	// ceiling is its bound at the last.
	settled int
	// raised says that GOGC is, or is about to be, above its initial value.
	raised, wasRaised bool
	ceiling           int64

	procs knobState
	// overruled is what would be set, had other code not set GOMAXPROCS; 0 is
	// not told yet.
	overruled int64
	// runtimes says that GOMAXPROCS was the runtime's own choice at the start.
	runtimes bool
	memory   knobState
	gogc     knobState

	latency    latencyState
	crowded    crowdedState
	gc         gcState
	gcFrom     gcTimes
	gcFromAt   time.Time
	gcCycles   uint64 // seen by the policy, at gcAt
	gcAt       time.Time
	gcShare    float64 // of real CPU; below 0 unknown
	quotaShare float64
	first      cgroup.Stat
	firstOK    bool
	events     []Event
	pending    []Event // to be handed out when mu is free
}

// knobState is what was done about one knob.
type knobState struct {
	// initial is the value found at the start.
	initial int64
	// set is the value this tuner set last; valid if changed.
	set     int64
	changed bool
	// foreign says that other code set a value after the start: it wins.
	foreign bool
	// differs counts the looks in a row at which another value was wanted.
	differs int
	// told is the last event.
	told  Event
	spoke bool
}

// Start looks once, acts if it is to, and goes on doing so until Stop. It
// never fails: where nothing can be read it says so in one event a knob and
// changes nothing.
//
// Only one Tuner at a time should apply a knob: of two each would take the
// other for code that sets its own value.
func Start(opts Options) *Tuner {
	t := newTuner(opts, runtimeKnobs(), readEnvironment())
	t.start()
	return t
}

func (t *Tuner) start() {
	t.look()
	if t.watchesMemory() {
		t.hook = newCollectionHook()
	}
	go t.run()
}

// watchesMemory reports whether the memory policies may change anything, so
// that they look after each collection.
func (t *Tuner) watchesMemory() bool { return t.opts.Memory == ModeApply || t.opts.GC == ModeApply }

// betweenCollections is the least time between two looks after collections.
const betweenCollections = 10 * time.Millisecond

func newTuner(opts Options, k knobs, env environment) *Tuner {
	usual := !(opts.MemoryRatio > 0 && opts.MemoryRatio <= 1)
	if usual {
		opts.MemoryRatio = usualRatio
	}
	opts.Interval = cmp.Or(opts.Interval, time.Second)
	opts.Interval = max(opts.Interval, 10*time.Millisecond)
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	return &Tuner{
		opts: opts, usualRatio: usual, knobs: k, env: env, gcShare: -1, quotaShare: -1,
		read: newReader(opts.Cgroup, k.mapped), stop: make(chan struct{}), done: make(chan struct{}),
	}
}

func (t *Tuner) run() {
	defer close(t.done)
	tick := time.NewTicker(t.opts.Interval)
	defer tick.Stop()
	var collected <-chan struct{}
	if t.hook != nil {
		defer t.hook.stop()
		collected = t.hook.after
	}
	var last time.Time
	for {
		select {
		case <-t.stop:
			return
		case <-tick.C:
			t.look()
		case <-collected:
			if now := time.Now(); now.Sub(last) >= betweenCollections {
				last = now
				t.lookAfterCollection()
			}
		}
	}
}

// Stop ends the looking and gives back what was set: GOMAXPROCS to the
// runtime's own control where it has one (Go 1.25) and had it at the start,
// else the value found at the start. What other code set since is left alone.
// It may be called more than once.
func (t *Tuner) Stop() {
	t.once.Do(func() { close(t.stop) })
	<-t.done
	t.mu.Lock()
	if t.read != nil {
		t.restore()
		t.read.close()
		t.read = nil
	}
	t.unlockAndTell()
}

// unlockAndTell hands out what was decided. A logger or a callback may take its
// time, and may ask for State.
func (t *Tuner) unlockAndTell() {
	pending := t.pending
	t.pending = nil
	t.mu.Unlock()
	for _, e := range pending {
		e.Log(t.opts.Logger)
		if t.opts.OnEvent != nil {
			t.opts.OnEvent(e)
		}
	}
}

func (t *Tuner) restore() {
	s := t.knobs.observe(readGo(t.read.samples))
	if p := &t.procs; p.changed && int64(t.knobs.procs()) == p.set {
		how := "the value found at the start"
		if t.runtimes && t.knobs.defaultProc() {
			how = "the runtime's own control"
		} else {
			t.knobs.setProcs(int(p.initial))
		}
		p.changed = false
		t.tell(p, Event{Knob: KnobGOMAXPROCS, Action: ActionRestore, From: p.set, To: int64(t.knobs.procs()), Reason: "stopped: " + how})
	}
	if g := &t.gogc; g.changed && int64(s.gogc) == g.set {
		t.knobs.setGOGC(int(g.initial))
		g.changed = false
		t.tell(g, Event{Knob: KnobGOGC, Action: ActionRestore, From: g.set, To: g.initial, Reason: "stopped: the value found at the start"})
	}
	if m := &t.memory; m.changed && s.memoryLimit == m.set {
		t.knobs.setMemory(m.initial)
		m.changed = false
		t.tell(m, Event{Knob: KnobGOMEMLIMIT, Action: ActionRestore, From: m.set, To: m.initial, Reason: "stopped: the value found at the start"})
	}
}

func (t *Tuner) procsInput() procsInput {
	return procsInput{
		policy: t.opts.Policy, quota: t.now.bounds.Quota, cpus: t.now.cpus, absent: t.now.limits.CPU.Seen,
		least: t.opts.MinProcs, most: t.opts.MaxProcs, rounding: t.opts.Rounding,
	}
}

// runtimeChoice is what the runtime would pick now by itself.
func (t *Tuner) runtimeChoice() int {
	if !t.knobs.aware {
		return t.now.cpus
	}
	return runtimeDefault(t.now.bounds.OwnQuota, t.now.cpus)
}

// look reads everything, decides, and acts.
func (t *Tuner) look() {
	t.mu.Lock()
	defer t.unlockAndTell()
	t.prev = t.now
	t.read.read(&t.now, runtime.NumCPU())
	t.now.rt = t.knobs.observe(t.now.rt)
	if t.looks == 0 {
		t.procs.initial = int64(t.knobs.procs())
		t.runtimes = t.procs.initial == int64(t.runtimeChoice())
		t.memory.initial = t.now.rt.memoryLimit
		t.gogc.initial = int64(t.now.rt.gogc)
		t.first, t.firstOK = t.now.stat, t.now.statOK
	}
	t.looks++
	if t.opts.MemoryLimit != nil {
		t.now.provided, t.now.providedBy = t.opts.MemoryLimit()
	}
	t.measureGC()
	if t.opts.Procs != ModeOff {
		t.lookAtProcs()
	}
	t.lookAtMemoryAndGC(true)
}

// patience is for how many looks another value must be wanted before it is
// set. The first look acts at once: the program is only starting. Later the
// runtime, which follows its own limit once a second, goes first.
const patience = 3

func (t *Tuner) lookAtProcs() {
	p := &t.procs
	current := int64(t.knobs.procs())
	e := Event{Knob: KnobGOMAXPROCS, From: current, To: current, Source: t.now.cpuSource(), Undo: undo(KnobGOMAXPROCS)}
	n, reason := procsFor(t.procsInput())
	want := int64(n)

	if t.env.procs != "" {
		t.keep(p, e, "environment variable GOMAXPROCS", fmt.Sprintf("set by hand to %s; policy %s would be %d: %s", t.env.procs, t.opts.Policy, want, reason), "remove GOMAXPROCS from the environment")
		return
	}
	own := int64(t.runtimeChoice())
	if !p.foreign && t.setByOthers(current, own) {
		p.foreign = true
	}
	if p.foreign {
		if p.differs++; want == t.overruled {
			p.differs = 0
		} else if t.overruled == 0 || p.differs >= patience {
			// Told again when it begins to cost something else.
			t.overruled, p.differs, p.spoke = want, 0, false
		}
		t.keep(p, e, "the program", fmt.Sprintf("other code called runtime.GOMAXPROCS(%d); policy %s would be %d: %s", current, t.opts.Policy, want, reason),
			"remove that call, or the import that makes it (go.uber.org/automaxprocs, say)")
		return
	}
	if t.opts.Policy == PolicyLatency {
		if t.looks > 1 {
			var why string
			n, why = t.latency.step(t.latencyWindow(int(current)))
			want = int64(n)
			if want == current {
				return
			}
			reason = why
			p.differs = patience // the policy has its own
		}
	}
	if t.opts.Policy == PolicyCeil && t.opts.Rounding == nil && t.opts.Procs == ModeApply && t.looks > 1 {
		if more, why := t.crowded.step(t.crowdedWindow(int(current)), n, t.mostBeside()); more != n || why != "" {
			if n, want = more, int64(more); why != "" {
				reason, p.differs = reason+"; "+why, patience
			}
		}
	}
	if want == current {
		p.differs = 0
		e.Action, e.Reason = ActionKeep, reason
		if !p.changed && want == own && t.knobs.aware && t.now.runtimeSees() {
			e.Reason += "; the runtime picks the same, and keeps following it"
		}
		t.tell(p, e)
		return
	}
	if p.differs++; p.differs < patience && t.looks > 1 {
		return
	}
	p.differs = 0
	e.To, e.Reason = want, reason
	if t.opts.Procs == ModeObserve {
		e.Action = ActionWouldSet
		t.tell(p, e)
		return
	}
	e.Action = ActionSet
	if want == own && p.changed && t.knobs.aware && t.knobs.defaultProc() {
		e.Action, p.changed = ActionRestore, false
		e.Reason += "; the runtime picks the same, so it controls GOMAXPROCS again"
	} else {
		t.knobs.setProcs(n)
		p.set, p.changed = want, true
	}
	t.tell(p, e)
}

// setByOthers reports whether a GOMAXPROCS is neither this tuner's nor one the
// runtime may have picked.
func (t *Tuner) setByOthers(current, own int64) bool {
	p := &t.procs
	if p.changed {
		return current != p.set
	}
	// The runtime's choice is the CPUs of the machine, fewer by affinity or
	// quota; for a moment it may still be that of an earlier limit.
	if current == own || current == int64(t.now.cpus) || current == int64(runtime.NumCPU()) {
		return false
	}
	if t.looks > 1 && (current == p.initial || p.differs < patience) {
		p.differs++
		return false
	}
	return true
}

// mostBeside is the most Ps that neighbours are a reason for: what the runtime
// would take, were the tightest quota its own group's.
func (t *Tuner) mostBeside() int {
	n := runtimeDefault(t.now.bounds.Quota, t.now.cpus)
	if t.opts.MaxProcs > 0 {
		n = min(n, t.opts.MaxProcs)
	}
	return n
}

// crowdedWindow is latencyWindow where the own group's counters suffice: a quota
// out of sight would hold what the runtime takes back as well.
func (t *Tuner) crowdedWindow(current int) latencyWindow {
	w := t.latencyWindow(current)
	if t.now.bounds.QuotaDepth == 0 && t.now.stat.Has&t.prev.stat.Has&cgroup.HasBandwidth != 0 {
		w.measured = t.now.cpuOK
	}
	return w
}

func (t *Tuner) latencyWindow(current int) latencyWindow {
	w := latencyWindow{quota: t.now.bounds.Quota, cpus: t.now.cpus, current: current, least: t.opts.MinProcs, most: t.opts.MaxProcs}
	wall := t.now.at.Sub(t.prev.at)
	if wall <= 0 || !t.now.statOK || !t.prev.statOK || !t.now.cpuOK {
		return w
	}
	th := cgroup.Compare(&t.prev.stat, &t.now.stat)
	w.measured = th.Verdict != cgroup.VerdictUnknown
	w.periods, w.throttled = th.Periods, th.ThrottledPeriods
	if th.Verdict == cgroup.VerdictAncestor && t.now.bounds.Period > 0 {
		// An ancestor's periods are not told, only the CPU time lost: as if
		// all Ps had been held for that long.
		w.periods = int64(wall / t.now.bounds.Period)
		w.throttled = int64(float64(w.periods) * min(1, th.Ancestor.Seconds()/(wall.Seconds()*float64(max(1, current)))))
	}
	// By Little's law the mean number waiting is the time all of them waited
	// divided by the window.
	w.runnable = max(0, t.now.rt.waited-t.prev.rt.waited) / wall.Seconds()
	w.used = (t.now.cpu - t.prev.cpu).Seconds() / wall.Seconds()
	return w
}

// keptEvents is how many events State returns.
const keptEvents = 32

// keep tells that a knob is left as it is, because of what another one chose.
func (t *Tuner) keep(k *knobState, e Event, source, reason, undo string) {
	e.To, e.Action, e.Source, e.Reason, e.Undo = e.From, ActionKeep, source, reason, undo
	t.tell(k, e)
}

// tell notes an event unless it says the same as the knob's last.
func (t *Tuner) tell(k *knobState, e Event) {
	if k.spoke && k.told.To == e.To && k.told.Source == e.Source {
		did := k.told.Action == ActionSet || k.told.Action == ActionRestore
		if k.told.Action == e.Action || e.Action == ActionKeep && did {
			return
		}
	}
	e.Time = time.Now()
	k.told, k.spoke = e, true
	if len(t.events) == keptEvents {
		t.events = append(t.events[:0], t.events[1:]...)
	}
	t.events = append(t.events, e)
	t.pending = append(t.pending, e)
}
