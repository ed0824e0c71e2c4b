package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/html"
)

// TestCompared shows two reports side by side: percentiles, distributions on one axis, and removed and added findings.
func TestCompared(t *testing.T) {
	browser := chromium(t)
	before, after := readSample(t, "tso"), readSample(t, "tso")
	g := &before.Groups[0]
	for i := range g.Histogram {
		g.Histogram[i][0] *= 3
	}
	p99 := *after.Groups[0].LatencyNS.P99 * 3
	g.LatencyNS.P99 = &p99
	before.Input.Name = "before <b>.json"
	removed := before.Findings[0]
	removed.ID, removed.Title, removed.Code = "gone", "a lock that <i>was</i> held", "WL2002"
	before.Findings = append(before.Findings, removed)
	added := after.Findings[0]
	added.ID, added.Code = "fresh", "WL2010"
	after.Findings = append([]report.Finding{}, after.Findings...)
	after.Findings = append(after.Findings, added)
	for _, width := range []int{390, 1440} {
		p := openWith(t, browser, after, html.Options{Before: before, Judged: true, Changed: []string{after.Groups[0].ID}}, width, false, "")
		lists := evaluate[[]int](p, `[...document.querySelectorAll('.threefold > div')].map(d => d.querySelectorAll('li').length)`)
		if want := []int{1, 1, len(before.Findings) - 1}; fmt.Sprint(lists) != fmt.Sprint(want) {
			t.Errorf("removed, added and remaining findings: %v, want %v", lists, want)
		}
		text := evaluate[string](p, `document.getElementById('before-after').textContent`)
		for _, want := range []string{"before <b>.json", "a lock that <i>was</i> held", "of a change"} {
			check.True(t, strings.Contains(text, want), "the section does not say %q: %s", want, text)
		}
		// On the common axis, the distribution that is three times slower begins to the right of the other.
		lefts := evaluate[[]float64](p, `['before', 'after'].map(c => document.querySelector('#before-after path.' + c).getBBox().x)`)
		check.True(t, len(lefts) == 2 && lefts[0] > lefts[1]+10, "the distributions begin at %v px, want the earlier report's further right", lefts)
		p.shotElement("before-after", fmt.Sprint("compared-", width))
		if wide := evaluate[float64](p, `document.documentElement.scrollWidth`); wide > float64(width) {
			t.Errorf("at %d px the page is %.0f px wide: %s", width, wide, evaluate[string](p, `[...document.querySelectorAll("main *")].filter(e => e.getBoundingClientRect().right > innerWidth + 2 && !e.closest(".scroll")).slice(0, 5).map(e => e.outerHTML.slice(0, 200)).join("\n")`))
		}
		p.close()
	}
}
