// Package traps finds wrong assumptions about the limits of a process: the
// runtime's, a library's, or those of an environment variable. [Find] is a pure
// function of facts. `whylate limits` gathers them from outside a process, and
// service/debugz inside it.
package traps

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/internal/quantity"
)

// A Code names a trap. Codes are stable; docs/limits.md explains each.
type Code string

const (
	AncestorTighter         Code = "ancestor-tighter"
	HiddenAncestorThrottles Code = "hidden-ancestor-throttles"
	HiddenAncestors         Code = "hidden-ancestors"
	HiddenMemory            Code = "hidden-memory"
	RuntimeMissesQuota      Code = "runtime-misses-quota"
	Early125MountRoot       Code = "early-1.25-mount-root"
	OldGoMod                Code = "old-go-mod"
	OldGo                   Code = "old-go"
	LeftoverAutomaxprocs    Code = "leftover-automaxprocs"
	EnvGOMAXPROCS           Code = "env-gomaxprocs"
	FractionalQuota         Code = "fractional-quota"
	NumCPUFrozen            Code = "numcpu-frozen"
	Throttled               Code = "throttled"
	GOMEMLIMITTooHigh       Code = "gomemlimit-too-high"
	NoGOMEMLIMIT            Code = "no-gomemlimit"
	MemoryAncestor          Code = "memory-ancestor"
	MemoryHigh              Code = "memory-high"
)

// Codes returns all codes that [Find] may return.
func Codes() []Code {
	return []Code{
		AncestorTighter, HiddenAncestorThrottles, HiddenAncestors, HiddenMemory, RuntimeMissesQuota, Early125MountRoot, OldGoMod, OldGo,
		LeftoverAutomaxprocs, EnvGOMAXPROCS, FractionalQuota, NumCPUFrozen, Throttled, GOMEMLIMITTooHigh, NoGOMEMLIMIT, MemoryAncestor, MemoryHigh,
	}
}

// A Severity is the cost of a trap. Find returns traps in the order of these
// constants.
type Severity string

const (
	High   Severity = "high"
	Medium Severity = "medium"
	Low    Severity = "low"
	Info   Severity = "info"
)

var severities = []Severity{High, Medium, Low, Info}

// A Trap is a wrong assumption about a limit.
type Trap struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	Text     string   `json:"text"`
	Fix      string   `json:"fix"`
}

// A Setter is the origin of the current GOMAXPROCS.
type Setter int

const (
	// SetByUnknown: not known.
	SetByUnknown Setter = iota
	SetByRuntime
	SetByEnvironment
	SetByAutomaxprocs
	// SetByAuto is whylate's service/auto or service/tune.
	SetByAuto
	// SetByProgram is a call of runtime.GOMAXPROCS.
	SetByProgram
)

// Facts describe a process. Unknown facts are zero.
type Facts struct {
	// Limits are the process's limits as the caller sees them; with nil only traps
	// of the program itself are found.
	Limits *cgroup.Limits
	// Inside are the limits that the process itself sees; nil means the same ones.
	Inside *cgroup.Limits
	// Namespaced reports that the process is in a separate cgroup namespace.
	Namespaced bool
	// Throttling is the group's throttling since its creation; nil is unknown.
	Throttling *cgroup.Throttling

	// Go is the version it was built with, such as "go1.26.8"; "" is unknown,
	// or no Go program.
	Go string
	// Aware reports that the runtime reads quotas: Go 1.25 or later without
	// containermaxprocs=0. It is ignored if Go is empty.
	Aware bool
	// EnvProcs is a valid GOMAXPROCS of the environment.
	EnvProcs int
	// Procs is the current GOMAXPROCS, and ProcsBy its origin.
	Procs   int
	ProcsBy Setter
	// NumCPU is runtime.NumCPU of the process.
	NumCPU int
	// GOMEMLIMIT is its current value in bytes; math.MaxInt64 is none, 0 is
	// unknown.
	GOMEMLIMIT int64
	// Automaxprocs is the linked version of go.uber.org/automaxprocs.
	Automaxprocs string
}

