package sweep

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/whylate/whylate/report/html"
)

//go:embed page.html
var pageSource string

// A plot is a diagram of points with their intervals, in the coordinates of an SVG.
type plot struct {
	Title, Note         string
	XTitle              string
	Height              int
	Grid                []tick // lines of the vertical axis
	Ticks               []tick // of the horizontal axis
	Series              []series
	LeftEdge, RightEdge float64
	Top, Bottom         float64
	Width, LineY        float64
}

type tick struct {
	Position float64
	Label    string
}

type series struct {
	Name   string
	Color  template.CSS
	Line   string // points of a polyline; empty if the points are not connected
	Points []point
}

type point struct {
	X, Y, Low, High float64 // Low and High are the ends of the interval
	Bounds          bool
	Label           string
	value           [2]float64
	low, high       float64
}

const plotWidth, plotHeight = 680, 260

// colors are the report's colors of causes, which suit light and dark themes.
var colors = []template.CSS{"var(--cpu)", "var(--chan)", "var(--sched)", "var(--throttle)", "var(--network)", "var(--syscall)", "var(--gc-assist)", "var(--lock)"}

// WriteHTML writes a result as an HTML page without scripts and external resources.
func WriteHTML(w io.Writer, r *Result) error {
	t, err := template.New("page").Parse(pageSource)
	if err != nil {
		return fmt.Errorf("the page's template: %w", err)
	}
	var arms []string
	name := "" // of the recommended arm
	for i := range r.Arms {
		arms = append(arms, r.Arms[i].settings.String())
		if r.Recommended != nil && r.Recommended.Arm == i {
			name = arms[i]
		}
	}
	var table strings.Builder
	if err := WriteText(&table, r); err != nil {
		return err
	}
	err = t.Execute(w, map[string]any{
		"Style": template.CSS(html.Style()), "Command": strings.Join(r.Command, " "), "Load": r.Load, "Text": table.String(), "Plots": r.plots(),
		"Arms": arms, "Advice": r.Recommended, "Name": name,
	})
	if err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}

// plots returns the plots for which the result has figures.
func (r *Result) plots() []plot {
	var out []plot
	byArm := func(heading, note string, format func(float64) string, logarithmic bool, names ...string) {
		var all []series
		for k, name := range names {
			s := series{Name: figureTitle(name), Color: colors[k]}
			for i := range r.Arms {
				if f := r.figure(i, name); f != nil {
					s.Points = append(s.Points, newPoint(float64(i+1)+0.12*(float64(k)-float64(len(names)-1)/2), f, r.Arms[i].settings.String()+": "+format(f.Est)))
				}
			}
			if slices.ContainsFunc(s.Points, func(p point) bool { return p.value[1] > 0 }) {
				all = append(all, s)
			}
		}
		p := plot{Title: heading, Note: note, XTitle: "arm, as numbered above"}
		var ticks []float64
		for i := range r.Arms {
			ticks = append(ticks, float64(i+1))
		}
		if p.draw(all, format, func(v float64) string { return fmt.Sprint(int(v)) }, ticks, [2]float64{0.5, float64(len(r.Arms)) + 0.5}, logarithmic) {
			out = append(out, p)
		}
	}
	byArm("Latency by arm", "from the intended start, with 95% intervals over runs; logarithmic", asTime, true, "p50_ns", "p90_ns", "p99_ns", "p999_ns")
	s := series{Name: "arms", Color: colors[0]}
	low, high := math.Inf(1), 0.0
	for i := range r.Arms {
		if x, y := r.figure(i, "per_s"), r.figure(i, "p999_ns"); x != nil && y != nil {
			s.Points = append(s.Points, newPoint(x.Est, y, fmt.Sprintf("%s: %.4g/s, %s", r.Arms[i].settings, x.Est, asTime(y.Est))))
			low, high = min(low, x.Est), max(high, x.Est)
		}
	}
	p := plot{Title: "Throughput against p99.9", Note: "better is to the right and down", XTitle: "requests answered per second"}
	if len(s.Points) > 0 {
		pad := max((high-low)*0.08, high*0.02)
		if p.draw([]series{s}, asTime, asCount, ticksOf(low, high), [2]float64{low - pad, high + pad}, true) {
			out = append(out, p)
		}
	}
	byArm("Throttled time by arm", "by the kernel's own count, summed over CPUs", asTime, false, "throttled_ns")
	byArm("CPU time per request by arm", "of the service, all its processes", asTime, false, "cpu_ns_per_request")
	byArm("Memory by arm", "resident, at its peak", asSize, false, "memory_peak_bytes")
	byArm("The collector's CPU time by arm", "in the measured part of a run", asTime, false, "gc_cpu_ns")
	if p, ok := r.plotByRate(); ok {
		out = append(out, p)
	}
	return out
}

