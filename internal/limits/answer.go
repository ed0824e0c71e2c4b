package limits

import (
	"cmp"
	"math"
	"strconv"
	"strings"

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

// Choice is the value that a runtime or a library picks, given these limits.
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
	j.in = cmp.Or(j.in, j.l)
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
	forceBy      string // who sets the GOMAXPROCS in force, "" if unknown
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
		j.choice(Choice{Knob: knob, Who: whoEnv, InForce: true, Why: whyEnvProcs}, int64(j.envProcs), true)
	}

	// The runtime.
	auto, autoSets := traps.Automaxprocs(j.in, j.Namespaced)
	uber := j.has(automaxprocs) && autoSets && j.envProcs == 0
	ours := j.Program != nil && j.Program.Auto && j.envProcs == 0 && !uber
	runtimeDecides := j.Program != nil && j.envProcs == 0 && !uber && !ours
	known := c.Parallelism > 0
	if !j.awareKnown {
		j.choice(Choice{Knob: knob, Who: whoGo + " 1.25 and later", Why: whyAware(c)}, int64(j.runtimeWants), known)
		j.choice(Choice{Knob: knob, Who: whoOldGo, Why: whyUnaware(c, false)}, int64(c.Parallelism), known)
	} else if j.aware {
		j.choice(Choice{Knob: knob, Who: j.Program.Go, InForce: runtimeDecides, Why: whyAware(c)}, int64(j.runtimeWants), known)
	} else {
		j.choice(Choice{Knob: knob, Who: j.Program.Go, InForce: runtimeDecides, Why: whyUnaware(c, traps.Minor(j.Program.Go) >= 25)}, int64(c.Parallelism), known)
	}

	// The libraries.
	j.choice(Choice{Knob: knob, Who: whoAutomaxprocs, InForce: uber, Why: whyAutomaxprocs(c, autoSets, j.has(automaxprocs))}, int64(auto), autoSets)
	left := c.Parallelism > 0 && Auto(j.in) == j.runtimeWants && (j.aware || !j.awareKnown)
	j.choice(Choice{Knob: knob, Who: whoAuto, InForce: ours, Why: whyAuto(c, left)}, int64(Auto(j.in)), known)
}

func (j *judge) memory() {
	m := &j.in.Memory
	const knob = "GOMEMLIMIT"
	env, envOK := parseMemLimit(j.Env[knob])
	if j.Env[knob] != "" {
		j.choice(Choice{Knob: knob, Who: whoEnv, InForce: envOK, Why: whyEnvMemory(envOK)}, env, envOK && env != math.MaxInt64)
	}
	linked := j.has(automemlimit) && j.Env[knob] == "" && j.Env["AUTOMEMLIMIT"] != "off"
	v, ok := Automemlimit(j.in)
	j.choice(Choice{Knob: knob, Who: whoGo, InForce: j.Program != nil && j.Env[knob] == "" && !(linked && ok), Why: whyGoMemory}, 0, false)
	j.choice(Choice{Knob: knob, Who: whoAutomemlimit, InForce: linked && ok, Why: whyAutomemlimit(m, ok, j.has(automemlimit))}, v, ok)
	if ok {
		j.choice(Choice{Knob: knob, Who: whoTune, Why: whyTune(m)}, v, true)
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
		Limits: j.l, Inside: j.in, Namespaced: j.Namespaced, Throttling: j.Since,
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
