package browser

import (
	"encoding/json"
	"flag"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/chromedp"

	"github.com/whylate/whylate/internal/testing/must"
)

var measure = flag.String("measure", "", "measure how fast this page, a `file`, can be used")

// pageTimes are the times of one display of a page, in ms from the start of navigation, by the browser.
type pageTimes struct {
	Parsed float64 `json:"parsed"` // the HTML
	Ready  float64 `json:"ready"`  // all parts are in place, keys and links work
	Drawn  float64 `json:"drawn"`  // the frame after the pictures
	Key    float64 `json:"key"`    // from a key press to the frame with its effect
	Long   int     `json:"long"`   // tasks of more than 50 ms
	Worst  float64 `json:"worst"`  // the longest of them
}

const pageTimesScript = `new Promise(done => {
	const out = { long: 0, worst: 0 };
	new PerformanceObserver(list => list.getEntries().forEach(e => { out.long++; out.worst = Math.max(out.worst, e.duration); })).observe({ type: 'longtask', buffered: true });
	const frame = f => requestAnimationFrame(() => requestAnimationFrame(f));
	frame(() => {
		out.drawn = performance.now(); out.whole = document.documentElement.dataset.drawn;
		out.parsed = performance.getEntriesByType('navigation')[0].domInteractive;
		out.ready = performance.getEntriesByName('ready')[0].startTime;
		const before = performance.now();
		dispatchEvent(new KeyboardEvent('keydown', { key: 'n', bubbles: true }));
		frame(() => { out.key = performance.now() - before; done(JSON.stringify(out)); });
	});
})`

// TestMeasure shows a page five times and prints the times, for the figures of docs/html.md:
//
//	go -C lab/browser test -run Measure -v -args -measure /path/to/page.html
func TestMeasure(t *testing.T) {
	if *measure == "" {
		t.Skip("no page named by -measure")
	}
	file := must.Have(filepath.Abs(*measure))(t)
	info, err := os.Stat(file)
	must.Do(t, err)
	browser := chromium(t)
	var all []pageTimes
	for range 5 {
		ctx, cancel := chromedp.NewContext(browser)
		p := &tab{t: t, ctx: ctx}
		// This creates the tab, which would otherwise end with its first command.
		must.Do(t, chromedp.Listen(ctx, func(any) {}))
		p.run(command(log.Enable, cdp.Empty{}),
			command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 1280, Height: 900, DeviceScaleFactor: 1}),
			chromedp.Navigate((&url.URL{Scheme: "file", Path: file}).String()), chromedp.WaitReady(chromedp.CSS(`html[data-ready=true]`)))
		var s pageTimes
		must.Do(t, json.Unmarshal([]byte(runAction(p, chromedp.Evaluate[string](pageTimesScript, chromedp.EvalAwaitPromise))), &s))
		all = append(all, s)
		cancel()
	}
	slices.SortFunc(all, func(a, b pageTimes) int { return int(a.Ready - b.Ready) })
	t.Logf("%d bytes; ms from navigation: parsed, ready, drawn; a key's answer; tasks over 50 ms, the longest", info.Size())
	for _, s := range all {
		t.Logf("%5.0f %5.0f %5.0f   %4.0f   %d, %.0f", s.Parsed, s.Ready, s.Drawn, s.Key, s.Long, s.Worst)
	}
}
