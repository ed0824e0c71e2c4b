package sweep

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/whylate/whylate/internal/judge/compare"
	"github.com/whylate/whylate/internal/output/words"
)

// criteria are the figures by which arms are compared.
var criteria = []struct {
	name, title    string
	higherIsBetter bool // more is better
}{
	{"p50_ns", "best p50", false},
	{"p99_ns", "best p99", false},
	{"p999_ns", "best p99.9", false},
	{"per_s", "best throughput", true},
	{"cpu_ns_per_request", "least CPU per request", false},
	{"memory_peak_bytes", "least memory", false},
}

// An Advice is the recommended arm with its advantages and costs.
type Advice struct {
	Arm    int    `json:"arm"`
	Reason string `json:"why"`
	Better string `json:"better,omitempty"` // figures better than in the first arm
	Price  string `json:"price,omitempty"`  // figures worse than in the first arm, or than in the best one
}

// choose sets the best arms for each load and for the highest one, the recommendation and the knee. An arm with failed runs, or without valid ones,
// is chosen only if there is no other.
func (r *Result) choose() {
	r.Best, r.Ties, r.ByLoad, r.Recommended = map[string]int{}, map[string][]int{}, map[string]map[string]int{}, nil
	loads := r.loads()
	highestLoad, highestRate := "", -1.0
	for i := range r.Arms {
		if p := r.Arms[i].PerS; p != nil && p.Est > highestRate {
			highestLoad, highestRate = loadOf(r.Arms[i].settings), p.Est
		}
	}
	// Prefer the highest requested rate, which the service may not have reached.
	requestedRate := -1.0
	for _, l := range loads {
		if v, err := strconv.ParseFloat(strings.TrimSuffix(l, "%"), 64); err == nil && v > requestedRate {
			requestedRate, highestLoad = v, l
		}
	}
	for _, l := range loads {
		best, ties := r.bestArms(l)
		r.ByLoad[l] = best
		if l == highestLoad {
			r.Best, r.Ties = best, ties
		}
	}
	if len(loads) < 2 {
		r.ByLoad = nil
	}
	r.recommend()
	r.Knee = r.findKnee()
}

// loads returns the distinct loads in the order of the arms.
func (r *Result) loads() (loads []string) {
	for i := range r.Arms {
		if l := loadOf(r.Arms[i].settings); !slices.Contains(loads, l) {
			loads = append(loads, l)
		}
	}
	return loads
}

// bestArms returns, by criterion (and "slo" for the goals), the index of the best arm at a load, and, by criterion, those of the other arms without
// evidence of a difference from it.
func (r *Result) bestArms(load string) (map[string]int, map[string][]int) {
	best, ties := map[string]int{}, map[string][]int{}
	var usable []int
	for pass := 0; pass < 2 && len(usable) == 0; pass++ {
		for i := range r.Arms {
			if a := &r.Arms[i]; loadOf(a.settings) == load && a.Runs > 0 && (pass > 0 || a.Failed == 0 && a.Invalid < a.Runs) {
				usable = append(usable, i)
			}
		}
	}
	for _, c := range criteria {
		bestArm := -1
		for _, i := range usable {
			v, w := r.estimate(i, c.name), 0.0
			if bestArm >= 0 {
				w = r.estimate(bestArm, c.name)
			}
			if !math.IsNaN(v) && (bestArm < 0 || c.higherIsBetter && v > w || !c.higherIsBetter && v < w) {
				bestArm = i
			}
		}
		if bestArm < 0 {
			continue
		}
		best[c.name] = bestArm
		ties[c.name] = []int{}
		for _, i := range usable {
			if i != bestArm && !r.compareArms(bestArm, i, c.name).Evidence {
				ties[c.name] = append(ties[c.name], i)
			}
		}
	}
	if len(r.SLO) > 0 {
		bestArm := -1
		for _, i := range usable {
			if r.meetsGoals(i) && (bestArm < 0 || r.estimate(i, "cpu_ns_per_request") < r.estimate(bestArm, "cpu_ns_per_request")) {
				bestArm = i
			}
		}
		if bestArm >= 0 {
			best["slo"] = bestArm
		}
	}
	return best, ties
}

