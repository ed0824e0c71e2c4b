package debugz

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/internal/aware"
	"github.com/whylate/whylate/service/traps"
	"github.com/whylate/whylate/service/tune"
)

// gatherFacts returns the facts about this process for traps.Find. l are its limits and t the tuner's state; either may be nil. It samples the
// counters of the group that o selects.
func gatherFacts(o cgroup.Options, l *cgroup.Limits, t *tune.State) traps.Facts {
	f := traps.Facts{
		Limits: l, Go: runtime.Version(), Aware: aware.Runtime(),
		Procs: runtime.GOMAXPROCS(0), NumCPU: runtime.NumCPU(), GOMEMLIMIT: debug.SetMemoryLimit(-1),
	}
	// The runtime ignores a GOMAXPROCS that is no positive number.
	if n, err := strconv.Atoi(os.Getenv("GOMAXPROCS")); err == nil && n > 0 {
		f.EnvProcs = n
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == "go.uber.org/automaxprocs" {
				f.Automaxprocs = d.Version
			}
		}
	}
	f.ProcsBy = procsSetter(f, l, t)
	if s, err := cgroup.NewSampler(o); err == nil {
		var st cgroup.Stat
		if s.Sample(&st) == nil {
			throttling := cgroup.Compare(&cgroup.Stat{Has: st.Has}, &st)
			f.Throttling = &throttling
		}
		s.Close()
	}
	return f
}

// procsSetter returns the origin of the current GOMAXPROCS, SetByUnknown without limits. l and t may be nil.
func procsSetter(f traps.Facts, l *cgroup.Limits, t *tune.State) traps.Setter {
	switch {
	case f.EnvProcs > 0:
		return traps.SetByEnvironment
	case t != nil && t.ProcsBy == "whylate":
		return traps.SetByAuto
	}
	if l == nil {
		return traps.SetByUnknown
	}
	n, ok := traps.Automaxprocs(l, false)
	switch {
	case f.Automaxprocs != "" && ok && n == f.Procs:
		return traps.SetByAutomaxprocs
	case f.Procs == l.CPU.RuntimeDefault() || f.Procs == l.CPU.Parallelism:
		return traps.SetByRuntime
	}
	return traps.SetByProgram
}
