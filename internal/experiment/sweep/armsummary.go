package sweep

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/whylate/whylate/internal/judge/compare"
)

// Schema is the value of Result.Schema. Fields may be added, never renamed.
const Schema = "whylate.sweep/v1"

// A Result is the result of a sweep.
type Result struct {
	Schema string `json:"schema"`
	Arms   []Arm  `json:"arms"`
	// Best has, for each criterion, the index in Arms of the best arm. A criterion is the name of an
	// arm's figure; "slo", for the arm with the least CPU per request that meets the goals; or
	// "recommended". With several loads Best is for the highest one, and ByLoad has all.
	Best   map[string]int            `json:"best"`
	ByLoad map[string]map[string]int `json:"best_by_load,omitempty"`
	// Ties has, for each criterion, the arms without evidence that they are worse than the best one.
	Ties        map[string][]int `json:"ties"`
	Recommended *Advice          `json:"recommendation"`
	Knee        *Knee            `json:"knee,omitempty"`

	Command  []string `json:"command"`
	Load     string   `json:"load"` // description of the load, without its rate
	RunsEach int      `json:"runs_each"`
	Warmup   int64    `json:"warmup_ns"`
	Measure  int64    `json:"measure_ns"`
	Seed     uint64   `json:"seed"`
	SLO      []Target `json:"slo,omitempty"`
	CPUs     []int    `json:"cpus,omitempty"` // CPUs of the service
	LoadCPUs int      `json:"load_cpus"`      // number of CPUs of the generator
	// Saturation is the highest rate of answers per second, by the service's settings, if the sweep
	// measured it.
	Saturation   map[string]float64 `json:"saturation,omitempty"`
	Measurements []Run              `json:"measurements"`
	Warnings     []Warning          `json:"warnings"`

	arms []Settings
}

// A Warning is a reason to trust a result less.
type Warning struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// An Arm is the result of one combination of settings. A Figure is null if no run has it.
type Arm struct {
	Settings map[string]string `json:"settings"`
	Runs     int               `json:"runs"`   // number of runs with figures
	Failed   int               `json:"failed"` // number of runs without figures
	Invalid  int               `json:"invalid"`
	Errors   []string          `json:"errors,omitempty"` // distinct errors of failed runs

	P50             *Figure `json:"p50_ns"`
	P90             *Figure `json:"p90_ns"`
	P99             *Figure `json:"p99_ns"`
	P999            *Figure `json:"p999_ns"`
	Max             *Figure `json:"max_ns"`
	PerS            *Figure `json:"per_s"`
	CPU             *Figure `json:"cpu_ns"`
	CPUPerRequest   *Figure `json:"cpu_ns_per_request"`
	MemoryPeak      *Figure `json:"memory_peak_bytes"`
	MemoryMean      *Figure `json:"memory_mean_bytes"`
	Threads         *Figure `json:"threads"`
	ContextSwitches *Figure `json:"context_switches"`
	Throttled       *Figure `json:"throttled_ns"`
	ThrottledShare  *Figure `json:"throttled_share"` // of the quota's periods
	GCs             *Figure `json:"gcs"`
	GCCPU           *Figure `json:"gc_cpu_ns"`
	// Changes compares the arm with the first arm of the same load, by figure.
	Changes map[string]compare.RunsChange `json:"against,omitempty"`
	Causes  []Cause                       `json:"causes"`

	settings Settings
	values   map[string][]float64
}

// newResult returns a result of the arms without measurements.
func newResult(o *Options, arms []Settings) *Result {
	return &Result{
		Schema: Schema, Command: o.Command, RunsEach: o.Runs, Warmup: int64(o.Warmup), Measure: int64(o.Measure), Seed: o.Seed, SLO: o.SLO,
		Load: describeLoad(o), Measurements: []Run{}, Warnings: []Warning{}, arms: arms,
	}
}

// describeLoad returns the method and URL of the load, without credentials and query.
func describeLoad(o *Options) string {
	t := o.Load.Targets[0]
	text := cmp.Or(t.Method, "GET")
	text += " " + strings.SplitN(t.URL, "?", 2)[0]
	if atSign := strings.LastIndex(text, "@"); atSign >= 0 { // remove user and password
		text = text[:strings.Index(text, "://")+3] + text[atSign+1:]
	}
	if n := len(o.Load.Targets); n > 1 {
		text += fmt.Sprintf(" and %d other targets", n-1)
	}
	return text
}

func (r *Result) warn(code, format string, args ...any) {
	r.Warnings = append(r.Warnings, Warning{code, fmt.Sprintf(format, args...)})
}

// runKey returns a text that is equal for runs with equal settings and numbers only.
func runKey(settings map[string]string, number int) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "%s=%q ", k, settings[k])
	}
	return b.String() + strconv.Itoa(number)
}

// summarize sets Arms and the choice from Measurements; it may be called again after further ones. Changes are relative to the first arm of the same
// load.
func (r *Result) summarize() {
	r.Arms = make([]Arm, len(r.arms))
	first := map[string]*Arm{}
	for i, settings := range r.arms {
		a := &r.Arms[i]
		*a = Arm{Settings: settings.Map(), settings: settings, values: map[string][]float64{}, Causes: []Cause{}}
		var runs []*Run
		for j := range r.Measurements {
			m := &r.Measurements[j]
			switch {
			case runKey(m.Settings, 0) != runKey(a.Settings, 0):
			case m.Error != "" || m.Load == nil:
				a.Failed++
				if !slices.Contains(a.Errors, m.Error) {
					a.Errors = append(a.Errors, m.Error)
				}
			default:
				runs = append(runs, m)
				if !m.Load.Valid {
					a.Invalid++
				}
			}
		}
		// Sort by number, because a resumed sweep has another order of runs and must give equal figures.
		slices.SortStableFunc(runs, func(x, y *Run) int { return x.Number - y.Number })
		a.Runs = len(runs)
		for _, f := range figures {
			var values []float64
			for _, run := range runs {
				if v := f.value(run); v != nil {
					values = append(values, *v)
				}
			}
			if len(values) == 0 {
				continue
			}
			a.values[f.name] = values
			*f.field(a) = roundFigure(f.name, compare.RunsInterval(values, f.scale))
		}
		if c := meanCauses(runs); len(c) > 0 {
			a.Causes = c
		}
		load := loadOf(settings)
		if base := first[load]; base != nil {
			a.Changes = map[string]compare.RunsChange{}
			for _, f := range figures {
				if len(base.values[f.name]) > 0 && len(a.values[f.name]) > 0 {
					a.Changes[f.name] = compare.CompareRuns(base.values[f.name], a.values[f.name], f.scale)
				}
			}
		} else {
			first[load] = a
		}
	}
	r.choose()
}

// loadOf returns the load among the settings.
func loadOf(s Settings) string {
	return s.Get(Rate) + s.Get(LoadShare)
}
