package tune

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/whylate/whylate/service/internal/aware"
)

// goRuntime is the part of the runtime that holds the settings; tests have another one.
type goRuntime struct {
	setProcs    func(int)
	procs       func() int
	setMemory   func(int64)
	setGOGC     func(int)
	defaultProc func() bool // hand GOMAXPROCS back to the runtime, if it can take it
	// observe returns what was read of the runtime; tests change it.
	observe func(goStats) goStats
	// mapped is what the runtime mapped less what it gave back.
	mapped func() int64
	// aware says that the runtime picks GOMAXPROCS by the quota itself and
	// follows its changes.
	aware bool
}

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

// environment is what the user set by hand.
type environment struct{ procs, memory, gogc string }

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

// A knob is one of the three settings, and what this tuner and others did about it.
type knob struct {
	name Knob
	// env is its value in the environment, which wins; "" is none.
	env string
	get func() int64
	put func(int64)
	// foreignReason says what other code did to set a value, and remove what undoes that.
	foreignReason, foreignUndo string

	// initial is the value found at the start.
	initial int64
	// lastSet is the value this tuner set last; valid if changed.
	lastSet int64
	changed bool
	// foreign says that other code set a value after the start: it wins.
	foreign bool
	// differingPolls counts the looks in a row at which another value was wanted.
	differingPolls int
	// lastEvent is the last event.
	lastEvent Event
	hasEvent  bool
}

// initKnobs connects the three knobs with the runtime. What was read at the last look is kept up to date.
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

// event begins an event that leaves the knob as it is.
func (k *knob) event(source string) Event {
	v := k.get()
	return Event{Knob: k.name, From: v, To: v, Source: source, Undo: string(k.name) + " in the environment sets another value"}
}

// hasForeignValue reports whether a value is in force that this tuner has neither found nor set.
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

// setBy says who set the knob; unusual is that its value is not the runtime's.
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

// keepForeign leaves a knob as it is if the environment or other code has set it, and reports whether that is so. wish says what
// would be set otherwise.
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

// applyEvent sets a knob to what the event decided on. If apply is false, it only says so.
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
