package browser

import (
	"fmt"
	"math"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/html"
)

// TestFlameSearch searches the flame graph, shows the sandwich of a function by keyboard, and opens a link to both.
func TestFlameSearch(t *testing.T) {
	browser := chromium(t)
	r := readSample(t, "tso")
	p := open(t, browser, r, 1440, false, "")
	defer p.close()
	band := evaluate[string](p, `document.getElementById('flameband').value`)
	group := evaluate[string](p, `new URLSearchParams(location.hash.slice(1)).get('group') || ''`)
	var b *report.Band
	for i := range r.Groups {
		if g := &r.Groups[i]; g.ID == group || group == "" && b == nil && len(g.Slowest) > 0 {
			for k := range g.Bands {
				if g.Bands[k].Band == report.BandName(band) {
					b = &g.Bands[k]
				}
			}
		}
	}
	must.True(t, b != nil, "no band %q of group %q", band, group)
	// The time of the rows that contain the function, each row once.
	var all, matching float64
	fn := ""
	for _, c := range b.Causes {
		if fn == "" && c.Site != nil {
			fn = c.Site.Func
		}
		all += float64(c.TotalNS)
		found := c.Site != nil && strings.Contains(c.Site.Func, fn)
		for _, v := range c.Via {
			found = found || v.Site != nil && strings.Contains(v.Site.Func, fn)
		}
		if found {
			matching += float64(c.TotalNS)
		}
	}
	p.run(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`(e => { e.value = %q; e.dispatchEvent(new Event('input')); })(document.getElementById('flamesearch'))`, fn)))
	p.waitUntil(`document.querySelectorAll('#flame .box.found').length > 0`)
	var percent float64
	if _, err := fmt.Sscanf(evaluate[string](p, `document.querySelector('#flame [role=status]').textContent`), "%f%%", &percent); err != nil || math.Abs(percent-100*matching/all) > 1 {
		t.Errorf("the page says that %v %% of the time matches, the report has %.1f %% (%v)", percent, 100*matching/all, err)
	}
	p.run(chromedp.Evaluate[chromedp.Void](`document.querySelector('#flame .chart').focus()`))
	for range 12 {
		p.press(arrowDown)
		if evaluate[bool](p, `!!document.getElementById('sandwich')`) {
			break
		}
	}
	p.press("s")
	p.waitUntil(`document.querySelectorAll('#flame .caller').length > 0`)
	sandwichFunc := evaluate[string](p, `new URLSearchParams(location.hash.slice(1)).get('flame.of')`)
	callers := evaluate[float64](p, `[...document.querySelectorAll('#flame .caller rect')].filter(r => +r.getAttribute('y') > -24).reduce((n, r) => n + +r.getAttribute('width') + 1, 0)`)
	if wide := evaluate[float64](p, `+document.querySelector('#flame svg').getAttribute('width')`); math.Abs(callers-wide) > 2 || sandwichFunc == "" {
		t.Errorf("the callers of %q are %.0f pixels wide of %.0f", sandwichFunc, callers, wide)
	}
	p.shotElement("flame", "flame-sandwich-1440")
	link := open(t, browser, r, 390, false, evaluate[string](p, `location.hash`))
	defer link.close()
	link.waitUntil(`document.querySelectorAll('#flame .caller').length > 0 && document.getElementById('flamesearch').value === ` + fmt.Sprintf("%q", fn))

	link.shotElement("flame", "flame-sandwich-390")
}

// TestFlameFilters lists the requests of a box.
func TestFlameFilters(t *testing.T) {
	browser := chromium(t)
	_, _, origin := serveTrace(t, testprog.Trace(t, "http1-long"), "http1.trace")
	p := visitServer(t, browser, origin, "", 1000, false)
	defer p.close()
	p.run(chromedp.Evaluate[chromedp.Void](`document.querySelector('#flame .chart').focus()`))
	p.press(arrowDown)
	p.waitUntil(`document.querySelector('.chosenbox button.listing')`)
	p.run(chromedp.Evaluate[chromedp.Void](`document.querySelector('.chosenbox button.listing').click()`))
	p.waitUntil(`location.hash.includes('all.group=') && !document.querySelector('.vbody').hasAttribute('aria-busy') && Number(document.querySelector('.vtable').getAttribute('aria-rowcount')) > 0`)
}

// TestPlaces opens the menu of a source line by keyboard and checks its links.
func TestPlaces(t *testing.T) {
	browser := chromium(t)
	r := singleSegmentReport()
	r.Input.Go = "1.26"
	c := &r.Groups[0].Bands[0].Causes[0]
	c.Site = &report.Site{Func: "net/http.(*conn).serve", File: "/usr/local/go/src/net/http/server.go", Line: 2103}
	p := openWith(t, browser, r, html.Options{Editor: "vscode"}, 1000, false, "")
	defer p.close()
	p.run(chromedp.Evaluate[chromedp.Void](`document.querySelector('#bandcauses button.site').focus()`))
	p.press("\r")
	p.waitUntil(`document.getElementById('placemenu').matches(':popover-open')`)
	links := evaluate[[]string](p, `[...document.querySelectorAll('#placemenu a')].map(a => a.href)`)
	want := []string{"vscode://file/usr/local/go/src/net/http/server.go:2103", "https://github.com/golang/go/blob/release-branch.go1.26/src/net/http/server.go#L2103"}
	check.True(t, fmt.Sprint(links) == fmt.Sprint(want), "the links are %q, want %q", links, want)
	for _, l := range links {
		if _, err := url.Parse(l); err != nil {
			t.Error(err)
		}
	}
	p.screenshot("place-1000")
	p.press("\u001b")
	p.waitUntil(`!document.getElementById('placemenu').matches(':popover-open')`)
	if got := evaluate[bool](p, `document.activeElement.matches('button.site')`); !got {
		t.Error("the focus is lost when the menu is closed")
	}
}
