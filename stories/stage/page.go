package stage

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"

	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report/html"
)

//go:embed page.html
var pageSource string

// A Chart is lines over loads or arms, for the page.
type Chart struct {
	Title string   `json:"title"`
	X     []string `json:"x"` // labels, at equal distances
	Lines []Line   `json:"lines"`
	// Unit is ns, bytes or a text after the number; Log makes the vertical axis logarithmic.
	Unit string `json:"unit"`
	Log  bool   `json:"log,omitempty"`
}

// A Line has a value for each label; NaN is not allowed, values below 0 are left out.
type Line struct {
	Name string    `json:"name"`
	Y    []float64 `json:"y"`
}

func (c *Chart) format(v float64) string {
	switch c.Unit {
	case "ns":
		return words.Duration(int64(v))
	case "bytes":
		return words.Bytes(int64(v))
	}
	return fmt.Sprintf("%.3g%s", v, c.Unit)
}

// colors are those of the causes in the report's style sheet, which suit light and dark.
var colors = []string{"var(--cpu)", "var(--chan)", "var(--sched)", "var(--throttle)", "var(--network)", "var(--syscall)", "var(--gc-assist)", "var(--lock)"}

// SVG draws a chart.
func (c *Chart) SVG() template.HTML {
	const xMin, xMax, yMin, yMax = 76, 668, 12, 216
	low, high := math.Inf(1), 0.
	for _, l := range c.Lines {
		for _, v := range l.Y {
			if v > 0 {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	if high == 0 {
		return ""
	}
	y := func(v float64) float64 { return yMax - (yMax-yMin)*max(v, 0)/high/1.05 }
	grid := []float64{0, high / 2, high}
	if c.Log {
		a, b := math.Log(low/1.3), math.Log(high*1.3)
		y = func(v float64) float64 { return yMax - (yMax-yMin)*max((math.Log(max(v, 1e-9))-a)/(b-a), 0) }
		grid = nil
		for v := math.Pow(10, math.Floor(math.Log10(low))); v <= high*1.3; v *= 10 {
			if v >= low/1.3 {
				grid = append(grid, v)
			}
		}
	}
	x := func(i int) float64 { return xMin + (xMax-xMin)*(float64(i)+0.5)/float64(len(c.X)) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 680 260" role="img" aria-label="%s">`, template.HTMLEscapeString(c.Title))
	for _, v := range grid {
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%[3]f" stroke="var(--grid)"/><text x="70" y="%.1[3]f" dy="4" text-anchor="end">%s</text>`, xMin, xMax, y(v), template.HTMLEscapeString(c.format(v)))
	}
	for i, label := range c.X {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" dy="18" text-anchor="middle">%s</text>`, x(i), yMax, template.HTMLEscapeString(label))
	}
	for k, l := range c.Lines {
		color, points := colors[k%len(colors)], ""
		for i, v := range l.Y {
			if v < 0 || c.Log && v == 0 {
				continue
			}
			points += fmt.Sprintf("%.1f,%.1f ", x(i), y(v))
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%s</title></circle>`, x(i), y(v), color, template.HTMLEscapeString(l.Name+", "+c.X[i]+": "+c.format(v)))
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5"/>`, points, color)
	}
	b.WriteString("</svg><figcaption>")
	for k, l := range c.Lines {
		fmt.Fprintf(&b, `<span><i style="background: %s"></i>%s</span>`, colors[k%len(colors)], template.HTMLEscapeString(l.Name))
	}
	b.WriteString("</figcaption>")
	return template.HTML(b.String())
}

// WriteHTML writes a page of several results that links to the reports of their arms.
func WriteHTML(w io.Writer, results []*Result) error {
	t, err := template.New("page").Funcs(template.FuncMap{"time": words.Duration, "or": orDefault}).Parse(pageSource)
	if err != nil {
		return fmt.Errorf("the page's template: %w", err)
	}
	if err := t.Execute(w, map[string]any{"Style": template.CSS(html.Style()), "Results": results}); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}
