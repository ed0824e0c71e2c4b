package browser

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// services are the services of lab/truth whose pages are shown: one for each kind of fault that changes the page.
var services = []string{"fsync-lock", "cpu-hogs", "gc-assist", "grpc-unary", "healthy"}

// cachedReports has the reports of services, by name, for all tests of this process.
var cachedReports sync.Map // name -> *report.Report

// serviceReport explains the trace of a service of lab/truth, or of the demo.
func serviceReport(t *testing.T, name string) *report.Report {
	t.Helper()
	if r, ok := cachedReports.Load(name); ok {
		return r.(*report.Report)
	}
	var data []byte
	if name == "demo" {
		data = demoTrace(t)
	} else {
		data = testprog.Service(t, name).Trace
	}
	r := must.Have(whylate.Explain(context.Background(), bytes.NewReader(data), whylate.Options{Name: name + ".trace"}))(t)
	cachedReports.Store(name, r)
	return r
}

// demoTrace returns a trace of `whylate demo`. Other tests judge whether it shows all faults; on a busy machine the demo says
// that it does not.
func demoTrace(t *testing.T) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "demo.trace")
	ctx, cancel := context.WithTimeout(context.Background(), actionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, testprog.Build(t, "cmd/whylate"), "demo", "-o", file).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	must.True(t, err == nil, "%v\n%s", err, out)
	return data
}

// TestServices shows the demo and services with known faults, and compares every part of their pages with the JSON.
func TestServices(t *testing.T) {
	browser := chromium(t)
	for _, name := range append([]string{"demo"}, services...) {
		t.Run(name, func(t *testing.T) {
			r := serviceReport(t, name)
			for _, width := range []int{1280, 400} {
				for _, theme := range []string{"light", "dark"} {
					p := open(t, browser, r, width, theme == "dark", "")
					p.checkLayout(width)
					if width == 1280 {
						p.checkContrast() // colours do not depend on the width
					}
					p.screenshot(fmt.Sprintf("%s-%d-%s", name, width, theme))
					p.close()
				}
			}
			p := open(t, browser, r, 1280, false, "")
			defer p.close()
			p.checkFindings(r)
			for i := range r.Groups {
				if i >= 3 {
					break
				}
				g := &r.Groups[i]
				p.goTo("#group=" + g.ID)
				p.checkGroup(r, g)
				for k := range g.Slowest {
					p.goTo("#req=" + url.QueryEscape(g.Slowest[k].ID))
					p.checkRequest(g, &g.Slowest[k])
				}
			}
			p.checkRuntime(r)
		})
	}
}

// checkAppearance checks a page's width and contrasts, and that texts are within their boxes.
func (p *tab) checkAppearance(width int) {
	p.t.Helper()
	p.checkLayout(width)
	p.checkContrast()
}

func (p *tab) checkContrast() {
	p.t.Helper()
	for _, low := range evaluate[[]string](p, lowContrast) {
		p.t.Errorf("low contrast: %s", low)
	}
}

func (p *tab) checkLayout(width int) {
	p.t.Helper()
	p.checkWidth(width)
	for _, text := range evaluate[[]string](p, `[...document.querySelectorAll('#outcome p, #verdict p')].filter(e => !e.checkVisibility({ visibilityProperty: true })).map(e => e.textContent)`) {
		p.t.Errorf("at %d pixels, a text is invisible: %s", width, text)
	}
	if got := evaluate[int](p, `document.scripts.length`); got != 3 {
		p.t.Errorf("the page has %d scripts, want its own 3", got)
	}
}

// checkWidth checks a page's width, and that texts are within their boxes.
func (p *tab) checkWidth(width int) {
	p.t.Helper()
	if w := evaluate[int](p, `document.documentElement.scrollWidth`); w > width {
		p.t.Errorf("at %d pixels, the page is %d pixels wide", width, w)
	}
	for _, text := range evaluate[[]string](p, overflowing) {
		p.t.Errorf("at %d pixels, runs out of its box: %s", width, text)
	}
}

