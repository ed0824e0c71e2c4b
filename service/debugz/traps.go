package debugz

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/internal/aware"
)

// A Trap is a difference between what is and what somebody will assume. Codes
// are those of `whylate limits`; docs/limits.md has a line for each.
type Trap struct {
	Code string `json:"code"`
	Text string `json:"text"`
	Fix  string `json:"fix"`
}

// self is what a process knows of itself besides its limits.
type self struct {
	version      string
	since125     bool   // built with Go 1.25 or later
	aware        bool   // the runtime follows the quota
	envProcs     string // GOMAXPROCS in the environment
	automaxprocs string // the linked version
	procs        int
	numCPU       int
	memoryLimit  int64
}

func lookAtSelf() self {
	s := self{
		version: runtime.Version(), since125: aware.Since125(), aware: aware.Runtime(),
		envProcs: os.Getenv("GOMAXPROCS"), procs: runtime.GOMAXPROCS(0), numCPU: runtime.NumCPU(),
		memoryLimit: debug.SetMemoryLimit(-1),
	}
	if n, err := strconv.Atoi(s.envProcs); err != nil || n <= 0 {
		s.envProcs = "" // the runtime ignores it
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == "go.uber.org/automaxprocs" {
				s.automaxprocs = d.Version
			}
		}
	}
	return s
}

// traps finds what a process's own view can show.
func traps(s self, l *cgroup.Limits) []Trap {
	var ts []Trap
	add := func(code, fix, format string, args ...any) {
		ts = append(ts, Trap{Code: code, Text: fmt.Sprintf(format, args...), Fix: fix})
	}
	var c cgroup.CPU
	var m cgroup.Memory
	if l != nil {
		c, m = l.CPU, l.Memory
	}
	own := 0.0
	if len(c.Levels) > 0 && c.Levels[0].Depth == 0 {
		own = c.Levels[0].CPUs
	}
	if s.envProcs != "" {
		add("env-gomaxprocs", "unset GOMAXPROCS, or set it from the limit", "GOMAXPROCS=%s is in the environment: it does not follow a limit that changes", s.envProcs)
	}
	switch {
	case s.envProcs != "" || s.aware:
	case s.since125:
		add("old-go-mod", "raise the go line of go.mod to 1.25 or later, or import service/auto",
			"built with %s, but with containermaxprocs=0, as a go.mod below go 1.25 (or GODEBUG) sets it: the runtime does not look at quotas", s.version)
	default:
		add("old-go", "build with Go 1.25 or later, or import service/auto", "built with %s, whose runtime does not look at quotas", s.version)
	}
	if s.automaxprocs != "" && s.aware {
		add("leftover-automaxprocs", "remove the import of go.uber.org/automaxprocs",
			"automaxprocs %s is still linked: where the own group has a quota it rounds it down and turns the runtime's following of the limit off", s.automaxprocs)
	}
	if c.Quota > 0 && (c.QuotaLevel > 0 || own == 0) && c.QuotaLevel < len(c.Levels) {
		add("ancestor-tighter", "import service/auto, which takes the tightest visible quota",
			"the tightest quota, %s, is an ancestor's (%s); the runtime and automaxprocs look at the own group only", number(c.Quota, "CPUs"), c.Levels[c.QuotaLevel].File)
	}
	if c.Hidden {
		add("hidden-ancestors", "nothing, if no pod, task or slice above sets a limit", "groups above are out of sight; a quota there would bind and cannot be read")
	}
	if c.Quota > 0 && float64(s.procs) > c.Quota {
		freeze := 100 * (1 - c.Quota/float64(s.procs))
		add("fractional-quota", "use whole CPUs, 2 or more, where latency matters",
			"GOMAXPROCS %d is more than the quota of %s: with all Ps busy the last %.0f %% of each period are a freeze", s.procs, number(c.Quota, "CPUs"), freeze)
	}
	if c.Quota > 0 && float64(s.numCPU) >= 2*c.Quota && s.numCPU > 1 {
		add("numcpu-frozen", "size pools by runtime.GOMAXPROCS(0), or by service/pool",
			"runtime.NumCPU() says %d for the life of the process, the quota is %s: pools sized by it are too large", s.numCPU, number(c.Quota, "CPUs"))
	}
	if m.Max > 0 && s.memoryLimit == math.MaxInt64 {
		add("no-gomemlimit", "set GOMEMLIMIT to nine tenths of the limit, or WHYLATE_GOMEMLIMIT=apply with service/auto",
			"a memory limit of %s that nobody tells the runtime", size(m.Max))
	}
	if m.Max > 0 && s.memoryLimit != math.MaxInt64 && s.memoryLimit > m.Max {
		add("gomemlimit-too-high", "set GOMEMLIMIT to nine tenths of the limit, or less", "GOMEMLIMIT is %s, the memory limit %s", size(s.memoryLimit), size(m.Max))
	}
	if m.Max > 0 && m.MaxLevel > 0 {
		add("memory-ancestor", "look at the tightest level, not at the own group", "the tightest memory limit, %s, is on a group %d up", size(m.Max), m.MaxLevel)
	}
	return ts
}
