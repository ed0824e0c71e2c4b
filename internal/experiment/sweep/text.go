package sweep

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
)

// A column is a figure in the table. showsChange adds a column with the change from the first arm.
type column struct {
	name, head  string
	format      func(float64) string
	showsChange bool
}

func asTime(v float64) string  { return words.Duration(int64(v)) }
func asCount(v float64) string { return fmt.Sprintf("%.4g", v) }
func asSize(v float64) string  { return words.Bytes(int64(v)) }

var columns = []column{
	{"p50_ns", "p50", asTime, false},
	{"p99_ns", "p99", asTime, true},
	{"p999_ns", "p99.9", asTime, true},
	{"per_s", "req/s", asCount, false},
	{"cpu_ns_per_request", "CPU/req", asTime, true},
	{"memory_peak_bytes", "memory", asSize, false},
	{"throttled_ns", "throttled", asTime, false},
	{"throttled_share", "periods", words.PercentOr0, false},
	{"gcs", "GCs", asCount, false},
	{"gc_cpu_ns", "GC CPU", asTime, false},
}

// WriteText prints a result: a table for each load, the causes by arm, the best arms and the
// recommendation.
func WriteText(w io.Writer, r *Result) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s; %s measured a run after %s of warm-up, runs in random order\n", termtext.Escape(strings.Join(r.Command, " ")), termtext.Escape(r.Load), words.Duration(r.Measure), words.Duration(r.Warmup))
	loads := r.loads()
	for _, l := range loads {
		r.writeTable(&b, l, len(loads) > 1)
	}
	b.WriteString("\nAfter each number is half the width of its 95% interval; \"vs\" compares with the first line, ~ means no evidence of a\ndifference (99%).\n")
	r.writeSaturation(&b)
	r.writeCauses(&b)
	r.writeChoices(&b)
	for _, w := range r.Warnings {
		fmt.Fprintf(&b, "\n%s: %s\n", w.Code, termtext.Escape(w.Text))
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

// writeTable writes a table of the arms at one load; hasSeveralLoads adds a head with that load instead of its column.
func (r *Result) writeTable(b *strings.Builder, load string, hasSeveralLoads bool) {
	var arms []*Arm
	for i := range r.Arms {
		if loadOf(r.Arms[i].settings) == load {
			arms = append(arms, &r.Arms[i])
		}
	}
	if hasSeveralLoads {
		fmt.Fprintf(b, "\nat %s:", rateText(load))
	}
	b.WriteByte('\n')
	head := []string{}
	settings := arms[0].settings.withoutLoad()
	if !hasSeveralLoads {
		settings = arms[0].settings
	}
	for _, x := range settings {
		head = append(head, termtext.Escape(x.Name))
	}
	head = append(head, "runs")
	leftColumns := len(head)
	var visible []column
	for _, c := range columns {
		if slices.ContainsFunc(arms, func(a *Arm) bool { f := a.figure(c.name); return f != nil && (f.Est != 0 || c.name == "per_s") }) {
			visible = append(visible, c)
			head = append(head, c.head)
			if c.showsChange && len(arms) > 1 {
				head = append(head, "vs")
			}
		}
	}
	rows := [][]string{head}
	for i, a := range arms {
		var row []string
		for _, x := range settings {
			row = append(row, termtext.Escape(a.settings.Get(x.Name)))
		}
		runs := fmt.Sprint(a.Runs)
		if a.Failed > 0 {
			runs += fmt.Sprintf(", %d failed", a.Failed)
		}
		if a.Invalid > 0 {
			runs += fmt.Sprintf(", %d invalid", a.Invalid)
		}
		row = append(row, runs)
		for _, c := range visible {
			row = append(row, cell(a.figure(c.name), c.format))
			if c.showsChange && len(arms) > 1 {
				vs := ""
				if d, ok := a.Changes[c.name]; ok && i > 0 {
					vs = "~"
					if d.Evidence && d.Relative {
						vs = words.Change(d.Est)
					} else if d.Evidence {
						vs = "differs"
					}
				}
				row = append(row, vs)
			}
		}
		rows = append(rows, row)
	}
	b.WriteString(termtext.Table("", rows, leftColumns))
	for _, a := range arms {
		for _, e := range a.Errors {
			fmt.Fprintf(b, "%s: %s\n", termtext.Escape(a.settings.String()), termtext.Escape(e))
		}
	}
}

// rateText returns a load as the settings have it, such as 500 or 80%, with its unit.
func rateText(load string) string {
	if strings.HasSuffix(load, "%") {
		return load + " of the service's capacity"
	}
	return load + " requests a second"
}

func (a *Arm) figure(name string) *Figure { return *figureNamed(name).field(a) }

// cell returns a figure with half the width of its interval, in percent of the figure, as text; "-" for nil.
func cell(f *Figure, format func(float64) string) string {
	if f == nil {
		return "-"
	}
	text := format(f.Est)
	if f.Low == nil || f.Est == 0 {
		return text
	}
	half := (*f.High - *f.Low) / 2 / f.Est
	if half >= 9.995 || math.IsNaN(half) {
		return text + " ±>999%"
	}
	return fmt.Sprintf("%s ±%.0f%%", text, 100*half)
}

// writeCauses writes a line for each arm with up to four causes that have at least 5 % of the time of its slowest tenth of
// requests.
func (r *Result) writeCauses(b *strings.Builder) {
	if !slices.ContainsFunc(r.Arms, func(a Arm) bool { return len(a.Causes) > 0 }) {
		return
	}
	b.WriteString("\nWhat the slowest tenth of the requests spent their time on:\n")
	width := 0
	for i := range r.Arms {
		width = max(width, termtext.Width(termtext.Escape(r.Arms[i].settings.String())))
	}
	for i := range r.Arms {
		var parts []string
		for _, c := range r.Arms[i].Causes {
			if c.Share >= 0.05 && len(parts) < 4 {
				parts = append(parts, string(c.Cause)+" "+words.Percent(c.Share))
			}
		}
		if len(parts) == 0 {
			parts = append(parts, "not known")
		}
		fmt.Fprintf(b, "  %s  %s\n", termtext.Pad(termtext.Escape(r.Arms[i].settings.String()), width), strings.Join(parts, ", "))
	}
}

// writeChoices writes the best arms by each criterion, the excluded ones, the knee of the curve, and the recommendation with
// its price.
func (r *Result) writeChoices(b *strings.Builder) {
	if len(r.Best) == 0 {
		return
	}
	b.WriteString("\n")
	line := func(label string, arm int, suffix string) {
		fmt.Fprintf(b, "%-20s %s%s\n", label+":", termtext.Escape(r.Arms[arm].settings.String()), suffix)
	}
	for _, c := range criteria {
		i, ok := r.Best[c.name]
		if !ok {
			continue
		}
		suffix := ""
		if n := len(r.Ties[c.name]); n > 0 {
			suffix = fmt.Sprintf(" (no evidence that it beats %d other%s)", n, map[bool]string{true: "s"}[n > 1])
		}
		line(c.title, i, suffix)
	}
	var excluded []string
	for i := range r.Arms {
		if a := &r.Arms[i]; a.Runs > 0 && (a.Failed > 0 || a.Invalid == a.Runs) {
			excluded = append(excluded, a.settings.String())
		}
	}
	if len(excluded) > 0 && len(excluded) < len(r.Arms) {
		fmt.Fprintf(b, "excluded, because runs failed or none is valid: %s\n", termtext.Escape(strings.Join(excluded, ", ")))
	}
	if i, ok := r.Best["slo"]; ok {
		line("cheapest that meets", i, "  "+sloText(r.SLO))
	} else if len(r.SLO) > 0 {
		fmt.Fprintf(b, "no arm certainly meets %s\n", sloText(r.SLO))
	}
	if r.Knee != nil {
		fmt.Fprintf(b, "\nThe knee is at %s.\n", r.Knee.Text)
	}
	if a := r.Recommended; a != nil {
		fmt.Fprintf(b, "\nRecommended: %s, because %s.\n", termtext.Escape(r.Arms[a.Arm].settings.String()), a.Reason)
		if a.Better != "" {
			fmt.Fprintf(b, "  Better than the first: %s.\n", a.Better)
		}
		if a.Price != "" {
			fmt.Fprintf(b, "  Its price: %s.\n", termtext.Escape(a.Price))
		} else {
			b.WriteString("  There is no evidence that anything gets worse.\n")
		}
	}
}
