package tune

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/whylate/whylate/service/internal/aware"
)

// knobs are the runtime's settings; tests have others.
type knobs struct {
	setProcs    func(int)
	procs       func() int
	setMemory   func(int64)
	setGOGC     func(int)
	defaultProc func() bool // hand GOMAXPROCS back to the runtime, if it can take it
	// observe changes what the runtime told; tests have another runtime.
	observe func(goStats) goStats
	// mapped is what the runtime mapped less what it gave back.
	mapped func() int64
	// aware says that the runtime picks GOMAXPROCS by the quota itself and
	// follows its changes.
	aware bool
}

func runtimeKnobs() knobs {
	return knobs{
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