// overflowing lists texts of pictures that extend beyond the picture or, in boxes of flame graphs and segments, beyond the
// box.
const overflowing = `(() => {
	const out = [];
	for (const svg of document.querySelectorAll('svg[viewBox]')) {
		const frame = svg.getBoundingClientRect();
		for (const text of svg.querySelectorAll('text')) {
			const b = text.getBoundingClientRect();
			if (!b.width || text.closest('[clip-path]') && !text.closest('.seg')) continue;
			const box = text.closest('.box, .seg'), in_ = box ? box.querySelector('rect').getBoundingClientRect() : frame;
			if (b.right > Math.min(in_.right + 1.5, frame.right + 1.5) || b.left < frame.left - 1.5) out.push((text.getAttribute('class') || '') + ' "' + text.textContent + '" ends at ' + b.right.toFixed(1) + ', its box at ' + in_.right.toFixed(1));
		}
	}
	return out;
})()`

// goTo goes to an anchor of the open page.
func (p *tab) goTo(hash string) {
	p.t.Helper()
	evaluate[bool](p, fmt.Sprintf(`(location.hash = %q, true)`, hash))
	p.settle()
}

// checkFindings compares the findings with the report and follows each link by a click.
func (p *tab) checkFindings(r *report.Report) {
	p.t.Helper()
	if got := evaluate[int](p, `document.querySelectorAll('#findings .finding').length`); got != len(r.Findings) {
		p.t.Errorf("%d findings are shown of %d", got, len(r.Findings))
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		card := `document.querySelector('#finding-` + fmt.Sprint(i) + `')`
		text := evaluate[string](p, card+`.textContent`)
		for _, want := range []string{string(f.Code), string(f.Severity), f.Title, f.Fix, f.Ignored} {
			if !strings.Contains(text, want) {
				p.t.Errorf("the card of %s does not say %q", f.Code, want)
			}
		}
		for _, e := range f.Evidence {
			if !strings.Contains(text, e.Text) {
				p.t.Errorf("the card of %s does not say %q", f.Code, e.Text)
			}
		}
		if f.Predicted != nil {
			got := evaluate[[][]int64](p, `[...`+card+`.querySelectorAll('.gain')].map(g => [+g.dataset.est, +g.dataset.low, +g.dataset.high])`)
			want := [][]int64{{f.Predicted.P50NS.Est, f.Predicted.P50NS.Low, f.Predicted.P50NS.High}, {f.Predicted.P99NS.Est, f.Predicted.P99NS.Low, f.Predicted.P99NS.High}}
			for _, g := range got {
				if fmt.Sprint(g) != fmt.Sprint(want[0]) && fmt.Sprint(g) != fmt.Sprint(want[1]) {
					p.t.Errorf("%s: the gain is drawn as %v, want one of %v", f.Code, g, want)
				}
			}
		}
		link := evaluate[string](p, `(`+card+`.querySelector('a.show') || { getAttribute: () => '' }).getAttribute('href')`)
		if link == "" {
			if len(r.Groups) > 0 && len(r.Groups[0].Slowest) > 0 {
				p.t.Errorf("%s leads to no request", f.Code)
			}
			continue
		}
		q, err := url.ParseQuery(strings.TrimPrefix(link, "#"))
		if err != nil || q.Get("finding") != f.ID || q.Get("req") == "" {
			p.t.Errorf("%s: link %q, error %v", f.Code, link, err)
			continue
		}
		if evaluate[bool](p, card+`.checkVisibility()`) {
			p.run(chromedp.Click(chromedp.CSS(fmt.Sprintf("#finding-%d a.show", i))))
			p.settle()
		} else {
			p.goTo(link)
		}
		p.checkLinkTarget(q.Get("req"), f.ID)
		// The finding's own address leads to its card, folded or not.
		p.goTo("#finding=" + url.QueryEscape(f.ID))
		if top := evaluate[float64](p, card+`.getBoundingClientRect().top`); !evaluate[bool](p, card+`.checkVisibility()`) || top < -5 || top > 850 {
			p.t.Errorf("#finding=%s leads to %.0f pixels from the top", f.ID, top)
		}
	}
}

