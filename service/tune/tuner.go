package tune

import (
	"cmp"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/internal/guard"
)

// A Mode is the tuner's treatment of one knob.
type Mode int

const (
	// ModeObserve decides and reports, but changes nothing.
	ModeObserve Mode = iota
	// ModeApply also sets the value.
	ModeApply
	// ModeOff ignores the knob.
	ModeOff
)

var modeNames = []string{"observe", "apply", "off"}

func (m Mode) String() string {
	if m < 0 || int(m) >= len(modeNames) {
		return fmt.Sprintf("mode %d", int(m))
	}
	return modeNames[m]
}

// MarshalText makes the mode readable in JSON; an unknown one is an error.
func (m Mode) MarshalText() ([]byte, error) {
	if _, err := ParseMode(m.String()); err != nil {
		return nil, err
	}
	return []byte(m.String()), nil
}

// UnmarshalText reads the text of MarshalText, so that flags and configuration files
// can hold a mode.
func (m *Mode) UnmarshalText(b []byte) (err error) {
	*m, err = ParseMode(string(b))
	return err
}

// ParseMode is the reverse of Mode.String; any other text is an error.
func ParseMode(s string) (Mode, error) {
	if i := slices.Index(modeNames, s); i >= 0 {
		return Mode(i), nil
	}
	return 0, fmt.Errorf("mode %q: use observe, apply or off", s)
}

// Options configure a Tuner. The zero value observes all three knobs.
type Options struct {
	// Procs is the mode of GOMAXPROCS, Memory of GOMEMLIMIT, and GC of GOGC.
	Procs, Memory, GC Mode
	// Policy is how GOMAXPROCS follows the quota; PolicyCeil by default.
	Policy Policy
	// MinProcs and MaxProcs bound GOMAXPROCS under every policy; 0 is no bound.
	// More than the CPUs of the affinity mask is never set.
	MinProcs, MaxProcs int
	// Rounding, if not nil, turns a quota in CPUs into a number of Ps, in place of
	// PolicyCeil, PolicyFloor and PolicyRound. A result below 1 counts as 1.
	Rounding func(quota float64) int
	// MemoryRatio is the share of the memory limit that Go and the rest may
	// use together, above 0 and up to 1. Anything else means 0.9, or less if the
	// limit is below 240 MiB: then 24 MiB stay free, or a quarter of it.
	MemoryRatio float64
	// MemoryReserve is the number of bytes that stay free for memory outside of Go,
	// even while less is used: for example for C code that allocates later.
	MemoryReserve int64
	// MemoryLimit, if not nil, returns the memory limit in bytes that replaces the
	// cgroup's, and its source. 0 bytes means no limit; an empty source means that the
	// cgroup's limit applies.
	MemoryLimit func() (limit int64, source string)
	// Interval is the time between two polls: 1 s if 0, and at least 10 ms.
	Interval time.Duration
	// Logger gets every event; nil is slog.Default at the time of Start.
	// slog.DiscardHandler makes it silent.
	Logger *slog.Logger
	// OnEvent, if not nil, gets every event, in order. Start, Stop and the tuner's
	// goroutine call it. Stop waits for that goroutine, so OnEvent must not call
	// Stop. A panic in it, in Logger, in Rounding or in MemoryLimit is reported to
	// slog.Default, and that poll changes nothing.
	OnEvent func(Event)
	// Cgroup selects the process whose limits are read; the zero value is this process.
	Cgroup cgroup.Options
}

// A Tuner polls limits and sets the knobs from Start to Stop. Its methods may be
// called concurrently.
type Tuner struct {
	opts Options
	// defaultRatio means that Options.MemoryRatio was not set.
	defaultRatio bool

	runtime  goRuntime
	stop     chan struct{}
	done     chan struct{}
	stopOnce sync.Once
	guard    guard.Guard

	mu                sync.Mutex
	reader            *reader
	current, previous inputs // of this poll and the one before
	polls             int
	firstStat         cgroup.Stat // valid if firstStatOK
	firstStatOK       bool
	events            []Event
	undelivered       []Event // reported after mu is unlocked

	procs, memory, gogc knob

	// overruledProcs is the last reported GOMAXPROCS that the tuner would set if other
	// code had not set it; 0 if none was reported yet.
	overruledProcs int64
	// runtimeChosen means that GOMAXPROCS was the runtime's choice at the start.
	runtimeChosen bool
	latency       latencyState
	crowded       crowdedState

	hook *collectionHook
	// settledPolls counts the polls in a row at which GOMEMLIMIT could rise, and
	// lastCeiling is its upper bound at the last one.
	settledPolls int
	lastCeiling  int64
	// gogcRaised means that GOGC is, or is about to be, above its initial value.
	gogcRaised, gogcWasRaised bool
	lastAlarm                 time.Time
	gc                        gcState
	gcTimesStart              gcTimes
	gcTimesStartAt            time.Time
	policyCycles              uint64 // collections at the policy's last window, and its end
	policyCyclesAt            time.Time
	gcShare                   float64 // of real CPU time; negative if unknown
	quotaShare                float64
}

// Start polls the limits, sets the knobs, and starts a goroutine that repeats this
// until Stop. It never fails: if nothing can be read, it reports that in one event for
// each knob and changes nothing.
//
// Only one Tuner at a time should apply a knob. Two tuners would each treat the other's
// value as set by other code.
func Start(opts Options) *Tuner {
	t := newTuner(opts, realRuntime(), readEnvironment())
	t.start()
	return t
}

// start polls once, so the knobs are set when it returns, and starts the tuner's goroutine.
func (t *Tuner) start() {
	t.poll()
	if t.canChangeMemory() {
		t.hook = newCollectionHook()
	}
	go t.run()
}