// Find returns the traps that the facts show, the worst first; nil if there are none. It reads no file and no setting of this process.
func Find(f Facts) []Trap {
	j := trapFinder{Facts: f, limits: f.Limits, inside: f.Inside}
	if j.limits == nil {
		j.limits = &cgroup.Limits{CPU: cgroup.CPU{QuotaLevel: -1}, Memory: cgroup.Memory{MaxLevel: -1, HighLevel: -1}}
	}
	j.inside = cmp.Or(j.inside, j.limits)
	if c := &j.limits.CPU; len(c.Levels) > 0 && c.Levels[0].Depth == 0 {
		j.ownQuota = c.Levels[0].CPUs
	}
	j.findProgramTraps()
	j.findQuotaTraps()
	j.findHiddenTraps()
	j.findRoundingTraps()
	j.findMemoryTraps()
	slices.SortStableFunc(j.traps, func(a, b Trap) int {
		return slices.Index(severities, a.Severity) - slices.Index(severities, b.Severity)
	})
	return j.traps
}

type trapFinder struct {
	Facts
	limits, inside *cgroup.Limits
	ownQuota       float64 // quota of the process's own group
	traps          []Trap
}

func (j *trapFinder) addTrap(code Code, severity Severity, fix, format string, args ...any) {
	j.traps = append(j.traps, Trap{Code: code, Severity: severity, Text: fmt.Sprintf(format, args...), Fix: fix})
}

// Minor returns N of "go1.N...", or 0 for another form.
func Minor(version string) int {
	s, ok := strings.CutPrefix(version, "go1.")
	if !ok {
		return 0
	}
	n := 0
	for _, r := range s {
		if r < '0' || r > '9' || n > 1000 {
			break
		}
		n = n*10 + int(r-'0')
	}
	return n
}

// findProgramTraps finds traps of the program and its environment.
func (j *trapFinder) findProgramTraps() {
	c, in := &j.limits.CPU, &j.inside.CPU
	if j.EnvProcs > 0 {
		sev, consequence := Low, "it will not follow a limit that changes"
		if c.Quota > 0 && float64(j.EnvProcs) >= math.Ceil(c.Quota)+1 {
			sev, consequence = High, "the quota is "+quantity.CPUs(c.Quota)
		}
		j.addTrap(EnvGOMAXPROCS, sev, "unset GOMAXPROCS, or set it from the limit (in Kubernetes a resourceFieldRef to limits.cpu gives the node's CPUs where no limit is set)",
			"GOMAXPROCS=%d is in the environment: %s", j.EnvProcs, consequence)
	}
	if j.Go != "" && !j.Aware && j.EnvProcs == 0 && j.ProcsBy != SetByAutomaxprocs && j.ProcsBy != SetByAuto {
		sev := Low
		if c.RuntimeQuota > 0 && in.RuntimeDefault() < c.Parallelism {
			sev = High
		}
		if Minor(j.Go) >= 25 {
			j.addTrap(OldGoMod, sev, "raise the go line of go.mod to 1.25 or later, or set //go:debug containermaxprocs=1 and updatemaxprocs=1",
				"built with %s, but a go.mod below go 1.25 (or GODEBUG) sets containermaxprocs=0: all %d CPUs are used, whatever the quota", j.Go, c.Parallelism)
		} else {
			j.addTrap(OldGo, sev, "build with Go 1.25 or later, or import whylate's service/auto",
				"built with %s, which does not read quotas: all %d CPUs are used", j.Go, c.Parallelism)
		}
	}
	if j.Automaxprocs == "" || !j.Aware {
		return
	}
	const remove = "remove the import of go.uber.org/automaxprocs"
	n, ok := Automaxprocs(j.inside, j.Namespaced)
	switch runtimeDefault := in.RuntimeDefault(); {
	case ok && j.EnvProcs > 0:
		j.addTrap(LeftoverAutomaxprocs, Low, remove, "automaxprocs %s is still linked: it does nothing while GOMAXPROCS is in the environment", j.Automaxprocs)
	case ok:
		sev := Medium
		if n == runtimeDefault {
			sev = Low
		}
		j.addTrap(LeftoverAutomaxprocs, sev, remove,
			"automaxprocs %s is still linked: it sets GOMAXPROCS to %d where %s alone would choose %d, and stops the runtime from following the limit", j.Automaxprocs, n, j.Go, runtimeDefault)
	default:
		j.addTrap(LeftoverAutomaxprocs, Low, remove,
			"automaxprocs %s is still linked: it does nothing now, but once the process's group has a quota it rounds it down and stops the runtime from following the limit", j.Automaxprocs)
	}
}