// checkLinkTarget checks that the page shows the request and finding of a link.
func (p *tab) checkLinkTarget(req, finding string) {
	p.t.Helper()
	if got := evaluate[string](p, `document.querySelector('#requests .id').textContent`); !strings.Contains(got, req) {
		p.t.Errorf("request %q is shown, want %s", got, req)
	}
	if top := evaluate[float64](p, `document.getElementById('requests').getBoundingClientRect().top`); top < -5 || top > 300 {
		p.t.Errorf("the request is %.0f pixels from the top", top)
	}
	if got := evaluate[[]string](p, `[...document.querySelectorAll('.finding.chosen')].map(e => e.dataset.finding)`); len(got) != 1 || got[0] != finding {
		p.t.Errorf("findings %q are marked, want %s", got, finding)
	}
}

// sumOf sums an attribute of elements in the page.
func sumOf(p *tab, selector, attribute string) int64 {
	p.t.Helper()
	return evaluate[int64](p, fmt.Sprintf(`[...document.querySelectorAll(%q)].reduce((n, e) => n + +e.dataset[%q], 0)`, selector, attribute))
}

func total(causes []report.Cause) (n int64) {
	for i := range causes {
		n += causes[i].TotalNS
	}
	return n
}

// checkGroup compares the sums of each picture of a group with the report.
func (p *tab) checkGroup(r *report.Report, g *report.Group) {
	p.t.Helper()
	check := func(view string, got, want int64) {
		p.t.Helper()
		if got != want {
			p.t.Errorf("%s: %s shows %d, the report has %d", g.Name, view, got, want)
		}
	}
	row := `[data-group="` + g.ID + `"]`
	check("the table of groups", evaluate[int64](p, `+document.querySelector('`+row+` td').textContent.replaceAll(',', '')`), int64(g.Count))
	if g.Count == 0 {
		return
	}
	check("its bar in the table of groups", sumOf(p, row+" .part", "ns"), total(g.Bands[0].Causes))
	check("the histogram", sumOf(p, "#distribution .bucket", "count"), int64(g.Count))
	var byCause int64
	for _, list := range g.HistogramCauses {
		for _, ns := range list {
			byCause += ns
		}
	}
	check("the histogram's causes", sumOf(p, "#distribution .bucket [data-ns]", "ns"), byCause)
	check("the causes by latency", sumOf(p, "#distribution .bucket [data-mix]", "mix"), byCause)
	var blocks, ended int64
	for _, b := range g.Blocks {
		for _, ns := range b.Causes {
			blocks += ns
		}
		ended += int64(b.Count)
	}
	check("time over time", sumOf(p, "#overtime rect[data-ns]", "ns"), blocks)
	check("requests over time", sumOf(p, "#overtime rect[data-count]", "count"), ended)
	if want := evaluate[int](p, `document.querySelectorAll('#overtime .slowmark[data-req]').length`); want != len(g.Slowest) && len(g.Blocks) > 0 {
		p.t.Errorf("%s: %d slow requests are marked over time, want %d", g.Name, want, len(g.Slowest))
	}
	for i := range g.Bands {
		b := &g.Bands[i]
		if b.Count == 0 {
			continue
		}
		p.run(chromedp.Click(chromedp.CSS(`button[data-band="` + b.Band + `"]`)))
		p.settle()
		if moreButton := `#bandcauses > p > button:not(.how):not(.listing)`; evaluate[bool](p, `document.querySelector('`+moreButton+`') !== null`) {
			p.run(chromedp.Click(chromedp.CSS(moreButton)))
			p.settle()
		}
		check("band "+string(b.Band), sumOf(p, "#bandcauses tbody [data-ns]", "ns"), total(b.Causes))
		check("the bar of band "+string(b.Band), sumOf(p, "#bandcauses .bar .part", "ns"), total(b.Causes))
		first := evaluate[string](p, `document.querySelector('#bandcauses tbody tr').textContent`)
		if c := &b.Causes[0]; c.Site != nil && c.Site.File != "" && !strings.Contains(first, fmt.Sprintf("%s:%d", filepath.Base(c.Site.File), c.Site.Line)) {
			p.t.Errorf("%s, %s: the first cause is shown as %q", g.Name, b.Band, first)
		}
		// The flame graph holds means, so its sums are as exact as floating point is.
		flame := evaluate[float64](p, `+document.querySelector('#flame .box').dataset.ns`) * float64(b.Count)
		if want := float64(total(b.Causes)); math.Abs(flame-want) > 1+1e-8*want {
			p.t.Errorf("%s: the flame graph of band %s holds %.0f ns of %.0f", g.Name, b.Band, flame, want)
		}
	}
}

