package limits

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/service/cgroup"
)

// Schema names the form of the JSON.
const Schema = "whylate.limits/v1"

// Answer is the whole page as data.
type Answer struct {
	Schema  string   `json:"schema"`
	PID     int      `json:"pid"` // 0: a Go program started from here
	Program *Program `json:"program"`
	// Env holds the variables that matter, of those that are set.
	Env map[string]string `json:"env"`
	// Limits is null where they cannot be measured.
	Limits *cgroup.Limits `json:"limits"`
	// Throttling is what the counters say since the group was made.
	Throttling *cgroup.Throttling `json:"throttling"`
	// Choices say who would set what; at most one of each Knob is InForce.
	Choices  []Choice `json:"choices"`
	Traps    []Trap   `json:"traps"`
	Warnings []string `json:"warnings"`
}

// Choice is the value that somebody picks, given these limits.
type Choice struct {
	// Knob is GOMAXPROCS or GOMEMLIMIT.
	Knob string `json:"knob"`
	Who  string `json:"who"`
	// Value is null where nothing would be set. GOMEMLIMIT is in bytes.
	Value *int64 `json:"value"`
	Why   string `json:"why"`
	// InForce says that this one decides for the program that was looked at.
	InForce bool `json:"in_force"`
}

// Trap is a difference between what is and what somebody will assume.
type Trap struct {
	// Code is stable; docs/limits.md has a line for each.
	Code     string `json:"code"`
	Severity string `json:"severity"` // high, medium, low, info
	Text     string `json:"text"`
	Fix      string `json:"fix"`
}

// Who picks values.
const (
	whoEnv          = "environment"
	whoGo           = "Go"
	whoOldGo        = "Go before 1.25, or go.mod below 1.25"
	whoAutomaxprocs = "automaxprocs"
	whoAutomemlimit = "automemlimit"
	whoAuto         = "whylate service/auto"
	whoTune         = "whylate service/tune"
)

// Automaxprocs is the GOMAXPROCS that go.uber.org/automaxprocs 1.6 sets in a
// process that sees these limits: the own group's quota rounded down, at
// least 1. For v2 it looks below /sys/fs/cgroup for the group's path as
// /proc/self/cgroup has it, so the mount must show the root; namespaced says
// that the innermost level is the root to the process. ok is false where it
// leaves GOMAXPROCS alone.
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

// Automemlimit is the GOMEMLIMIT that github.com/KimMachineGun/automemlimit
// sets with its default ratio: nine tenths of the smallest limit that is
// visible (v2) or of hierarchical_memory_limit (v1).
func Automemlimit(l *cgroup.Limits) (n int64, ok bool) {
	m := &l.Memory
	if m.Max <= 0 {
		return 0, false
	}
	return int64(float64(m.Max) * 0.9), true
}

// Auto is the GOMAXPROCS that whylate's service/auto wants: the tightest
// visible quota rounded up, at least 1, and at most the CPUs that may be used.
func Auto(l *cgroup.Limits) int {
	c := &l.CPU
	if c.Quota == 0 || c.Parallelism == 0 {
		return c.Parallelism
	}
	return max(1, int(min(math.Ceil(c.Quota), float64(c.Parallelism))))
}

// Judge makes the answer from the facts. It reads nothing else.
func Judge(f *Facts) *Answer {
	a := &Answer{
		Schema: Schema, PID: f.PID, Program: f.Program, Env: f.Env, Limits: f.Limits, Throttling: f.Since,
		Choices: []Choice{}, Traps: []Trap{}, Warnings: append([]string{}, f.Warnings...),
	}
	if f.Limits == nil {
		a.Warnings = append(a.Warnings, f.Why)
		return a
	}
	a.Warnings = append(a.Warnings, f.Limits.Notes...)
	j := judge{Facts: f, a: a, l: f.Limits, in: f.Inside}
	if j.in == nil {
		j.in = j.l
	}
	j.procs()
	j.memory()
	j.traps()
	return a
}

type judge struct {
	*Facts
	a *Answer
	l *cgroup.Limits
	// in is what the process itself sees: what runs inside it decides by that.
	in *cgroup.Limits

	envProcs     int    // GOMAXPROCS of the environment, 0 if unset or not valid
	forceBy      string // who sets the GOMAXPROCS in force, "" if that cannot be told
	aware        bool   // the runtime looks at the quota
	awareKnown   bool
	runtimeWants int
}

