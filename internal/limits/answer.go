package limits

import (
	"cmp"
	"math"
	"strconv"
	"strings"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/traps"
)

// Schema is the value of Answer.Schema.
const Schema = "whylate.limits/v1"

// An Answer is the complete result of `whylate limits`.
type Answer struct {
	Schema  string   `json:"schema"`
	PID     int      `json:"pid"` // 0 means a Go program started in this process's environment
	Program *Program `json:"program"`
	// Env has the set variables among those that affect limits.
	Env map[string]string `json:"env"`
	// Limits is null if they cannot be measured.
	Limits *cgroup.Limits `json:"limits"`
	// Throttling has the counters since the cgroup was created.
	Throttling *cgroup.Throttling `json:"throttling"`
	// Choices are the values that runtime and libraries would set; for each Knob at most one is
	// InForce.
	Choices  []Choice     `json:"choices"`
	Traps    []traps.Trap `json:"traps"`
	Warnings []string     `json:"warnings"`
}

// A Choice is the value that a runtime or a library picks, given these limits.
type Choice struct {
	// Knob is GOMAXPROCS or GOMEMLIMIT.
	Knob   string `json:"knob"`
	Setter string `json:"who"`
	// Value is null if nothing is set. GOMEMLIMIT is in bytes.
	Value  *int64 `json:"value"`
	Reason string `json:"why"`
	// InForce means that this value applies to the examined program.
	InForce bool `json:"in_force"`
}

// Setters of values.
const (
	setterEnv          = "environment"
	setterGo           = "Go"
	setterOldGo        = "Go before 1.25, or go.mod below 1.25"
	setterAutomaxprocs = "automaxprocs"
	setterAutomemlimit = "automemlimit"
	setterAuto         = "whylate service/auto"
	setterTune         = "whylate service/tune"
)

// AutomemlimitBytes returns the GOMEMLIMIT, in bytes, that github.com/KimMachineGun/automemlimit sets with its default ratio: nine tenths of the
// smallest visible limit (v2) or of hierarchical_memory_limit (v1); false without a limit.
func AutomemlimitBytes(l *cgroup.Limits) (n int64, ok bool) {
	m := &l.Memory
	if m.Max <= 0 {
		return 0, false
	}
	return int64(float64(m.Max) * 0.9), true
}

// AutoProcs returns the GOMAXPROCS of whylate's service/auto: the tightest visible quota rounded up, at least 1, and at most the available CPUs;
// without a quota, those. It is 0 if their number is unknown.
func AutoProcs(l *cgroup.Limits) int {
	c := &l.CPU
	if c.Quota == 0 || c.Parallelism == 0 {
		return c.Parallelism
	}
	return max(1, int(min(math.Ceil(c.Quota), float64(c.Parallelism))))
}

// Judge derives the answer from the facts. It reads nothing else.
func Judge(f *Facts) *Answer {
	a := &Answer{
		Schema: Schema, PID: f.PID, Program: f.Program, Env: f.Env, Limits: f.Limits, Throttling: f.Throttling,
		Choices: []Choice{}, Traps: []traps.Trap{}, Warnings: append([]string{}, f.Warnings...),
	}
	if f.Limits == nil {
		a.Warnings = append(a.Warnings, f.LimitsError)
		return a
	}
	a.Warnings = append(a.Warnings, f.Limits.Notes...)
	j := judge{Facts: f, answer: a, limits: f.Limits, inside: f.Inside}
	j.inside = cmp.Or(j.inside, j.limits)
	j.chooseProcs()
	j.chooseMemory()
	j.findTraps()
	return a
}

// A judge has the facts and collects the answer.
type judge struct {
	*Facts
	answer *Answer
	limits *cgroup.Limits
	// inside are the limits that the process itself sees; code in the process decides by them.
	inside *cgroup.Limits

	envProcs       int    // GOMAXPROCS of the environment, 0 if unset or invalid
	procsSetter    string // setter of the GOMAXPROCS in force, "" if unknown
	readsQuota     bool   // the runtime reads the quota
	isProgramKnown bool
	runtimeProcs   int
}

// addChoice adds a choice to the answer, with the value only if set is true. A GOMAXPROCS in force determines j.procsSetter.
func (j *judge) addChoice(c Choice, value int64, set bool) {
	if set {
		c.Value = &value
	}
	if c.InForce && c.Knob == "GOMAXPROCS" {
		j.procsSetter = c.Setter
	}
	j.answer.Choices = append(j.answer.Choices, c)
}

// godebugSetting returns the value of a GODEBUG key in the environment, else in the program's build; "" means the toolchain's default.
func (j *judge) godebugSetting(key string) string {
	if v, ok := parseGodebug(j.Env["GODEBUG"])[key]; ok {
		return v
	}
	if j.Program != nil {
		return j.Program.Godebug[key]
	}
	return ""
}

func (j *judge) isLinked(module string) bool {
	return j.Program != nil && j.Program.Modules[module] != ""
}