// checkRequest compares the waterfall and the tables next to it with a request.
func (p *tab) checkRequest(g *report.Group, req *report.Request) {
	p.t.Helper()
	if got := evaluate[string](p, `document.querySelector('#requests .id').textContent`); !strings.Contains(got, req.ID) {
		p.t.Fatalf("request %q is shown, want %s", got, req.ID)
	}
	p.checkWaterfall(req)
	for view, got := range map[string]int64{
		"the bar of its causes":      sumOf(p, "#requests .two .bar .part", "ns"),
		"the list of longest":        sumOf(p, "#requests .chain li", "ns"),
		"the table of its segments:": p.tableSum("Table of all segments", 1),
	} {
		if got != req.LatencyNS {
			p.t.Errorf("%s, request %s: %s adds up to %d ns, its latency is %d", g.Name, req.ID, view, got, req.LatencyNS)
		}
	}
}

// tableSum opens a folded table of the requests' section and sums a column of exact times.
func (p *tab) tableSum(title string, column int) int64 {
	p.t.Helper()
	find := fmt.Sprintf(`[...document.querySelectorAll('#requests details')].find(d => d.textContent.startsWith(%q))`, title)
	if !evaluate[bool](p, `(`+find+`.open = true)`) {
		return -1
	}
	p.settle()
	return evaluate[int64](p, fmt.Sprintf(`[...`+find+`.querySelectorAll('tbody tr')].reduce((n, r) => n + Number(r.cells[%d].textContent.replaceAll(',', '').replace(' ns', '')), 0)`, column))
}

// checkWaterfall compares the position of every drawn segment with the report.
func (p *tab) checkWaterfall(req *report.Request) int {
	p.t.Helper()
	w := evaluate[float64](p, `document.querySelector('#requests .waterfall').clientWidth`)
	gutter := 196.0
	if w < 640 {
		gutter = 0
	}
	scale := (w - gutter - 2) / float64(req.LatencyNS)
	got := evaluate[[]drawnSegment](p, segments)
	if len(got) != len(req.Segments) {
		p.t.Fatalf("%d segments are drawn, request %s has %d", len(got), req.ID, len(req.Segments))
	}
	laneOf := map[float64]uint64{}
	for k, d := range got {
		s := req.Segments[k]
		x, width := gutter+float64(s.StartNS-req.StartNS)*scale, float64(s.DurationNS)*scale
		if d.Seg != k || d.X < x-0.5 || d.X > x+0.5 || d.W < width-0.5 || d.W > width+0.5 {
			p.t.Errorf("request %s: segment %d is drawn at %.2f, %.2f wide, want %.2f, %.2f", req.ID, k, d.X, d.W, x, width)
		}
		if !strings.Contains(" "+d.Class+" ", " c-"+string(s.Cause)+" ") {
			p.t.Errorf("request %s: segment %d of cause %s has class %q", req.ID, k, s.Cause, d.Class)
		}
		if g, ok := laneOf[d.LaneY]; d.LaneY >= 0 && ok && g != s.Goroutine {
			p.t.Errorf("request %s: segments of goroutines %d and %d are on one lane", req.ID, g, s.Goroutine)
		}
		laneOf[d.LaneY] = s.Goroutine
	}
	return len(got)
}

