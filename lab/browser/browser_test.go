package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/trace"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testfull"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/html"
)

// artefacts is the directory of screenshots.
const artefacts = "../../artefacts/browser"

// chromium starts a browser for a test, or skips the test if none is installed.
func chromium(t *testing.T) context.Context {
	t.Helper()
	testfull.Need(t, "a browser")
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		t.Skip("no Chromium here (Debian: apt-get install chromium)")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(2*time.Minute), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("hide-scrollbars", true), chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Skipf("Chromium does not start here: %v", err)
	}
	return ctx
}

// A tab shows a page and records violations: exceptions, console messages, dialogs, and requests that are not allowed.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu         sync.Mutex
	violations []string
}

// open writes a report as a page and shows it.
func open(t *testing.T, browser context.Context, r *report.Report, width int, dark bool, fragment string) *tab {
	t.Helper()
	return openWith(t, browser, r, html.Options{Command: "whylate explain x.trace"}, width, dark, fragment)
}

func openWith(t *testing.T, browser context.Context, r *report.Report, opts html.Options, width int, dark bool, fragment string) *tab {
	t.Helper()
	var out bytes.Buffer
	must.Do(t, html.Write(&out, r, opts))
	file := filepath.Join(t.TempDir(), "page.html")
	must.Do(t, os.WriteFile(file, out.Bytes(), 0o644))
	pageURL := (&url.URL{Scheme: "file", Path: file}).String()
	p := loadPage(t, browser, pageURL+fragment, "html[data-ready=true]", func(url string) bool { return url == pageURL }, width, dark)
	p.settle()
	return p
}

// loadPage shows a page and waits for an element with the selector ready. allowed decides which URLs the page may request.
func loadPage(t *testing.T, browser context.Context, pageURL, ready string, allowed func(url string) bool, width int, dark bool) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	p := &tab{t: t, ctx: ctx}
	must.Do(t, chromedp.Listen(ctx, func(ev any) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch ev := ev.(type) {
		case *cdpruntime.EventExceptionThrown:
			p.violations = append(p.violations, fmt.Sprintf("exception: %s %v", ev.ExceptionDetails.Text, ev.ExceptionDetails.Exception))
		case *cdpruntime.EventConsoleAPICalled:
			p.violations = append(p.violations, fmt.Sprintf("console.%s", ev.Type))
		case *log.EventEntryAdded:
			if ev.Entry.Level == log.EntryLevelError || ev.Entry.Level == log.EntryLevelWarning {
				p.violations = append(p.violations, "log: "+ev.Entry.Text)
			}
		case *network.EventRequestWillBeSent:
			if u := ev.Request.URL; !allowed(u) {
				p.violations = append(p.violations, "request: "+u)
			}
		case *page.EventJavascriptDialogOpening:
			p.violations = append(p.violations, "dialog: "+ev.Message)
		}
	}))
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if t.Failed() {
			t.Logf("the page: %q", p.violations)
		}
	})
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	p.run(command(network.Enable, network.EnableParams{}), command(log.Enable, cdp.Empty{}), command(cdpruntime.Enable, cdp.Empty{}),
		command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: int64(width), Height: 900, DeviceScaleFactor: 1}),
		command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}),
		chromedp.Navigate(pageURL), chromedp.WaitReady(chromedp.CSS(ready)))
	return p
}

// close fails the test if the page caused violations.
func (p *tab) close() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.violations {
		p.t.Errorf("the page caused %s", e)
	}
}

// command returns an action for a command of the protocol.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

// actionTimeout bounds each action on a page, on a busy machine.
const actionTimeout = time.Minute

func (p *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	runAction(p, chromedp.Steps(actions...))
}

// runAction runs an action that has a result.
func runAction[T any](p *tab, a chromedp.Action[T]) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, actionTimeout)
	defer cancel()
	v, err := chromedp.Run(ctx, a)
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