// findQuotaTraps finds quotas that the runtime does not see.
func (j *trapFinder) findQuotaTraps() {
	c := &j.limits.CPU
	if c.Quota > 0 && c.QuotaLevel >= 0 && c.QuotaLevel < len(c.Levels) && (c.QuotaLevel > 0 || j.ownQuota == 0) {
		fix := "import whylate's service/auto, which takes the tightest visible quota; or set GOMAXPROCS"
		if j.inside.CPU.Quota != c.Quota {
			fix = "set GOMAXPROCS: the process itself cannot see that group, and no library inside it can"
		}
		j.addTrap(AncestorTighter, High, fix,
			"the tightest quota, %s, is an ancestor's (%s); the Go runtime and automaxprocs read only the process's own group, which has %s", quantity.CPUs(c.Quota), c.Levels[c.QuotaLevel].File, orNone(j.ownQuota))
	}
	if j.ownQuota > 0 && c.RuntimeQuota != j.ownQuota && j.inside.CPU.RuntimeQuota != j.ownQuota {
		j.addTrap(RuntimeMissesQuota, High, "mount the hierarchy once, or set GOMAXPROCS",
			"the process's group has a quota of %s, but the runtime reads the first matching line of mountinfo, which leads elsewhere: it sees %s", quantity.CPUs(j.ownQuota), orNone(c.RuntimeQuota))
	}
	if Minor(j.Go) == 25 && j.ownQuota > 0 && !j.Namespaced && j.inside.CPU.MountRoot != "/" {
		j.addTrap(Early125MountRoot, Medium, "build with Go 1.26 or later",
			"the mount shows the group %q, not the root: Go 1.25.4 and earlier then miss the quota (golang/go#76390)", j.inside.CPU.MountRoot)
	}
}

// findHiddenTraps finds groups that are not visible and may have a quota, unless a visible one has one.
func (j *trapFinder) findHiddenTraps() {
	c := &j.limits.CPU
	if !c.Hidden || c.Quota > 0 {
		return
	}
	switch {
	case j.Throttling != nil && j.Throttling.Verdict == cgroup.VerdictAncestor:
		j.addTrap(HiddenAncestorThrottles, High, "find the quota of the pod or task outside the container; set GOMAXPROCS to it",
			"no visible group has a quota, but this one was throttled for %s of CPU time since it was made: an invisible group above has one", j.Throttling.Ancestor.Round(time.Millisecond))
	case len(c.Levels) == 0:
		j.addTrap(HiddenAncestors, Info, "mount the cgroup hierarchy into the container",
			"no group of the process is visible, not even its own; a quota would bind and cannot be read")
	default:
		j.addTrap(HiddenAncestors, Info, "nothing, if no pod, task or slice above sets a limit",
			"groups above the container are not visible; a quota there would bind and cannot be read")
	}
}

// findRoundingTraps finds traps of a quota that differs from GOMAXPROCS.
func (j *trapFinder) findRoundingTraps() {
	c := &j.limits.CPU
	// The runtime rounds up the quota of the process's group, to at least 2; auto
	// rounds up the tightest one, to at least 1.
	quota, procs := 0.0, 0
	switch {
	case j.ProcsBy == SetByAuto:
		quota, procs = c.Quota, int(max(1, math.Ceil(c.Quota)))
	case j.ProcsBy <= SetByRuntime && (j.Aware || j.Go == "") && c.RuntimeQuota > 0:
		quota, procs = j.ownQuota, int(max(2, math.Ceil(j.ownQuota)))
	}
	if quota > 0 && float64(procs) > quota && procs <= c.Parallelism && (j.Procs == 0 || j.Procs == procs) {
		period := 100 * time.Millisecond
		for _, l := range c.Levels {
			if l.CPUs == quota && l.Period > 0 {
				period = l.Period
				break
			}
		}
		freeze := time.Duration(float64(period) * (1 - quota/float64(procs)))
		j.addTrap(FractionalQuota, Low, "use whole CPUs, 2 or more, where latency matters",
			"the quota of %s is rounded up to %d: with all of them busy every period of %s ends in a freeze of %s", quantity.CPUs(quota), procs, period, freeze.Round(100*time.Microsecond))
	}
	numCPU := cmp.Or(j.NumCPU, c.Parallelism)
	if c.Quota > 0 && numCPU > 1 && float64(numCPU) >= 2*c.Quota {
		j.addTrap(NumCPUFrozen, Info, "size pools by runtime.GOMAXPROCS(0), or by whylate's service/pool",
			"runtime.NumCPU() says %d for the life of the process, the quota is %s: pools of that size are too large", numCPU, quantity.CPUs(c.Quota))
	}
	if t := j.Throttling; t != nil && (t.ThrottledPeriods > 0 || t.Verdict == cgroup.VerdictOwn) {
		share := ""
		if t.Periods > 0 {
			share = " (" + quantity.Share(float64(t.ThrottledPeriods)/float64(t.Periods)) + " of periods)"
		}
		j.addTrap(Throttled, Info, "record a trace; whylate explain says what the freezes cost",
			"its own quota throttled the group in %d of %d periods since it was made%s, %s of CPU time; a small share of periods can cause all slow requests", t.ThrottledPeriods, t.Periods, share, t.Own.Round(time.Millisecond))
	}
}