// chooseProcs adds the values of GOMAXPROCS that the environment, the runtime and libraries choose, and which is in force.
func (j *judge) chooseProcs() {
	cpu := &j.inside.CPU
	const knob = "GOMAXPROCS"
	j.runtimeProcs = cpu.RuntimeDefault()
	if n, err := strconv.ParseInt(j.Env[knob], 10, 32); err == nil && n > 0 {
		j.envProcs = int(n)
	}
	if j.Program != nil {
		j.isProgramKnown = true
		j.readsQuota = traps.Minor(j.Program.Go) >= 25 && j.godebugSetting("containermaxprocs") != "0"
	}
	if j.envProcs > 0 {
		j.addChoice(Choice{Knob: knob, Setter: setterEnv, InForce: true, Reason: reasonEnvProcs}, int64(j.envProcs), true)
	}

	// The runtime.
	auto, autoSets := traps.Automaxprocs(j.inside, j.Namespaced)
	automaxprocsDecides := j.isLinked(automaxprocs) && autoSets && j.envProcs == 0
	autoDecides := j.Program != nil && j.Program.Auto && j.envProcs == 0 && !automaxprocsDecides
	runtimeDecides := j.Program != nil && j.envProcs == 0 && !automaxprocsDecides && !autoDecides
	hasParallelism := cpu.Parallelism > 0
	if !j.isProgramKnown {
		j.addChoice(Choice{Knob: knob, Setter: setterGo + " 1.25 and later", Reason: reasonQuotaAware(cpu)}, int64(j.runtimeProcs), hasParallelism)
		j.addChoice(Choice{Knob: knob, Setter: setterOldGo, Reason: reasonQuotaUnaware(cpu, false)}, int64(cpu.Parallelism), hasParallelism)
	} else if j.readsQuota {
		j.addChoice(Choice{Knob: knob, Setter: j.Program.Go, InForce: runtimeDecides, Reason: reasonQuotaAware(cpu)}, int64(j.runtimeProcs), hasParallelism)
	} else {
		j.addChoice(Choice{Knob: knob, Setter: j.Program.Go, InForce: runtimeDecides, Reason: reasonQuotaUnaware(cpu, traps.Minor(j.Program.Go) >= 25)}, int64(cpu.Parallelism), hasParallelism)
	}

	// The libraries.
	j.addChoice(Choice{Knob: knob, Setter: setterAutomaxprocs, InForce: automaxprocsDecides, Reason: reasonAutomaxprocs(cpu, autoSets, j.isLinked(automaxprocs))}, int64(auto), autoSets)
	leftToRuntime := cpu.Parallelism > 0 && AutoProcs(j.inside) == j.runtimeProcs && (j.readsQuota || !j.isProgramKnown)
	j.addChoice(Choice{Knob: knob, Setter: setterAuto, InForce: autoDecides, Reason: reasonAuto(cpu, leftToRuntime)}, int64(AutoProcs(j.inside)), hasParallelism)
}

// chooseMemory adds the values of GOMEMLIMIT that the environment, the runtime and libraries choose, and which is in force.
func (j *judge) chooseMemory() {
	memory := &j.inside.Memory
	const knob = "GOMEMLIMIT"
	env, envOK := parseMemLimit(j.Env[knob])
	if j.Env[knob] != "" {
		j.addChoice(Choice{Knob: knob, Setter: setterEnv, InForce: envOK, Reason: reasonEnvMemory(envOK)}, env, envOK && env != math.MaxInt64)
	}
	linked := j.isLinked(automemlimit) && j.Env[knob] == "" && j.Env["AUTOMEMLIMIT"] != "off"
	v, ok := AutomemlimitBytes(j.inside)
	j.addChoice(Choice{Knob: knob, Setter: setterGo, InForce: j.Program != nil && j.Env[knob] == "" && !(linked && ok), Reason: reasonGoMemory}, 0, false)
	j.addChoice(Choice{Knob: knob, Setter: setterAutomemlimit, InForce: linked && ok, Reason: reasonAutomemlimit(memory, ok, j.isLinked(automemlimit))}, v, ok)
	if ok {
		j.addChoice(Choice{Knob: knob, Setter: setterTune, Reason: reasonTune(memory)}, v, true)
	}
}

// parseMemLimit parses GOMEMLIMIT, in bytes, as the runtime does: "off", or a number with B, KiB, MiB, GiB, TiB or no unit; false for other text.
// "off" is math.MaxInt64.
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

// findTraps sets the answer's traps by package traps, which service/debugz uses, too.
func (j *judge) findTraps() {
	f := traps.Facts{
		Limits: j.limits, Inside: j.inside, Namespaced: j.Namespaced, Throttling: j.Throttling,
		Aware: j.readsQuota, EnvProcs: j.envProcs, ProcsBy: trapSetters[j.procsSetter],
	}
	if j.Program != nil {
		f.Go, f.Automaxprocs = j.Program.Go, j.Program.Modules[automaxprocs]
		if j.procsSetter == j.Program.Go {
			f.ProcsBy = traps.SetByRuntime
		}
	}
	if env, ok := parseMemLimit(j.Env["GOMEMLIMIT"]); j.Env["GOMEMLIMIT"] != "" && ok && env != math.MaxInt64 {
		f.GOMEMLIMIT = env
	} else if j.Program != nil && j.Env["GOMEMLIMIT"] == "" && !j.isLinked(automemlimit) && !j.isLinked(whylate) {
		f.GOMEMLIMIT = math.MaxInt64
	}
	j.answer.Traps = append(j.answer.Traps, traps.Find(f)...)
}

// trapSetters maps the setters of the GOMAXPROCS in force, except the runtime, to those of package
// traps.
var trapSetters = map[string]traps.Setter{setterEnv: traps.SetByEnvironment, setterAutomaxprocs: traps.SetByAutomaxprocs, setterAuto: traps.SetByAuto}
