package tune

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/whylate/whylate/service/internal/aware"
)

// goRuntime is the part of the runtime that holds the settings. Tests use a fake.
type goRuntime struct {
	setProcs    func(int)
	procs       func() int
	setMemory   func(int64)
	setGOGC     func(int)
	defaultProc func() bool // returns GOMAXPROCS to the runtime's control if it supports that
	// observe returns its argument, the runtime's metrics; tests replace them.
	observe func(goStats) goStats
	// mapped returns the bytes that the runtime has mapped and not released.
	mapped func() int64
	// aware means that the runtime sets GOMAXPROCS by the quota and follows its
	// changes.
	aware bool
}

// realRuntime returns the functions that read and change this process's runtime.
func realRuntime() goRuntime {
	return goRuntime{
		setProcs:    func(n int) { runtime.GOMAXPROCS(n) },
		procs:       func() int { return runtime.GOMAXPROCS(0) },
		setMemory:   func(n int64) { debug.SetMemoryLimit(n) },
		setGOGC:     func(n int) { debug.SetGCPercent(n) },
		observe:     func(s goStats) goStats { return s },
		mapped:      readMapped(),
		defaultProc: setDefaultGOMAXPROCS,
		aware:       aware.Runtime(),
	}
}

// environment has the knobs' environment variables, "" if not set.
type environment struct{ procs, memory, gogc string }

// readEnvironment returns the settings of GOMAXPROCS, GOMEMLIMIT and GOGC in the
// environment, without a GOMAXPROCS that the runtime ignores.
func readEnvironment() environment {
	e := environment{memory: os.Getenv(string(KnobGOMEMLIMIT)), gogc: os.Getenv(string(KnobGOGC))}
	// The runtime ignores a GOMAXPROCS that is not a positive number.
	if v := os.Getenv(string(KnobGOMAXPROCS)); v != "" {
		if n, err := strconv.Atoi(v); err == nil && n > 0 {
			e.procs = v
		}
	}
	return e
}

// A knob is one of the three settings, with its history.
type knob struct {
	name Knob
	// env is the knob's environment variable, which has precedence; "" if not set.
	env string
	get func() int64
	put func(int64)
	// foreignReason is the reason of an event about other code that set the knob, with a
	// verb for the value; foreignUndo is its Undo.
	foreignReason, foreignUndo string

	// initial is the value found at the start.
	initial int64
	// lastSet is the value that this tuner set last; valid if changed.
	lastSet int64
	changed bool
	// foreign means that other code set the knob; its value has precedence.
	foreign bool
	// differingPolls counts the polls in a row at which the policy chose another value.
	differingPolls int
	// lastEvent is the knob's last event; valid if hasEvent.
	lastEvent Event
	hasEvent  bool
}

// initKnobs connects the three knobs with the runtime. Setting a knob also updates the current inputs.
func (t *Tuner) initKnobs(env environment) {
	t.procs = knob{
		name: KnobGOMAXPROCS, env: env.procs,
		get:           func() int64 { return int64(t.runtime.procs()) },
		put:           func(n int64) { t.runtime.setProcs(int(n)) },
		foreignReason: "other code called runtime.GOMAXPROCS(%s)", foreignUndo: "remove that call, or the import that makes it (go.uber.org/automaxprocs, say)",
	}
	t.memory = knob{
		name: KnobGOMEMLIMIT, env: env.memory,
		get:           func() int64 { return t.current.goStats.memoryLimit },
		put:           func(n int64) { t.runtime.setMemory(n); t.current.goStats.memoryLimit = n },
		foreignReason: "other code set the limit to %s", foreignUndo: "remove the call of debug.SetMemoryLimit, or the import that makes it",
	}
	t.gogc = knob{
		name: KnobGOGC, env: env.gogc,
		get:           func() int64 { return int64(t.current.goStats.gogc) },
		put:           func(n int64) { t.runtime.setGOGC(int(n)); t.current.goStats.gogc = int(n) },
		foreignReason: "other code set GOGC to %s", foreignUndo: "remove the call of debug.SetGCPercent",
	}
}

// event returns an event that leaves the knob as it is.
func (k *knob) event(source string) Event {
	v := k.get()
	return Event{Knob: k.name, From: v, To: v, Source: source, Undo: string(k.name) + " in the environment sets another value"}
}

// hasForeignValue reports whether the value is neither the one found at the start nor the one set by this tuner.
func (k *knob) hasForeignValue() bool {
	if k.changed {
		return k.get() != k.lastSet
	}
	return k.get() != k.initial
}

// restoreInitial sets the value found at the start.
func (k *knob) restoreInitial() {
	k.put(k.initial)
	k.changed = false
}

// setBy returns the origin of the knob's value for State: "environment", "program", "whylate" or "runtime". unusual means that the value differs from
// the runtime's default.
func (k *knob) setBy(unusual bool) string {
	switch {
	case k.env != "":
		return "environment"
	case k.foreign:
		return "program"
	case k.changed:
		return "whylate"
	case unusual:
		return "program"
	}
	return "runtime"
}

// keepForeign records an event that keeps the knob if the environment or other code has set it, and reports whether that is
// so. alternative is a text about the value that the tuner would set.
func (t *Tuner) keepForeign(k *knob, e Event, alternative string) bool {
	switch {
	case k.env != "":
		e.Source, e.Reason, e.Undo = "environment variable "+string(k.name), "set by hand to "+k.env, "remove "+string(k.name)+" from the environment"
	case k.foreign:
		e.Source, e.Reason, e.Undo = "the program", fmt.Sprintf(k.foreignReason, valueText(k.name, e.From)), k.foreignUndo
	default:
		return false
	}
	e.To, e.Action = e.From, ActionKeep
	e.Reason += alternative
	t.record(k, e)
	return true
}

// applyEvent sets the knob to e.To, or only records the event if apply is false.
func (t *Tuner) applyEvent(k *knob, e Event, apply bool) {
	switch {
	case e.To == e.From:
		e.Action = ActionKeep
	case !apply:
		e.Action = ActionWouldSet
	default:
		e.Action = ActionSet
		k.put(e.To)
		k.lastSet, k.changed = e.To, true
	}
	t.record(k, e)
}