// checkRuntime compares the tables of the runtime's pictures with the series, row by row.
func (p *tab) checkRuntime(r *report.Report) {
	p.t.Helper()
	s := r.Runtime.Series
	if s == nil {
		return
	}
	find := `[...document.querySelectorAll('#time details')].find(d => d.textContent.startsWith('Table of the runtime'))`
	evaluate[bool](p, `(`+find+`.open = true)`)
	p.settle()
	got := evaluate[map[string]int](p, `[...`+find+`.querySelectorAll('tbody tr')].reduce((n, r) => (n[r.cells[1].textContent] = (n[r.cells[1].textContent] || 0) + 1, n), {})`)
	for kind, want := range map[string]int{
		"heap in use": len(s.HeapBytes), "heap goal": len(s.GoalBytes), "GOMAXPROCS": len(s.GOMAXPROCS), "mark phase": len(s.GC), "world stopped": len(s.STW),
		"a P idle": len(s.PsIdle), "goroutines running": len(s.Running), "goroutines ready to run": len(s.Runnable), "goroutines in system calls": len(s.Syscall),
	} {
		if got[kind] != want {
			p.t.Errorf("the table of the runtime has %d rows of %s, the series %d", got[kind], kind, want)
		}
	}
	// The area of the goroutines' picture is the sum of the series.
	var want float64
	for i, x := range s.Running {
		end := r.Input.DurationNS
		if i+1 < len(s.Running) {
			end = s.Running[i+1][0]
		}
		want += float64(x[1]+s.Runnable[i][1]+s.Syscall[i][1]) / 1e3 * float64(end-x[0])
	}
	area := evaluate[float64](p, `[...document.querySelectorAll('#overtime path.area')].reduce((sum, path) => {
		// Twice the area of a polygon of horizontal and vertical lines.
		let x = 0, y = 0, a = 0;
		for (const [, c, n] of path.getAttribute('d').matchAll(/([MHVZ])([-\d.,]*)/g)) {
			const [px, py] = [x, y];
			if (c === 'M') { [x, y] = n.split(',').map(Number); continue; }
			if (c === 'H') x = +n;
			if (c === 'V') y = +n;
			a += px * y - x * py;
		}
		return sum + Math.abs(a) / 2;
	}, 0)`)
	scale := evaluate[[]float64](p, `(() => {
		const axis = [...document.querySelectorAll('#overtime svg text.axis')];
		const title = axis.find(t => t.textContent === 'Goroutines');
		const labels = axis.filter(t => t.getAttribute('text-anchor') === 'end' && +t.getAttribute('y') > +title.getAttribute('y') && +t.getAttribute('y') < +title.getAttribute('y') + 120 && /^[\d,.]+$/.test(t.textContent)).map(t => [+t.textContent.replaceAll(',', ''), +t.getAttribute('y')]);
		const [a, b] = [labels[0], labels[labels.length - 1]];
		const svg = document.querySelector('#overtime svg');
		return [(a[1] - b[1]) / (b[0] - a[0]), +svg.getAttribute('width') - 68];
	})()`)
	if len(s.Running) > 0 {
		got := area / scale[0] / scale[1] * float64(r.Input.DurationNS)
		// Coordinates are written to a tenth of a pixel.
		if got < want*0.97-float64(r.Input.DurationNS)*0.05 || got > want*1.03+float64(r.Input.DurationNS)*0.05 {
			p.t.Errorf("the picture of goroutines covers %.3g goroutine-seconds, the series says %.3g", got/1e9, want/1e9)
		}
	}
}