// meetsGoals reports whether an arm meets all goals, by the upper bounds of its intervals if it has
// intervals.
func (r *Result) meetsGoals(arm int) bool {
	for _, t := range r.SLO {
		f := r.figure(arm, percentileFigures[t.Percentile])
		if f == nil {
			return false
		}
		v := f.Est
		if f.High != nil {
			v = *f.High
		}
		if v > float64(t.Limit) {
			return false
		}
	}
	return true
}

func (r *Result) figure(arm int, name string) *Figure {
	return r.Arms[arm].figure(name)
}

// estimate returns an arm's figure, NaN if it has none.
func (r *Result) estimate(arm int, name string) float64 {
	if f := r.figure(arm, name); f != nil {
		return f.Est
	}
	return math.NaN()
}

// compareArms returns the change of a figure from arm a to arm b.
func (r *Result) compareArms(a, b int, name string) compare.RunsChange {
	return compare.CompareRuns(r.Arms[a].values[name], r.Arms[b].values[name], figureNamed(name).scale)
}

// recommend sets the recommended arm at the highest load: the arm with the least CPU per request that
// meets the goals; else, of the arms without evidence of a worse p99 than the best, the one with the
// least CPU per request.
func (r *Result) recommend() {
	arm, reason := -1, ""
	if i, ok := r.Best["slo"]; ok {
		arm, reason = i, "it meets "+sloText(r.SLO)+" with the least CPU per request"
	} else if i, ok := r.Best["p99_ns"]; ok {
		arm, reason = r.lowestP99(i)
		if len(r.SLO) > 0 {
			reason = "no arm certainly meets " + sloText(r.SLO) + ", and " + reason
		}
	}
	if arm < 0 {
		return
	}
	r.Best["recommended"] = arm
	r.Recommended = &Advice{Arm: arm, Reason: reason}
	base := -1
	for i := range r.Arms {
		if loadOf(r.Arms[i].settings) == loadOf(r.Arms[arm].settings) && r.Arms[i].Runs > 0 {
			base = i
			break
		}
	}
	var better, price []string
	for _, c := range criteria {
		if base >= 0 && base != arm {
			if d := r.compareArms(base, arm, c.name); d.Evidence && d.Relative {
				line := figureTitle(c.name) + " " + words.Change(d.Est)
				if d.Est > 0 == c.higherIsBetter {
					better = append(better, line)
				} else {
					price = append(price, line)
				}
			}
		}
		if best, ok := r.Best[c.name]; ok && best != arm && best != base {
			if d := r.compareArms(best, arm, c.name); d.Evidence && d.Relative {
				price = append(price, fmt.Sprintf("%s %s against %s", figureTitle(c.name), words.Change(d.Est), r.Arms[best].settings.withoutLoad()))
			}
		}
	}
	r.Recommended.Better, r.Recommended.Price = strings.Join(better, ", "), strings.Join(price, ", ")
}

// lowestP99 returns the index of the arm to recommend for its p99, with the reason. best is the arm with the lowest p99. The result is the first arm
// without evidence of a higher p99, or an arm as good that needs less CPU.
func (r *Result) lowestP99(best int) (int, string) {
	equal := append([]int{best}, r.Ties["p99_ns"]...)
	slices.Sort(equal)
	arm, reason := best, "its p99 is the lowest, and the evidence says that no other arm's is as low"
	if len(equal) > 1 {
		arm, reason = equal[0], fmt.Sprintf("there is no evidence that the p99 of %d arms, including this one, differs, or that another of them needs less CPU per request", len(equal))
	}
	for _, i := range equal {
		if c := r.compareArms(arm, i, "cpu_ns_per_request"); c.Evidence && c.Est < 0 {
			arm, reason = i, "no arm has a demonstrably lower p99, and it needs less CPU per request than others that are as good"
		}
	}
	return arm, reason
}

// sloText returns goals in the form of --slo.
func sloText(slo []Target) string {
	var parts []string
	for _, t := range slo {
		parts = append(parts, t.String())
	}
	return strings.Join(parts, ",")
}

// figureTitles has the titles of figures whose name without its unit is not readable.
var figureTitles = map[string]string{
	"p999_ns": "p99.9", "per_s": "throughput", "cpu_ns_per_request": "CPU per request", "memory_peak_bytes": "memory", "throttled_ns": "throttled", "gc_cpu_ns": "collector",
}

func figureTitle(name string) string {
	return cmp.Or(figureTitles[name], strings.TrimSuffix(name, "_ns"))
}
