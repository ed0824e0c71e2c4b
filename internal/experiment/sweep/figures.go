package sweep

import (
	"math"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/judge/compare"
)

// A Figure is a figure of an arm with a 95 % interval over its runs; low and high are null with one
// run.
type Figure = compare.Interval

// A figure names one figure: its variable in an arm, and its value in a run, nil if the run lacks it.
// A figure with the scale compare.Ratio is never 0.
type figure struct {
	name  string
	scale compare.Scale
	field func(*Arm) **Figure
	value func(*Run) *float64
}

func figureValue[N int64 | float64](n N) *float64 { return new(float64(n)) }

// optionalValue returns a number as the value of a figure; nil for nil.
func optionalValue[N int64 | float64](n *N) *float64 {
	if n == nil {
		return nil
	}
	return figureValue(*n)
}

var figures = []figure{
	{"p50_ns", compare.Ratio, func(a *Arm) **Figure { return &a.P50 }, func(r *Run) *float64 { return figureValue(r.Load.Intended.P50) }},
	{"p90_ns", compare.Ratio, func(a *Arm) **Figure { return &a.P90 }, func(r *Run) *float64 { return figureValue(r.Load.Intended.P90) }},
	{"p99_ns", compare.Ratio, func(a *Arm) **Figure { return &a.P99 }, func(r *Run) *float64 { return figureValue(r.Load.Intended.P99) }},
	{"p999_ns", compare.Ratio, func(a *Arm) **Figure { return &a.P999 }, func(r *Run) *float64 { return figureValue(r.Load.Intended.P999) }},
	{"max_ns", compare.Ratio, func(a *Arm) **Figure { return &a.Max }, func(r *Run) *float64 { return figureValue(r.Load.Intended.Max) }},
	{"per_s", compare.Ratio, func(a *Arm) **Figure { return &a.PerS }, func(r *Run) *float64 { return figureValue(r.Load.AchievedPerS) }},
	{"cpu_ns", compare.Ratio, func(a *Arm) **Figure { return &a.CPU }, func(r *Run) *float64 { return figureValue(r.CPUNS) }},
	{"cpu_ns_per_request", compare.Ratio, func(a *Arm) **Figure { return &a.CPUPerRequest }, (*Run).cpuPerRequest},
	{"memory_peak_bytes", compare.Ratio, func(a *Arm) **Figure { return &a.MemoryPeak }, func(r *Run) *float64 { return figureValue(r.MemoryPeak) }},
	{"memory_mean_bytes", compare.Ratio, func(a *Arm) **Figure { return &a.MemoryMean }, func(r *Run) *float64 { return figureValue(r.MemoryMean) }},
	{"threads", compare.Sum, func(a *Arm) **Figure { return &a.Threads }, func(r *Run) *float64 { return figureValue(r.Threads) }},
	{"context_switches", compare.Sum, func(a *Arm) **Figure { return &a.ContextSwitches }, func(r *Run) *float64 { return figureValue(r.ContextSwitches) }},
	{"throttled_ns", compare.Sum, func(a *Arm) **Figure { return &a.Throttled }, func(r *Run) *float64 { return optionalValue(r.ThrottledNS) }},
	{"throttled_share", compare.Sum, func(a *Arm) **Figure { return &a.ThrottledShare }, (*Run).throttledShare},
	{"gcs", compare.Sum, func(a *Arm) **Figure { return &a.GCs }, func(r *Run) *float64 { return optionalValue(r.GCs) }},
	{"gc_cpu_ns", compare.Sum, func(a *Arm) **Figure { return &a.GCCPU }, func(r *Run) *float64 { return optionalValue(r.GCCPUNS) }},
}

func figureNamed(name string) *figure {
	return &figures[slices.IndexFunc(figures, func(f figure) bool { return f.name == name })]
}

// roundFigure returns a figure with times and sizes rounded to whole numbers and other figures to six significant digits; it rounds the bounds in
// place. It limits a share to 1.
func roundFigure(name string, f Figure) *Figure {
	for _, v := range []*float64{&f.Est, f.Low, f.High} {
		switch {
		case v == nil:
		case strings.Contains(name, "_ns") || strings.Contains(name, "_bytes"):
			*v = math.Round(*v)
		case *v != 0:
			digits := math.Pow(10, 5-math.Floor(math.Log10(math.Abs(*v))))
			*v = math.Round(*v*digits) / digits
		}
		if v != nil && name == "throttled_share" {
			*v = min(*v, 1)
		}
	}
	return &f
}