func (j *judge) choice(c Choice, value int64, set bool) {
	if set {
		c.Value = &value
	}
	if c.InForce && c.Knob == "GOMAXPROCS" {
		j.forceBy = c.Who
	}
	j.a.Choices = append(j.a.Choices, c)
}

// goMinor is N of "go1.N..."; 0 if that is not its form.
func goMinor(version string) int {
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

// godebugSetting is the value in force of a GODEBUG key; "" is the
// toolchain's default.
func (j *judge) godebugSetting(key string) string {
	if v, ok := godebug(j.Env["GODEBUG"])[key]; ok {
		return v
	}
	if j.Program != nil {
		return j.Program.Godebug[key]
	}
	return ""
}

func (j *judge) has(module string) bool {
	return j.Program != nil && j.Program.Modules[module] != ""
}

func (j *judge) procs() {
	c := &j.in.CPU
	const knob = "GOMAXPROCS"
	j.runtimeWants = c.RuntimeDefault()
	if n, err := strconv.ParseInt(j.Env[knob], 10, 32); err == nil && n > 0 {
		j.envProcs = int(n)
	}
	if j.Program != nil {
		j.awareKnown = true
		j.aware = goMinor(j.Program.Go) >= 25 && j.godebugSetting("containermaxprocs") != "0"
	}
	if j.envProcs > 0 {
		j.choice(Choice{Knob: knob, Who: whoEnv, InForce: true, Why: "GOMAXPROCS is set in the environment: the runtime and automaxprocs leave it alone, and it does not follow a limit that changes"}, int64(j.envProcs), true)
	}

	// The runtime.
	awareWhy := fmt.Sprintf("the own group has no quota that the runtime sees, so all %d CPUs that may be used; ancestors are not looked at", c.Parallelism)
	if c.RuntimeQuota > 0 {
		awareWhy = fmt.Sprintf("the own group's quota of %s rounded up, at least 2, at most the %d CPUs that may be used; ancestors are not looked at", cpus(c.RuntimeQuota), c.Parallelism)
	}
	oldWhy := fmt.Sprintf("all %d CPUs that may be used: it does not look at quotas", c.Parallelism)
	auto, autoSets := Automaxprocs(j.in, j.Namespaced)
	uber := j.has(automaxprocs) && autoSets && j.envProcs == 0
	ours := j.Program != nil && j.Program.Auto && j.envProcs == 0 && !uber
	runtimeDecides := j.Program != nil && j.envProcs == 0 && !uber && !ours
	known := c.Parallelism > 0
	if !j.awareKnown {
		j.choice(Choice{Knob: knob, Who: whoGo + " 1.25 and later", Why: awareWhy}, int64(j.runtimeWants), known)
		j.choice(Choice{Knob: knob, Who: whoOldGo, Why: oldWhy}, int64(c.Parallelism), known)
	} else if j.aware {
		j.choice(Choice{Knob: knob, Who: j.Program.Go, InForce: runtimeDecides, Why: awareWhy}, int64(j.runtimeWants), known)
	} else {
		why := oldWhy
		if goMinor(j.Program.Go) >= 25 {
			why += " (containermaxprocs=0)"
		}
		j.choice(Choice{Knob: knob, Who: j.Program.Go, InForce: runtimeDecides, Why: why}, int64(c.Parallelism), known)
	}

	// The libraries.
	why := "the own group has no quota that it sees: it leaves GOMAXPROCS alone"
	if autoSets {
		why = fmt.Sprintf("the own group's quota of %s rounded down, at least 1; ancestors are not looked at", cpus(c.Levels[0].CPUs))
	}
	if j.has(automaxprocs) {
		why += "; it is linked into the program"
	}
	j.choice(Choice{Knob: knob, Who: whoAutomaxprocs, InForce: uber, Why: why}, int64(auto), autoSets)

	why = fmt.Sprintf("no visible group has a quota: all %d CPUs that may be used", c.Parallelism)
	if c.Quota > 0 {
		why = fmt.Sprintf("the tightest visible quota, %s%s, rounded up, at least 1, at most the %d CPUs that may be used", cpus(c.Quota), j.whose(), c.Parallelism)
	}
	if c.Parallelism > 0 && Auto(j.in) == j.runtimeWants && (j.aware || !j.awareKnown) {
		why += "; the runtime's own choice, so it is left to the runtime"
	}
	j.choice(Choice{Knob: knob, Who: whoAuto, InForce: ours, Why: why}, int64(Auto(j.in)), known)
}

// whose says which level the tightest quota is from.
func (j *judge) whose() string {
	c := &j.in.CPU
	if c.QuotaLevel < 0 {
		return ""
	}
	if d := c.Levels[c.QuotaLevel].Depth; d > 0 {
		return fmt.Sprintf(" of an ancestor (%d up)", d)
	}
	return " of the own group"
}

func (j *judge) memory() {
	m := &j.in.Memory
	const knob = "GOMEMLIMIT"
	env, envOK := parseMemLimit(j.Env[knob])
	if j.Env[knob] != "" {
		why := "GOMEMLIMIT is set in the environment"
		if !envOK {
			why += ", in no form that the runtime takes: it ends at start-up"
		}
		j.choice(Choice{Knob: knob, Who: whoEnv, InForce: envOK, Why: why}, env, envOK && env != math.MaxInt64)
	}
	linked := j.has(automemlimit) && j.Env[knob] == "" && j.Env["AUTOMEMLIMIT"] != "off"
	v, ok := Automemlimit(j.in)
	j.choice(Choice{Knob: knob, Who: whoGo, InForce: j.Program != nil && j.Env[knob] == "" && !(linked && ok), Why: "the runtime does not look at memory limits of groups"}, 0, false)
	why := "no memory limit can be seen"
	if ok {
		why = fmt.Sprintf("nine tenths of %s", size(m.Max))
	}
	linkedWhy := why
	if j.has(automemlimit) {
		linkedWhy += "; it is linked into the program"
	}
	j.choice(Choice{Knob: knob, Who: whoAutomemlimit, InForce: linked && ok, Why: linkedWhy}, v, ok)
	if ok {
		j.choice(Choice{Knob: knob, Who: whoTune, Why: why + ", less the memory that is not Go's; observed unless told to apply"}, v, true)
	}
}

// parseMemLimit reads GOMEMLIMIT as the runtime does: "off", or a number with
// B, KiB, MiB, GiB, TiB or nothing.
func parseMemLimit(s string) (int64, bool) {
	if s == "off" {
		return math.MaxInt64, true
	}
	num := strings.TrimRight(s, "BKMGTi")
	shift, ok := map[string]uint{"": 0, "B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}[s[len(num):]]
	n, err := strconv.ParseInt(num, 10, 64)
	if !ok || err != nil || n < 0 || n > math.MaxInt64>>shift {
		return 0, false
	}
	return n << shift, true
}

func (j *judge) trap(code, severity, fix, format string, args ...any) {
	j.a.Traps = append(j.a.Traps, Trap{Code: code, Severity: severity, Text: fmt.Sprintf(format, args...), Fix: fix})
}

// traps finds them; the worst come first.
func (j *judge) traps() {
	c, m := &j.l.CPU, &j.l.Memory
	quota := c.Quota
	own := 0.0
	if len(c.Levels) > 0 && c.Levels[0].Depth == 0 {
		own = c.Levels[0].CPUs
	}

	if j.envProcs > 0 {
		sev, what := "low", "it will not follow a limit that changes"
		if quota > 0 && float64(j.envProcs) >= math.Ceil(quota)+1 {
			sev, what = "high", fmt.Sprintf("the quota is %s", cpus(quota))
		}
		j.trap("env-gomaxprocs", sev, "unset GOMAXPROCS, or set it from the limit (in Kubernetes a resourceFieldRef to limits.cpu gives the node's CPUs where no limit is set)",
			"GOMAXPROCS=%d is in the environment: %s", j.envProcs, what)
	}
	if j.awareKnown && !j.aware && j.envProcs == 0 && j.forceBy != whoAutomaxprocs && j.forceBy != whoAuto {
		sev := "low"
		if c.RuntimeQuota > 0 && j.runtimeWants < c.Parallelism {
			sev = "high"
		}
		if goMinor(j.Program.Go) >= 25 {
			j.trap("old-go-mod", sev, "raise the go line of go.mod to 1.25 or later, or set //go:debug containermaxprocs=1 and updatemaxprocs=1",
				"built with %s, but with containermaxprocs=0, as a go.mod below go 1.25 (or GODEBUG) sets it: all %d CPUs are used, whatever the quota", j.Program.Go, c.Parallelism)
		} else {
			j.trap("old-go", sev, "build with Go 1.25 or later, or import whylate's service/auto",
				"built with %s, which does not look at quotas: all %d CPUs are used", j.Program.Go, c.Parallelism)
		}
	}
	if n, ok := Automaxprocs(j.in, j.Namespaced); j.has(automaxprocs) && j.aware {
		if ok && j.envProcs > 0 {
			j.trap("leftover-automaxprocs", "low", "remove the import of "+automaxprocs,
				"automaxprocs %s is still linked: it does nothing while GOMAXPROCS is in the environment", j.Program.Modules[automaxprocs])
		} else if ok {
			sev := "medium"
			if n == j.runtimeWants {
				sev = "low"
			}
			j.trap("leftover-automaxprocs", sev, "remove the import of "+automaxprocs,
				"automaxprocs %s is still linked: it sets GOMAXPROCS to %d where %s by itself would take %d, and turns the runtime's following of the limit off", j.Program.Modules[automaxprocs], n, j.Program.Go, j.runtimeWants)
		} else {
			j.trap("leftover-automaxprocs", "low", "remove the import of "+automaxprocs,
				"automaxprocs %s is still linked: it does nothing now, but as soon as the own group has a quota it rounds it down and turns the runtime's following off", j.Program.Modules[automaxprocs])
		}
	}
	if quota > 0 && c.QuotaLevel > 0 || quota > 0 && own == 0 {
		lv := c.Levels[c.QuotaLevel]
		fix := "import whylate's service/auto, which takes the tightest visible quota; or set GOMAXPROCS"
		if j.in.CPU.Quota != quota {
			fix = "set GOMAXPROCS: the process itself cannot see that group, and no library inside it can"
		}
		j.trap("ancestor-tighter", "high", fix,
			"the tightest quota, %s, is an ancestor's (%s); the Go runtime and automaxprocs look at the own group only, which has %s", cpus(quota), lv.File, orNone(own))
	}
	if own > 0 && c.RuntimeQuota != own && j.in.CPU.RuntimeQuota != own {
		j.trap("runtime-misses-quota", "high", "mount the hierarchy once, or set GOMAXPROCS",
			"the own group's quota is %s, but the runtime reads the first fitting line of mountinfo, which leads elsewhere: it sees %s", cpus(own), orNone(c.RuntimeQuota))
	}
	if j.Program != nil && goMinor(j.Program.Go) == 25 && own > 0 && !j.Namespaced && j.in.CPU.MountRoot != "/" {
		j.trap("early-1.25-mount-root", "medium", "build with Go 1.26 or later",
			"the mount shows the group %q, not the root: Go 1.25.4 and earlier miss the quota then (golang/go#76390)", j.in.CPU.MountRoot)
	}
	if c.Hidden && quota == 0 {
		switch {
		case j.Since != nil && j.Since.Verdict == cgroup.VerdictAncestor:
			j.trap("hidden-ancestor-throttles", "high", "find the quota of the pod or task outside the container; set GOMAXPROCS to it",
				"no visible group has a quota, yet this one was held back for %s of CPU time since it was made: a group above, out of sight, has one", j.Since.Ancestor.Round(time.Millisecond))
		case len(c.Levels) == 0:
			j.trap("hidden-ancestors", "info", "mount the cgroup hierarchy into the container",
				"no group of the process can be seen, its own neither; a quota would bind and cannot be read")
		default:
			j.trap("hidden-ancestors", "info", "nothing, if no pod, task or slice above sets a limit",
				"groups above the container are out of sight; a quota there would bind and cannot be read")
		}
	}
	roundsUp := j.forceBy != whoEnv && j.forceBy != whoAutomaxprocs
	if c.RuntimeQuota > 0 && own > 0 && roundsUp {
		r := math.Max(2, math.Ceil(own))
		if r > own && r <= float64(c.Parallelism) && (j.aware || !j.awareKnown) {
			period := c.Levels[0].Period
			freeze := time.Duration(float64(period) * (1 - own/r))
			j.trap("fractional-quota", "low", "use whole CPUs, 2 or more, where latency matters",
				"the quota of %s is rounded up to %d: with all of them busy every period of %s ends in a freeze of %s", cpus(own), int(r), period, freeze.Round(100*time.Microsecond))
		}
	}
	if quota > 0 && c.Parallelism > 1 && float64(c.Parallelism) >= 2*quota {
		j.trap("numcpu-frozen", "info", "size pools by runtime.GOMAXPROCS(0), or by whylate's service/pool",
			"runtime.NumCPU() says %d for the life of the process, the quota is %s: pools sized by it are too large", c.Parallelism, cpus(quota))
	}
	if t := j.Since; t != nil && (t.ThrottledPeriods > 0 || t.Verdict == cgroup.VerdictOwn) {
		share := ""
		if t.Periods > 0 {
			share = fmt.Sprintf(" (%.3g%% of periods)", 100*float64(t.ThrottledPeriods)/float64(t.Periods))
		}
		j.trap("throttled", "info", "record a trace and let whylate explain say what the freezes cost",
			"the own quota held the group back in %d of %d periods since it was made%s, %s of CPU time; a small share of periods can own all slow requests", t.ThrottledPeriods, t.Periods, share, t.Own.Round(time.Millisecond))
	}

	if m.Max > 0 {
		if env, ok := parseMemLimit(j.Env["GOMEMLIMIT"]); j.Env["GOMEMLIMIT"] != "" && ok && env != math.MaxInt64 && env > m.Max {
			j.trap("gomemlimit-too-high", "high", "set GOMEMLIMIT to nine tenths of the limit, or less",
				"GOMEMLIMIT=%s is above the memory limit of %s: the kernel kills before the collector hurries", j.Env["GOMEMLIMIT"], size(m.Max))
		}
		if j.Program != nil && j.Env["GOMEMLIMIT"] == "" && !j.has(automemlimit) && !j.has(whylate) {
			j.trap("no-gomemlimit", "info", "set GOMEMLIMIT to about nine tenths of the limit, or use whylate's service/tune",
				"the memory limit is %s and the runtime does not know: the heap may grow to twice what lives, up to being killed", size(m.Max))
		}
		if m.MaxLevel != 0 {
			where := "out of sight"
			if m.MaxLevel > 0 {
				where = m.Levels[m.MaxLevel].File
			}
			j.trap("memory-ancestor", "medium", "take the smaller one for GOMEMLIMIT",
				"the tightest memory limit, %s, is an ancestor's (%s); the own group's limit is %s", size(m.Max), where, ownMemory(m))
		}
		if m.HighLevel >= 0 && m.High < m.Max {
			j.trap("memory-high", "low", "keep GOMEMLIMIT below memory.high",
				"memory.high is %s, below the limit: beyond it the kernel slows every allocation of the group down", size(m.High))
		}
	} else if m.Hidden && m.Version == cgroup.V2 && len(m.Levels) > 0 {
		j.trap("hidden-memory", "info", "nothing, if no pod, task or slice above sets a limit",
			"groups above the container are out of sight; a memory limit there would bind and cannot be read")
	}
	j.sortTraps()
}

func (j *judge) sortTraps() {
	rank := map[string]int{"high": 0, "medium": 1, "low": 2, "info": 3}
	ts := j.a.Traps
	for i := 1; i < len(ts); i++ { // few, and equal ones keep their order
		for k := i; k > 0 && rank[ts[k].Severity] < rank[ts[k-1].Severity]; k-- {
			ts[k], ts[k-1] = ts[k-1], ts[k]
		}
	}
}

func ownMemory(m *cgroup.Memory) string {
	if len(m.Levels) > 0 && m.Levels[0].Depth == 0 && m.Levels[0].Limited {
		return size(m.Levels[0].Max)
	}
	return "none"
}

func orNone(c float64) string {
	if c == 0 {
		return "none"
	}
	return cpus(c)
}

func cpus(c float64) string {
	s := strconv.FormatFloat(c, 'g', 4, 64)
	if c == 1 {
		return s + " CPU"
	}
	return s + " CPUs"
}

func size(n int64) string {
	v, unit := float64(n), "B"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB", "PiB"} {
		if v < 1024 {
			break
		}
		v, unit = v/1024, u
	}
	return strconv.FormatFloat(v, 'g', 4, 64) + " " + unit
}
