package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/html"
)

// TestCompared shows two reports side by side: percentiles, distributions on one axis, and findings that came and went.
func TestCompared(t *testing.T) {
	browser := chromium(t)
	before, after := sample(t, "tso"), sample(t, "tso")
	g := &before.Groups[0]
	for i := range g.Histogram {
		g.Histogram[i][0] *= 3
	}
	p99 := *after.Groups[0].LatencyNS.P99 * 3
	g.LatencyNS.P99 = &p99
	before.Input.Name = "before <b>.json"
	lost := before.Findings[0]
	lost.ID, lost.Title, lost.Code = "gone", "a lock that <i>was</i> held", "WL2002"
	before.Findings = append(before.Findings, lost)
	came := after.Findings[0]
	came.ID = "fresh"
	after.Findings = append([]report.Finding{}, after.Findings...)
	after.Findings = append(after.Findings, came)
	for _, width := range []int{390, 1440} {
		p := openWith(t, browser, after, html.Options{Before: before, Judged: true, Changed: []string{after.Groups[0].ID}}, width, false, "")
		lists := ask[[]int](p, `[...document.querySelectorAll('.threefold > div')].map(d => d.querySelectorAll('li').length)`)
		if want := []int{1, 1, len(before.Findings) - 1}; fmt.Sprint(lists) != fmt.Sprint(want) {
			t.Errorf("findings that went, came and stayed: %v, want %v", lists, want)
		}
		text := ask[string](p, `document.getElementById('before-after').textContent`)
		for _, want := range []string{"before <b>.json", "a lock that <i>was</i> held", "of a change"} {
			if !strings.Contains(text, want) {
				t.Errorf("the section does not say %q: %s", want, text)
			}
		}
		// The same shape, three times slower, lies to the right of the other on the common axis.
		left := ask[[]float64](p, `['before', 'after'].map(c => document.querySelector('#before-after path.' + c).getBBox().x)`)
		if len(left) != 2 || left[0] <= left[1]+10 {
			t.Errorf("before begins at %v px, after it", left)
		}
		p.element("before-after", fmt.Sprint("compared-", width))
		if wide := ask[float64](p, `document.documentElement.scrollWidth`); wide > float64(width) {
			t.Errorf("at %d px the page is %.0f px wide: %s", width, wide, ask[string](p, `[...document.querySelectorAll("main *")].filter(e => e.getBoundingClientRect().right > innerWidth + 2 && !e.closest(".scroll")).slice(0, 5).map(e => e.outerHTML.slice(0, 200)).join("\n")`))
		}
		p.close()
	}
}
