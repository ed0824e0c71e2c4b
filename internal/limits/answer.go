package limits

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/traps"
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
	Choices  []Choice     `json:"choices"`
	Traps    []traps.Trap `json:"traps"`
	Warnings []string     `json:"warnings"`
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
		Choices: []Choice{}, Traps: []traps.Trap{}, Warnings: append([]string{}, f.Warnings...),
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
		j.aware = traps.Minor(j.Program.Go) >= 25 && j.godebugSetting("containermaxprocs") != "0"
	}
	if j.envProcs > 0 {
		j.choice(Choice{Knob: knob, Who: whoEnv, InForce: true, Why: "GOMAXPROCS is set in the environment: the runtime and automaxprocs leave it alone, and it does not follow a limit that changes"}, int64(j.envProcs), true)
	}

	// The runtime.
	awareWhy := fmt.Sprintf("the own group has no quota that the runtime sees, so all %d CPUs that may be used; ancestors are not looked at", c.Parallelism)
	if c.RuntimeQuota > 0 {
		awareWhy = fmt.Sprintf("the own group's quota of %s rounded up, at least 2, at most the %d CPUs that may be used; ancestors are not looked at", words.CPUs(c.RuntimeQuota), c.Parallelism)
	}
	oldWhy := fmt.Sprintf("all %d CPUs that may be used: it does not look at quotas", c.Parallelism)
	auto, autoSets := traps.Automaxprocs(j.in, j.Namespaced)
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
		if traps.Minor(j.Program.Go) >= 25 {
			why += " (containermaxprocs=0)"
		}
		j.choice(Choice{Knob: knob, Who: j.Program.Go, InForce: runtimeDecides, Why: why}, int64(c.Parallelism), known)
	}

	// The libraries.
	why := "the own group has no quota that it sees: it leaves GOMAXPROCS alone"
	if autoSets {
		why = fmt.Sprintf("the own group's quota of %s rounded down, at least 1; ancestors are not looked at", words.CPUs(c.Levels[0].CPUs))
	}
	if j.has(automaxprocs) {
		why += "; it is linked into the program"
	}
	j.choice(Choice{Knob: knob, Who: whoAutomaxprocs, InForce: uber, Why: why}, int64(auto), autoSets)

	why = fmt.Sprintf("no visible group has a quota: all %d CPUs that may be used", c.Parallelism)
	if c.Quota > 0 {
		why = fmt.Sprintf("the tightest visible quota, %s%s, rounded up, at least 1, at most the %d CPUs that may be used", words.CPUs(c.Quota), j.whose(), c.Parallelism)
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
		why = fmt.Sprintf("nine tenths of %s", words.Binary(m.Max))
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

// traps asks the one judge of traps, which service/debugz asks as well.
func (j *judge) traps() {
	f := traps.Facts{
		Limits: j.l, Inside: j.in, Namespaced: j.Namespaced, Since: j.Since,
		Aware: j.aware, EnvProcs: j.envProcs, ProcsBy: setters[j.forceBy],
	}
	if j.Program != nil {
		f.Go, f.Automaxprocs = j.Program.Go, j.Program.Modules[automaxprocs]
		if j.forceBy == j.Program.Go {
			f.ProcsBy = traps.SetByRuntime
		}
	}
	if env, ok := parseMemLimit(j.Env["GOMEMLIMIT"]); j.Env["GOMEMLIMIT"] != "" && ok && env != math.MaxInt64 {
		f.GOMEMLIMIT = env
	} else if j.Program != nil && j.Env["GOMEMLIMIT"] == "" && !j.has(automemlimit) && !j.has(whylate) {
		f.GOMEMLIMIT = math.MaxInt64
	}
	j.a.Traps = append(j.a.Traps, traps.Find(f)...)
}

// setters are who may have set the GOMAXPROCS in force, besides the runtime.
var setters = map[string]traps.Setter{whoEnv: traps.SetByEnvironment, whoAutomaxprocs: traps.SetByAutomaxprocs, whoAuto: traps.SetByAuto}