// canChangeMemory reports whether the memory policies may change anything. If so, they
// poll after each collection.
func (t *Tuner) canChangeMemory() bool { return t.opts.Memory == ModeApply || t.opts.GC == ModeApply }

// minPollGap is the shortest time between two polls after collections.
const minPollGap = 10 * time.Millisecond

// newTuner returns a tuner of the runtime r that does not run yet, with defaults for
// options that are zero or out of range.
func newTuner(opts Options, r goRuntime, env environment) *Tuner {
	defaultRatio := !(opts.MemoryRatio > 0 && opts.MemoryRatio <= 1)
	if defaultRatio {
		opts.MemoryRatio = defaultMemoryRatio
	}
	opts.Interval = max(cmp.Or(opts.Interval, time.Second), 10*time.Millisecond)
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	t := &Tuner{
		opts: opts, defaultRatio: defaultRatio, runtime: r, gcShare: -1, quotaShare: -1,
		reader: newReader(opts.Cgroup, r.mapped), stop: make(chan struct{}), done: make(chan struct{}),
	}
	t.initKnobs(env)
	return t
}

// run polls until the tuner is stopped. A panic ends it.
func (t *Tuner) run() {
	defer close(t.done)
	_ = t.guard.Do("tune: the tuner", t.pollUntilStop)
}

// pollUntilStop polls at the interval and after collections until Stop.
func (t *Tuner) pollUntilStop() {
	tick := time.NewTicker(t.opts.Interval)
	defer tick.Stop()
	var collected <-chan struct{}
	if t.hook != nil {
		defer t.hook.stop()
		collected = t.hook.tokens
	}
	var last time.Time
	for {
		select {
		case <-t.stop:
			return
		case <-tick.C:
			t.poll()
		case <-collected:
			if now := time.Now(); now.Sub(last) >= minPollGap {
				last = now
				t.pollAfterCollection()
			}
		}
	}
}

// Stop stops the goroutine, for which it waits, and restores the knobs that the tuner set: GOMAXPROCS to the runtime's control if the runtime
// controls it (Go 1.25) and did so at the start, otherwise the values found at the start. Values that other code has set since remain. Stop may be
// called more than once.
func (t *Tuner) Stop() {
	t.stopOnce.Do(func() { close(t.stop) })
	<-t.done
	t.mu.Lock()
	defer t.unlockAndDeliver()
	if t.reader != nil {
		_ = t.guard.Do("tune: giving back", t.restore)
		t.reader.close()
		t.reader = nil
	}
}

// unlockAndDeliver unlocks mu and passes the new events to Logger and OnEvent. These may be
// slow, and may call State.
func (t *Tuner) unlockAndDeliver() {
	events := t.undelivered
	t.undelivered = nil
	t.mu.Unlock()
	for _, e := range events {
		_ = t.guard.Do("tune.Options.Logger", func() { e.Log(t.opts.Logger) })
		if t.opts.OnEvent != nil {
			_ = t.guard.Do("tune.Options.OnEvent", func() { t.opts.OnEvent(e) })
		}
	}
}

// restore restores the knobs that the tuner has set and other code has not.
func (t *Tuner) restore() {
	t.current.goStats = t.runtime.observe(readGo(t.reader.samples))
	for _, k := range []*knob{&t.procs, &t.gogc, &t.memory} {
		if !k.changed || k.get() != k.lastSet {
			continue
		}
		restored := "the value found at the start"
		if k == &t.procs && t.runtimeChosen && t.runtime.defaultProc() {
			restored, k.changed = "the runtime's own control", false
		} else {
			k.restoreInitial()
		}
		t.record(k, Event{Knob: k.name, Action: ActionRestore, From: k.lastSet, To: k.get(), Reason: "stopped: " + restored})
	}
}

// poll reads all inputs, decides, and sets the knobs.
func (t *Tuner) poll() {
	t.mu.Lock()
	defer t.unlockAndDeliver()
	_ = t.guard.Do("tune: reading the limits", t.decide)
}

// decide does the work of poll with mu held.
func (t *Tuner) decide() {
	t.previous = t.current
	t.reader.read(&t.current, runtime.NumCPU())
	t.current.goStats = t.runtime.observe(t.current.goStats)
	if t.polls == 0 {
		for _, k := range []*knob{&t.procs, &t.memory, &t.gogc} {
			k.initial = k.get()
		}
		t.runtimeChosen = t.procs.initial == int64(t.runtimeChoice())
		t.firstStat, t.firstStatOK = t.current.stat, t.current.statOK
	}
	t.polls++
	if t.opts.MemoryLimit != nil {
		t.current.providedLimit, t.current.providedSource = t.opts.MemoryLimit()
	}
	t.measureGC()
	if t.opts.Procs != ModeOff {
		t.applyProcs()
	}
	t.applyMemoryAndGC(true)
}

// maxEvents is the number of events that State returns.
const maxEvents = 32

// record adds an event unless it repeats the knob's last one.
func (t *Tuner) record(k *knob, e Event) {
	if k.hasEvent && k.lastEvent.To == e.To && k.lastEvent.Source == e.Source {
		changed := k.lastEvent.Action == ActionSet || k.lastEvent.Action == ActionRestore
		if k.lastEvent.Action == e.Action || e.Action == ActionKeep && changed {
			return
		}
	}
	e.Time = time.Now().UTC()
	k.lastEvent, k.hasEvent = e, true
	t.events = append(t.events, e)
	t.events = t.events[max(0, len(t.events)-maxEvents):]
	t.undelivered = append(t.undelivered, e)
}
