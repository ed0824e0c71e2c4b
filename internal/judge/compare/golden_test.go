package compare

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

var update = flag.Bool("update", false, "write the golden files")

// TestGolden compares, to the microsecond, the differences of pairs of recordings: grown, shrunk, moved, short on either side,
// with requests still running, with groups that only one side has; and to three digits the intervals of runs of experiments.
func TestGolden(t *testing.T) {
	var b bytes.Buffer
	us := func(ns *int64) string {
		if ns == nil {
			return "-"
		}
		return fmt.Sprintf("%.0f", float64(*ns)/1e3)
	}
	diffOf := func(name string, seconds int, perSecond int, extra float64) load {
		return load{name, report.KindHTTP1, seconds, perSecond, shop(extra).request}
	}
	pair := func(title string, x, y *report.Report) {
		d := Reports(x, y)
		fmt.Fprintf(&b, "-- %s: empty %v\n", title, d.IsEmpty())
		for _, w := range d.Warnings {
			fmt.Fprintf(&b, "warning %s: %s\n", w.Code, w.Text)
		}
		for i := range d.Groups {
			g := &d.Groups[i]
			fmt.Fprintf(&b, "%s: changed %v, %d to %d requests, %d to %d running\n", g.Name, g.Changed, g.OldCount, g.NewCount, g.OldOpen, g.NewOpen)
			for k, c := range []*Change{&g.Mean, &g.P50, &g.P90, &g.P99} {
				fmt.Fprintf(&b, "  %s %s to %s by %s, %s to %s, evidence %v, %.2f\n", []string{"mean", "p50", "p90", "p99"}[k], us(c.Old), us(c.New), us(c.Delta), us(c.Low), us(c.High), c.Evidence, c.Ratio())
			}
			for k, rows := range [][]Row{g.Causes, g.Tail} {
				for i := range rows {
					r := &rows[i]
					site := "-"
					if s := r.Site(); s != nil {
						site = fmt.Sprint(s.Func, ":", s.Line)
					}
					fmt.Fprintf(&b, "    %s %s %s at %s: %.0f to %.0f by %.0f, %s to %s, evidence %v\n", []string{"all", "tail"}[k], r.Cause, r.Kind, site, float64(r.OldNS)/1e3, float64(r.NewNS)/1e3, float64(r.DeltaNS)/1e3, us(r.LowNS), us(r.HighNS), r.Evidence)
				}
			}
		}
		for _, g := range d.Appeared {
			fmt.Fprintf(&b, "appeared %s\n", g.Name)
		}
		for _, g := range d.Vanished {
			fmt.Fprintf(&b, "vanished %s\n", g.Name)
		}
	}
	a := func(extra float64, seed uint64) *report.Report {
		return reportOf("a", diffOf("main.shop", 5, 60, extra).group(seed))
	}
	pair("grown", a(0, 1), a(3e6, 2))
	pair("shrunk", a(3e6, 3), a(0, 4))
	pair("by chance", a(1e5, 5), a(0, 6))
	pair("short before", reportOf("a", diffOf("main.shop", 1, 60, 0).group(7)), a(3e6, 8))
	pair("short after", a(0, 9), reportOf("b", diffOf("main.shop", 1, 60, 3e6).group(10)))
	pair("few", reportOf("a", diffOf("main.shop", 4, 3, 0).group(11)), reportOf("b", diffOf("main.shop", 4, 3, 3e6).group(12)))
	open := a(0, 13)
	open.Groups[0].Open.Count, open.Groups[0].Open.OldestNS = 4, 5e9
	pair("running, and other groups", open, reportOf("b", diffOf("main.shop", 5, 60, 0).group(13), diffOf("main.other", 3, 20, 0).group(14)))
	moved := a(0, 13)
	for k := range moved.Groups[0].Bands {
		for i := range moved.Groups[0].Bands[k].Causes {
			moved.Groups[0].Bands[k].Causes[i].Site.Line += 2
		}
	}
	pair("lines moved", a(0, 13), moved)
	pair("nothing", &report.Report{}, a(0, 15))
	// The other side has a row that a capped list may leave out.
	capped := func(r *report.Report) *report.Report {
		for i := range r.Groups[0].Bands {
			b := &r.Groups[0].Bands[i]
			b.Causes = append(b.Causes, report.Cause{Cause: report.CauseOther, TotalNS: int64(b.Count) * 5e6})
		}
		return r
	}
	pair("capped before", capped(a(0, 1)), a(3e6, 2))
	pair("capped after", a(3e6, 1), capped(a(0, 2)))
	three := func(v float64) string { return fmt.Sprintf("%.3g", v) }
	bound := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return three(*v)
	}
	runs := func(values ...float64) []float64 { return values }
	for _, scale := range []Scale{Ratio, Sum} {
		for _, c := range [][2][]float64{{nil, nil}, {runs(5), runs(7)}, {runs(5, 5), runs(5, 5)}, {runs(5, 6), runs(9, 10)}, {runs(5, 6, 7), runs(5.5, 6.5, 7.5)}, {runs(100, 101, 102, 99), runs(110, 111, 109, 112)}, {runs(0, 0, 0), runs(1, 2, 3)}, {runs(1, 2, 3), runs(0, 0, 0)}, {runs(-1, 1, 2), runs(3, 4, 5)},
			{runs(1, 1, 1, 1, 50), runs(1, 1, 1, 1, 1)}, {runs(10, 12), runs(20, 22, 24, 26, 28, 30, 32, 34)}, {runs(math.MaxInt32, 1), runs(1, 1)}} {
			x, y, d := RunsInterval(c[0], scale), RunsInterval(c[1], scale), CompareRuns(c[0], c[1], scale)
			fmt.Fprintf(&b, "%d %v and %v: %s (%s to %s), %s (%s to %s): %s (%s to %s), relative %v, evidence %v\n", scale, c[0], c[1], three(x.Est), bound(x.Low), bound(x.High), three(y.Est), bound(y.Low), bound(y.High), three(d.Est), bound(d.Low), bound(d.High), d.Relative, d.Evidence)
		}
	}
	must.Golden(t, *update, "testdata/golden.txt", bytes.ReplaceAll(b.Bytes(), []byte("-0\n"), []byte("0\n")))
	check.False(t, strings.Contains(b.String(), "NaN"), "something is no number")
}