// settle waits until all pictures are drawn and the next frame shows them.
func (p *tab) settle() {
	p.t.Helper()
	runAction(p, chromedp.Evaluate[bool](`new Promise(done => {
		const frames = n => requestAnimationFrame(() => n ? frames(n - 1) : document.documentElement.dataset.drawn === 'false' ? setTimeout(() => frames(2), 5) : done(true));
		frames(2);
	})`, chromedp.EvalAwaitPromise))
}

// evaluate returns the value of an expression in the page.
func evaluate[T any](p *tab, expr string) T {
	p.t.Helper()
	text := runAction(p, chromedp.Evaluate[string]("JSON.stringify("+expr+")"))
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		p.t.Fatalf("%s gives %.200s: %v", expr, text, err)
	}
	return v
}

// press sends keys to the focused element.
func (p *tab) press(keys ...string) {
	p.t.Helper()
	for _, k := range keys {
		p.run(chromedp.KeyEvent(k))
	}
	p.settle()
}

func (p *tab) screenshot(name string) {
	p.t.Helper()
	png := runAction(p, chromedp.FullScreenshot(100))
	if err := os.MkdirAll(artefacts, 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(artefacts, name+".png"), png, 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// readSample reads a hand-written report.
func readSample(t *testing.T, name string) *report.Report {
	t.Helper()
	f := must.Have(os.Open(filepath.Join("..", "..", "report", "testdata", name+".json")))(t)
	defer f.Close()
	return must.Have(report.ReadJSON(f))(t)
}

// recordOrders explains a trace of this process: orders that wait for a lock, for another goroutine and for a sleep, compute,
// and allocate.
var recordOrders = sync.OnceValues(func() (*report.Report, error) {
	var out bytes.Buffer
	if err := trace.Start(&out); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	sink := make([][]byte, 64)
	for i := range 400 {
		all.Add(1)
		go func() {
			defer all.Done()
			ctx, task := trace.NewTask(context.Background(), "order")
			defer task.End()
			prices := make(chan int)
			go func() {
				if i%40 == 0 {
					time.Sleep(4 * time.Millisecond)
				}
				prices <- i
			}()
			p := <-prices
			mu.Lock()
			sink[p%len(sink)] = make([]byte, 1<<15)
			if i%25 == 0 {
				time.Sleep(time.Millisecond)
			}
			mu.Unlock()
			trace.Log(ctx, "price", "set")
		}()
		if i%8 == 7 {
			time.Sleep(time.Millisecond)
		}
		if i%100 == 99 {
			runtime.GC()
		}
	}
	all.Wait()
	trace.Stop()
	return whylate.Explain(context.Background(), &out, whylate.Options{Name: "orders.trace", Slowest: 5})
})

func ordersReport(t *testing.T) *report.Report {
	t.Helper()
	return must.Have(recordOrders())(t)
}

// singleSegmentReport returns a report of one request with one segment.
func singleSegmentReport() *report.Report {
	ns := func(v int64) *int64 { return &v }
	seg := report.Segment{StartNS: 1000, DurationNS: 5e6, Goroutine: 7, Cause: "sleep", Site: &report.Site{Func: "main.f", File: "/src/main.go", Line: 3}}
	return &report.Report{Schema: report.Schema, Input: report.Input{Name: "one.trace", DurationNS: 1e9, Go: "1.26"}, Groups: []report.Group{{
		ID: "g", Name: "main.f", Named: true, Kind: report.KindFunc, Count: 1, TotalNS: 5e6, LatencyNS: report.Latency{Mean: ns(5e6), Max: ns(5e6)}, Histogram: [][2]int64{{5111808, 1}},
		HistogramCauses: map[report.CauseName][]int64{"sleep": {5e6}}, Blocks: []report.Block{{DurationNS: 250e6, Count: 1, TotalNS: 5e6, Histogram: [][2]int64{{5111808, 1}}, Causes: map[report.CauseName]int64{"sleep": 5e6}}},
		Bands:   []report.Band{{Band: "all", ToNS: 5111808, Count: 1, Causes: []report.Cause{{Cause: "sleep", Site: seg.Site, TotalNS: 5e6, Share: 1, Requests: 1}}}},
		Slowest: []report.Request{{ID: "r1", StartNS: 1000, LatencyNS: 5e6, Goroutine: 7, Segments: []report.Segment{seg}}},
	}}, Runtime: report.Runtime{Throttle: report.Throttle{Verdict: "none"}}}
}

func allReports(t *testing.T) map[string]*report.Report {
	t.Helper()
	out := map[string]*report.Report{"orders": ordersReport(t), "one": singleSegmentReport()}
	for _, name := range []string{"pubsub", "tso", "hostile", "none"} {
		out[name] = readSample(t, name)
	}
	return out
}

// TestPages shows every report at both widths and in both themes.
func TestPages(t *testing.T) {
	browser := chromium(t)
	for name, r := range allReports(t) {
		for _, width := range []int{1280, 400} {
			for _, dark := range []bool{false, true} {
				theme := "light"
				if dark {
					theme = "dark"
				}
				t.Run(fmt.Sprintf("%s-%d-%s", name, width, theme), func(t *testing.T) {
					p := open(t, browser, r, width, dark, "")
					defer p.close()
					p.checkAppearance(width)
					p.screenshot(fmt.Sprintf("%s-%d-%s", name, width, theme))
				})
			}
		}
	}
}

// lowContrast lists texts whose contrast to their background is below the limit of WCAG 2.2, 1.4.3: 4.5, or 3 for large text.
// In pictures, the background is the topmost shape at the middle of the text.
const lowContrast = `(() => {
	const out = new Set(), canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
	const rgba = color => {
		canvas.clearRect(0, 0, 1, 1);
		canvas.fillStyle = '#000';
		canvas.fillStyle = color;
		canvas.fillRect(0, 0, 1, 1);
		const d = canvas.getImageData(0, 0, 1, 1).data;
		return [d[0], d[1], d[2], d[3] / 255];
	};
	const over = (a, b) => [0, 1, 2].map(i => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
	const lum = c => {
		const [r, g, b] = c.slice(0, 3).map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const backOf = el => {
		const layers = [];
		for (let e = el; e; e = e.parentElement) {
			const c = rgba(getComputedStyle(e).backgroundColor);
			if (c[3] > 0) layers.push(c);
			if (c[3] === 1) break;
		}
		return layers.reverse().reduce((b, c) => over(c, b), [255, 255, 255, 1]);
	};
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let n; n = walk.nextNode();) {
		const el = n.parentElement;
		if (!n.data.trim() || /^(SCRIPT|STYLE|NOSCRIPT|TITLE|OPTION)$/i.test(el.tagName) || !el.checkVisibility({ visibilityProperty: true }) || el.closest('.sr')) continue;
		const style = getComputedStyle(el);
		let fore, back = backOf(el.closest('svg')?.parentElement || el);
		if (el.closest('svg')) {
			fore = rgba(style.fill);
			el.scrollIntoView({ block: 'center' });
			const box = el.getBoundingClientRect();
			const under = document.elementsFromPoint(box.x + box.width / 2, box.y + box.height / 2).find(e => e.tagName === 'rect' && !/catch/.test(e.getAttribute('class')) && getComputedStyle(e).fill !== 'none');
			const pattern = under && /^url\("#(pt-[a-z-]+)"\)/.exec(getComputedStyle(under).fill);
			if (under && (pattern || !getComputedStyle(under).fill.startsWith('url'))) {
				// Around the letters a pattern is covered by its ground.
				const f = rgba(getComputedStyle(pattern ? document.querySelector('#' + pattern[1] + ' rect') : under).fill);
				f[3] *= getComputedStyle(under).opacity * getComputedStyle(under).fillOpacity;
				back = over(f, back);
			}
		} else {
			fore = rgba(style.color);
		}
		const [a, b] = [lum(over(fore, back)), lum(back)], ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		const px = parseFloat(style.fontSize), large = px >= 24 || px >= 18.66 && style.fontWeight >= 700;
		if (ratio < (large ? 3 : 4.5)) out.add(ratio.toFixed(2) + ' ' + el.tagName + '.' + (el.getAttribute('class') || '') + ' "' + n.data.slice(0, 40) + '" ' + style.color + ' ' + style.fill + ' on ' + back.map(Math.round));
	}
	scrollTo(0, 0);
	return [...out];
})()`

// drawnSegment is a segment in the picture.
type drawnSegment struct {
	Seg   int
	X, W  float64
	Class string
	LaneY float64
}

const segments = `[...document.querySelector('#requests .waterfall').querySelectorAll('[data-seg]')].map(g => {
	const r = g.querySelector('rect.path'), l = g.querySelector('rect.onlane');
	return { Seg: +g.dataset.seg, X: +r.getAttribute('x'), W: +r.getAttribute('width'), Class: r.getAttribute('class'), LaneY: l ? +l.getAttribute('y') + l.getAttribute('height') / 2 : -1 };
})`

// TestWaterfallMatchesTheJSON compares every drawn segment of every slow request with the report, to a pixel.
func TestWaterfallMatchesTheJSON(t *testing.T) {
	browser := chromium(t)
	for name, r := range map[string]*report.Report{"orders": ordersReport(t), "pubsub": readSample(t, "pubsub"), "one": singleSegmentReport()} {
		for _, width := range []int{1280, 400} {
			checked := 0
			for i := range r.Groups {
				for _, req := range r.Groups[i].Slowest {
					p := open(t, browser, r, width, false, "#req="+url.QueryEscape(req.ID))
					checked += p.checkWaterfall(&req)
					p.close()
				}
			}
			check.True(t, checked != 0, "%s has no segments", name)
		}
	}
}

// TestKeys moves along a path, zooms, and changes the request, by keyboard only.
func TestKeys(t *testing.T) {
	browser := chromium(t)
	r := ordersReport(t)
	p := open(t, browser, r, 1280, false, "")
	defer p.close()
	first := evaluate[string](p, `document.querySelector('#requests .id').textContent`)
	p.press("w")
	if got := evaluate[string](p, `document.activeElement.className`); !strings.Contains(got, "waterfall") {
		t.Fatalf("after w, %q has the focus", got)
	}
	const arrowRight, arrowLeft = "\u0303", "\u0302" // as the protocol's client names the arrow keys
	p.press(arrowRight, arrowRight)
	selectedSegments := func() []int {
		return evaluate[[]int](p, `[...document.querySelectorAll('#requests .seg.selected')].map(g => +g.dataset.seg)`)
	}
	if got := selectedSegments(); len(got) != 1 || got[0] != 1 {
		t.Errorf("after two steps to the right, segments %v are chosen, want [1]", got)
	}
	p.press(arrowLeft)
	if got := selectedSegments(); len(got) != 1 || got[0] != 0 {
		t.Errorf("after a step back, segments %v are chosen, want [0]", got)
	}
	if got := evaluate[string](p, `document.querySelector('.detail h4').textContent`); !strings.Contains(got, "segment 1 of") {
		t.Errorf("the details say %q", got)
	}
	// A click selects, too.
	last := len(r.Groups[0].Slowest[0].Segments) - 1
	widest := 0
	for i, seg := range r.Groups[0].Slowest[0].Segments {
		if seg.DurationNS > r.Groups[0].Slowest[0].Segments[widest].DurationNS {
			widest = i
		}
	}
	p.run(chromedp.Click(chromedp.CSS(fmt.Sprintf(`#requests .waterfall [data-seg="%d"] rect.path`, widest))))
	p.settle()
	if got := selectedSegments(); len(got) != 1 || got[0] != widest {
		t.Errorf("after a click on segment %d of %d, segments %v are chosen", widest, last, got)
	}
	p.press("\u0302")
	for range widest {
		p.press("\u0302")
	}
	// Zoom on a segment that is wider than a pixel.
	longest := 0
	req := r.Groups[0].Slowest[0]
	for i, s := range req.Segments {
		if s.DurationNS > req.Segments[longest].DurationNS {
			longest = i
		}
	}
	for range longest {
		p.press(arrowRight)
	}
	if got := selectedSegments(); len(got) != 1 || got[0] != longest {
		t.Fatalf("segments %v are chosen, want [%d]", got, longest)
	}
	width := func() float64 {
		return evaluate[float64](p, `+document.querySelector('#requests .seg.selected rect.path').getAttribute('width')`)
	}
	before := width()
	p.press("+")
	if got := width(); got < 1.9*before || got > 2.1*before {
		t.Errorf("+ made the segment %.3f wide, it was %.3f", got, before)
	}
	p.press("0")
	if got := width(); got < before-0.5 || got > before+0.5 {
		t.Errorf("0 made the segment %.3f wide, it was %.3f", got, before)
	}
	p.press("n")
	second := evaluate[string](p, `document.querySelector('#requests .id').textContent`)
	check.True(t, second != first && strings.Contains(evaluate[string](p, `location.hash`), "req="), "n leads from %q to %q", first, second)
	p.press("p")
	check.Equal(t, evaluate[string](p, `document.querySelector('#requests .id').textContent`), first, "p leads to")
	p.press("t", "t")
	check.Equal(t, evaluate[string](p, `getComputedStyle(document.documentElement).colorScheme`), "dark", "after t twice, the colour scheme")
	p.press("?")
	check.True(t, evaluate[bool](p, `document.getElementById('help').open`), "? does not show the keys")
}

// TestFindingLinks follows the link of every finding: it must show a request that has the finding.
func TestFindingLinks(t *testing.T) {
	browser := chromium(t)
	for _, name := range []string{"pubsub", "tso", "hostile"} {
		r := readSample(t, name)
		p := open(t, browser, r, 1280, false, "")
		links := evaluate[[]string](p, `[...document.querySelectorAll('.finding a.show')].map(a => a.getAttribute('href'))`)
		p.close()
		for _, link := range links {
			q, err := url.ParseQuery(strings.TrimPrefix(link, "#"))
			must.True(t, err == nil && q.Get("finding") != "" && q.Get("req") != "", "%s: link %q, error %v", name, link, err)
			p := open(t, browser, r, 1280, false, link)
			if got := evaluate[string](p, `document.querySelector('#requests .id').textContent`); !strings.Contains(got, q.Get("req")) {
				t.Errorf("%s: %s shows request %q", name, link, got)
			}
			if top := evaluate[float64](p, `document.getElementById('requests').getBoundingClientRect().top`); top < -5 || top > 300 {
				t.Errorf("%s: after %s the request is %.0f pixels from the top", name, link, top)
			}
			if got := evaluate[[]string](p, `[...document.querySelectorAll('.finding.chosen')].map(e => e.dataset.finding)`); len(got) != 1 || got[0] != q.Get("finding") {
				t.Errorf("%s: %s marks findings %q", name, link, got)
			}
			p.close()
		}
		if name == "tso" && len(links) == 0 {
			t.Error("tso has no findings with links")
		}
	}
}

// TestTotals compares the sums of the pictures with the JSON.
func TestTotals(t *testing.T) {
	browser := chromium(t)
	r := ordersReport(t)
	for i := range r.Groups {
		g := &r.Groups[i]
		p := open(t, browser, r, 1280, false, "#group="+g.ID)
		if got := evaluate[int](p, `[...document.querySelectorAll('#distribution .bucket')].reduce((n, b) => n + +b.dataset.count, 0)`); got != g.Count {
			t.Errorf("%s: the histogram shows %d requests of %d", g.Name, got, g.Count)
		}
		for _, b := range g.Bands {
			if b.Count == 0 {
				continue
			}
			p.run(chromedp.Click(chromedp.CSS(`button[data-band="` + b.Band + `"]`)))
			p.settle()
			var want int64
			for _, c := range b.Causes {
				want += c.TotalNS
			}
			got := evaluate[float64](p, `+document.querySelector('#flame .box').dataset.ns`) * float64(b.Count)
			check.True(t, got >= float64(want)-1 && got <= float64(want)+1, "%s, %s: the flame graph holds %.0f ns, the band %d", g.Name, b.Band, got, want)
			leaves := evaluate[float64](p, `(() => {
				const rows = [...document.querySelectorAll('#flame .box')].map(b => ({ ns: +b.dataset.ns, y: +b.querySelector('rect').getAttribute('y'), x: +b.querySelector('rect').getAttribute('x'), w: +b.querySelector('rect').getAttribute('width') }));
				return rows[0].w;
			})()`)
			check.True(t, leaves >= 900, "%s: the flame graph's root is %.0f pixels wide", g.Name, leaves)
		}
		p.close()
	}
}

// TestBeforeAfter compares the flame graph with that of another report, from a file and from the page.
func TestBeforeAfter(t *testing.T) {
	browser := chromium(t)
	before, after := singleSegmentReport(), singleSegmentReport()
	b := &before.Groups[0].Bands[0]
	b.Causes[0].TotalNS = 2e6
	file := filepath.Join(t.TempDir(), "before.json")
	var out bytes.Buffer
	must.Do(t, report.WriteJSON(&out, before))
	must.Do(t, os.WriteFile(file, out.Bytes(), 0o644))
	p := open(t, browser, after, 1280, false, "")
	defer p.close()
	p.run(chromedp.SetUploadFiles(chromedp.CSS("#before"), []string{file}), chromedp.WaitReady(chromedp.CSS("#flame rect.diff")))
	if got := evaluate[[]string](p, `[...document.querySelectorAll('#flame .boxname')].map(e => e.textContent)`); len(got) != 3 || !strings.HasPrefix(got[1], "+3.00ms sleep") || !strings.HasPrefix(got[2], "+3.00ms main.f") {
		t.Errorf("the boxes say %q, want +3.00ms", got)
	}
	p.screenshot("before-after")

	// The same with the other report in the page.
	before.Groups[0].LatencyNS.Max = new(int64)
	*before.Groups[0].LatencyNS.Max = 2e6
	before.Input.Name = "before.json"
	p = openWith(t, browser, after, html.Options{Before: before}, 1280, false, "")
	defer p.close()
	if got := evaluate[[]string](p, `[...document.querySelectorAll('#flame .boxname')].map(e => e.textContent)`); len(got) != 3 || !strings.HasPrefix(got[1], "+3.00ms sleep") || !strings.HasPrefix(got[2], "+3.00ms main.f") {
		t.Errorf("the boxes say %q, want +3.00ms", got)
	}
	if got := evaluate[string](p, `document.querySelector('.beforeline').textContent`); !strings.Contains(got, "max 2.00ms → 5.00ms (+150%)") {
		t.Errorf("the line about the earlier report is %q", got)
	}
}

// TestPageJSON compares the JSON in the page with the report.
func TestPageJSON(t *testing.T) {
	browser := chromium(t)
	r := readSample(t, "hostile")
	p := open(t, browser, r, 1280, false, "")
	defer p.close()
	text := evaluate[string](p, `document.getElementById('report').textContent`)
	back := must.Have(report.ReadJSON(strings.NewReader(text)))(t)
	back.Verdict = r.Verdict // the page computes it if the report is of an older version
	var want, got bytes.Buffer
	check.True(t, report.WriteJSON(&want, r) == nil && report.WriteJSON(&got, back) == nil && want.String() == got.String(),
		"the page's JSON differs from the report")
}

// TestCopy presses "Copy JSON": the copy must be the report, in the clipboard or, if the page may not use it, as text to copy
// by hand; also if the page holds the JSON compressed.
func TestCopy(t *testing.T) {
	b := chromium(t)
	large := *ordersReport(t)
	for i := range 40 {
		g := large.Groups[0]
		g.ID = fmt.Sprint("g", i)
		large.Groups = append(large.Groups[:len(large.Groups):len(large.Groups)], g)
	}
	for name, r := range map[string]*report.Report{"hostile": readSample(t, "hostile"), "large": &large} {
		var want bytes.Buffer
		must.Do(t, report.WriteJSON(&want, r))
		checkCopy := func(method, text string) {
			t.Helper()
			var got bytes.Buffer
			back, err := report.ReadJSON(strings.NewReader(text))
			must.True(t, err == nil, "%s, %s: %v", name, method, err)
			back.Verdict = r.Verdict // as in TestPageJSON
			if err := report.WriteJSON(&got, back); err != nil || got.String() != want.String() {
				t.Errorf("%s, %s: the copy differs from the report", name, method)
			}
		}
		p := open(t, b, r, 1280, false, "")
		if got := evaluate[string](p, `document.getElementById('report').type`); (got == "application/json") == (name == "large") {
			t.Errorf("%s: the page has the report as %s", name, got)
		}
		const copiedText = `new Promise(done => {
			Object.defineProperty(navigator, 'clipboard', { configurable: true, value: { writeText: text => { done(text); return Promise.resolve(); } } });
			document.getElementById('copyjson').click();
		})`
		checkCopy("clipboard", runAction(p, chromedp.Evaluate[string](copiedText, chromedp.EvalAwaitPromise)))
		evaluate[bool](p, `(Object.defineProperty(navigator, 'clipboard', { configurable: true, value: undefined }), document.getElementById('copyjson').click(), true)`)
		p.settle()
		checkCopy("by hand", evaluate[string](p, `document.querySelector('textarea.json').value`))
		p.close()
	}
}

// TestPrintsPDF prints a page to a PDF.
func TestPrintsPDF(t *testing.T) {
	browser := chromium(t)
	p := open(t, browser, ordersReport(t), 1280, true, "")
	defer p.close()
	pdf := runAction(p, chromedp.PrintToPDF(chromedp.PDFPrintBackground()))
	must.True(t, bytes.HasPrefix(pdf, []byte("%PDF-")), "no PDF")
	must.Do(t, os.WriteFile(filepath.Join(artefacts, "orders.pdf"), pdf, 0o644))
}

// TestManyRequests shows a report of a busy service: many groups, and a request with as many segments as reports hold.
func TestManyRequests(t *testing.T) {
	browser := chromium(t)
	r := ordersReport(t)
	big := *r
	big.Groups = nil
	long := r.Groups[0].Slowest[0]
	long.Segments = nil
	for i := range 2000 {
		long.Segments = append(long.Segments, report.Segment{StartNS: long.StartNS + int64(i)*1000, DurationNS: 1000, Goroutine: uint64(1 + i%40), Cause: report.Causes()[i%13], Site: &report.Site{Func: "main.f", File: "f.go", Line: i}})
	}
	long.LatencyNS = 2000 * 1000
	for i := range 60 {
		g := r.Groups[0]
		g.ID = fmt.Sprintf("g%d", i)
		g.Count = 500000 - i
		if i == 0 {
			g.Slowest = []report.Request{long}
		}
		big.Groups = append(big.Groups, g)
	}
	begin := time.Now()
	p := open(t, browser, &big, 1280, false, "")
	defer p.close()
	t.Logf("60 groups, 2000 segments: shown after %v", time.Since(begin).Round(time.Millisecond))
	check.Equal(t, evaluate[string](p, `document.getElementById('report').type`), "application/gzip;base64", "the page has the large report as")
	if got := evaluate[int](p, segments+`.length`); got != 2000 {
		t.Errorf("%d segments are drawn, want 2000", got)
	}
	t.Logf("redrawn in %.1f ms", evaluate[float64](p, `(() => { const w = document.querySelector('#requests .waterfall'), a = performance.now(); for (let i = 0; i < 5; i++) w.dispatchEvent(new KeyboardEvent('keydown', { key: '0', bubbles: true })); return (performance.now() - a) / 5; })()`))
}