// plotByRate plots CPU time per request over the rate, with a line for each combination of the service's settings. It is false if no line has two
// points.
func (r *Result) plotByRate() (plot, bool) {
	var all []series
	var rates []float64
	for i := range r.Arms {
		f, per := r.figure(i, "cpu_ns_per_request"), r.figure(i, "per_s")
		if f == nil || per == nil {
			continue
		}
		name := r.Arms[i].settings.withoutLoad().String()
		index := slices.IndexFunc(all, func(s series) bool { return s.Name == name })
		if index < 0 {
			if len(all) == len(colors) {
				continue
			}
			index = len(all)
			all = append(all, series{Name: name, Color: colors[index]})
		}
		all[index].Points = append(all[index].Points, newPoint(per.Est, f, fmt.Sprintf("%s at %.4g/s: %s", name, per.Est, asTime(f.Est))))
		rates = append(rates, per.Est)
	}
	if len(rates) == 0 || !slices.ContainsFunc(all, func(s series) bool { return len(s.Points) > 1 }) {
		return plot{}, false
	}
	low, high := slices.Min(rates), slices.Max(rates)
	pad := max((high-low)*0.08, high*0.02)
	p := plot{Title: "CPU time per request by rate", XTitle: "requests answered per second"}
	ok := p.draw(all, asTime, asCount, ticksOf(low, high), [2]float64{low - pad, high + pad}, false)
	for i := range p.Series {
		for _, q := range p.Series[i].Points {
			p.Series[i].Line += fmt.Sprintf("%.1f,%.1f ", q.X, q.Y)
		}
	}
	return p, ok
}

// newPoint returns the point of a figure at x of a plot, with the figure's bounds if it has some.
func newPoint(x float64, f *Figure, label string) point {
	p := point{value: [2]float64{x, f.Est}, low: f.Est, high: f.Est, Label: label}
	if f.Low != nil {
		p.low, p.high, p.Bounds = *f.Low, *f.High, true
	}
	return p
}

// draw sets the coordinates of the points of all, which it keeps, and of the grid. format and formatX write values on the axes, ticks are on the
// horizontal one, which reaches from xs[0] to xs[1]. It returns false, for no plot, if there is no point above 0.
func (p *plot) draw(all []series, format, formatX func(float64) string, ticks []float64, xs [2]float64, logarithmic bool) bool {
	p.LeftEdge, p.RightEdge, p.Top, p.Bottom, p.Height, p.Width = 76, plotWidth-12, 12, plotHeight-44, plotHeight, plotWidth
	p.LineY = p.Bottom + 32
	low, high, largest := math.Inf(1), 0.0, 0.0
	for _, s := range all {
		for _, q := range s.Points {
			largest = max(largest, q.value[1])
			if q.value[1] > 0 {
				low = min(low, q.value[1])
			}
		}
	}
	for _, s := range all {
		for _, q := range s.Points { // the bound of a wide interval would compress the rest of the plot
			high = max(high, min(q.high, 3*largest))
			if q.low > 0 {
				low = min(low, max(q.low, low/3))
			}
		}
	}
	if high <= 0 {
		return false
	}
	y := func(v float64) float64 { return p.Bottom - (p.Bottom-p.Top)*min(max(v/high/1.05, 0), 1) }
	grid := ticksOf(0, high)
	if logarithmic {
		a, b := math.Log(low/1.3), math.Log(high*1.3)
		y = func(v float64) float64 {
			return p.Bottom - (p.Bottom-p.Top)*min(max((math.Log(max(v, 1e-9))-a)/(b-a), 0), 1)
		}
		grid = nil
		for d := math.Pow(10, math.Floor(math.Log10(low))-1); d < high*1.3; d *= 10 {
			for _, m := range []float64{1, 2, 5} {
				if v := d * m; v >= low/1.3 && v <= high*1.3 && (m == 1 || high/low < 100) {
					grid = append(grid, v)
				}
			}
		}
	}
	for _, v := range grid {
		p.Grid = append(p.Grid, tick{y(v), format(v)})
	}
	x := func(v float64) float64 { return p.LeftEdge + (p.RightEdge-p.LeftEdge)*(v-xs[0])/max(xs[1]-xs[0], 1e-9) }
	for _, v := range ticks {
		p.Ticks = append(p.Ticks, tick{x(v), formatX(v)})
	}
	for _, s := range all {
		for i := range s.Points {
			q := &s.Points[i]
			q.X, q.Y, q.Low, q.High = x(q.value[0]), y(q.value[1]), y(q.low), y(q.high)
		}
	}
	p.Series = all
	return true
}

// ticksOf returns about three to six round numbers from low to high, ascending.
func ticksOf(low, high float64) (out []float64) {
	if high <= low {
		return []float64{high}
	}
	step := math.Pow(10, math.Floor(math.Log10((high-low)/2)))
	for (high-low)/step > 6 {
		step *= 2
		if (high-low)/step > 6 {
			step *= 2.5
		}
	}
	for v := math.Ceil(low/step) * step; v <= high*1.0001; v += step {
		out = append(out, v)
	}
	return out
}