// findMemoryTraps finds traps of the memory limit and GOMEMLIMIT.
func (j *trapFinder) findMemoryTraps() {
	m := &j.limits.Memory
	if m.Max <= 0 {
		if m.Hidden && m.Version == cgroup.V2 && len(m.Levels) > 0 {
			j.addTrap(HiddenMemory, Info, "nothing, if no pod, task or slice above sets a limit",
				"groups above the container are not visible; a memory limit there would bind and cannot be read")
		}
		return
	}
	switch {
	case j.GOMEMLIMIT == math.MaxInt64:
		j.addTrap(NoGOMEMLIMIT, Info, "set GOMEMLIMIT to about nine tenths of the limit, or use whylate's service/tune",
			"the memory limit is %s and the runtime does not know it: the heap may grow to twice the live heap, until the kernel kills the process", quantity.Binary(m.Max))
	case j.GOMEMLIMIT > m.Max:
		j.addTrap(GOMEMLIMITTooHigh, High, "set GOMEMLIMIT to nine tenths of the limit, or less",
			"GOMEMLIMIT of %s is above the memory limit of %s: the kernel kills the process before the collector speeds up", quantity.Binary(j.GOMEMLIMIT), quantity.Binary(m.Max))
	}
	if m.MaxLevel != 0 {
		file := "not visible"
		if m.MaxLevel > 0 && m.MaxLevel < len(m.Levels) {
			file = m.Levels[m.MaxLevel].File
		}
		j.addTrap(MemoryAncestor, Medium, "take the smaller one for GOMEMLIMIT",
			"the tightest memory limit, %s, is an ancestor's (%s); the limit of the process's group is %s", quantity.Binary(m.Max), file, ownMemory(m))
	}
	if m.HighLevel >= 0 && m.High > 0 && m.High < m.Max {
		j.addTrap(MemoryHigh, Low, "keep GOMEMLIMIT below memory.high",
			"memory.high is %s, below the limit: beyond it the kernel slows every allocation of the group down", quantity.Binary(m.High))
	}
}

// Automaxprocs returns the GOMAXPROCS that go.uber.org/automaxprocs 1.6 sets in a
// process that sees these limits: the quota of its group rounded down, at least
// 1. For v2 it looks below /sys/fs/cgroup for the group's path as
// /proc/self/cgroup has it, so the mount must show the root; namespaced means
// that the innermost level is the root for the process. ok is false if it leaves
// GOMAXPROCS unchanged.
func Automaxprocs(l *cgroup.Limits, namespaced bool) (n int, ok bool) {
	c := &l.CPU
	if len(c.Levels) == 0 || c.Levels[0].Depth != 0 || c.Levels[0].CPUs == 0 {
		return 0, false
	}
	point := strings.TrimPrefix(c.MountPoint, fmt.Sprintf("/proc/%d/root", l.PID))
	atRoot := c.MountRoot == "/" || namespaced && c.Levels[0].Dir == c.MountPoint
	if c.Version == cgroup.V2 && (point != "/sys/fs/cgroup" || !atRoot) {
		return 0, false
	}
	return max(1, int(min(math.Floor(c.Levels[0].CPUs), math.MaxInt32))), true
}

// ownMemory returns the memory limit of the process's own group as text, "none" without one.
func ownMemory(m *cgroup.Memory) string {
	if len(m.Levels) > 0 && m.Levels[0].Depth == 0 && m.Levels[0].Limited {
		return quantity.Binary(m.Levels[0].Max)
	}
	return "none"
}

// orNone returns a quota in CPUs as text, "none" for 0.
func orNone(c float64) string {
	if c == 0 {
		return "none"
	}
	return quantity.CPUs(c)
}
