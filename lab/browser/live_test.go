package browser

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/inspect"
	"github.com/whylate/whylate/internal/testprog"
	"github.com/whylate/whylate/internal/view"
	"github.com/whylate/whylate/report"
)

// serve explains a trace and serves it as whylate view does.
func serve(t *testing.T, data []byte, name string) (*report.Report, *inspect.Trace, string) {
	t.Helper()
	x := inspect.NewIndex(inspect.Limits{})
	rep, err := whylate.Explain(context.Background(), bytes.NewReader(data), whylate.Options{Name: name, Index: x})
	if err != nil {
		t.Fatal(err)
	}
	trace, err := inspect.Open(x, bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	s, err := view.New(trace, rep, view.Options{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return rep, trace, server.URL
}

// visit shows the page of a server, which may ask that server and nobody else.
func visit(t *testing.T, browser context.Context, origin, fragment string, width int, dark bool) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	p := &tab{t: t, ctx: ctx}
	err := chromedp.Listen(ctx, func(ev any) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch ev := ev.(type) {
		case *cdpruntime.EventExceptionThrown:
			p.evil = append(p.evil, fmt.Sprintf("exception: %s %v", ev.ExceptionDetails.Text, ev.ExceptionDetails.Exception))
		case *cdpruntime.EventConsoleAPICalled:
			p.evil = append(p.evil, fmt.Sprintf("console.%s", ev.Type))
		case *log.EventEntryAdded:
			if ev.Entry.Level == log.EntryLevelError || ev.Entry.Level == log.EntryLevelWarning {
				p.evil = append(p.evil, "log: "+ev.Entry.Text)
			}
		case *network.EventRequestWillBeSent:
			if u := ev.Request.URL; !strings.HasPrefix(u, origin+"/") {
				p.evil = append(p.evil, "request: "+u)
			}
		case *page.EventJavascriptDialogOpening:
			p.evil = append(p.evil, "dialog: "+ev.Message)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the page: %q", p.evil)
		}
	})
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	p.do(command(network.Enable, network.EnableParams{}), command(log.Enable, cdp.Empty{}), command(cdpruntime.Enable, cdp.Empty{}),
		command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: int64(width), Height: 900, DeviceScaleFactor: 1}),
		command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}),
		chromedp.Navigate(origin+"/"+fragment), chromedp.WaitReady(chromedp.CSS(`html[data-live=ready]`)))
	p.await(`document.querySelectorAll('.vbody .vrow[data-n]').length > 0`)
	p.quiet()
	return p
}

// await waits until an expression is true in the page.
func (p *tab) await(expr string) {
	p.t.Helper()
	got := get(p, chromedp.Evaluate[string](`new Promise(done => { const until = performance.now() + 40000; const look = () => { let v; try { v = `+expr+`; } catch (err) { v = false; } if (v) done('yes'); else if (performance.now() > until) done('no'); else setTimeout(look, 30); }; look(); })`, chromedp.EvalAwaitPromise))
	if got != "yes" {
		p.t.Fatalf("never true: %s\n%s", expr, get(p, chromedp.Evaluate[string](`(t => t && t.tiles ? JSON.stringify({frames: t.frames.count, waiting: t.waiting, known: t.tiles.known.size, running: [...t.tiles.running].map(r => [r.level, r.index, r.lanes.length]), queue: t.tiles.queue.length, partial: [...t.tiles.known].filter(x => x[1].partial).map(x => x[0]).slice(0, 5), overview: t.overviewAsked, weight: t.tiles.weight, spent: t.tiles.spent.slice(-5)}) : 'no timelines')(`+lanes+`)`)))
	}
}

const lanes = `document.querySelector('.lanes').timelines`

// quiet waits until the timelines have all that they asked for.
func (p *tab) quiet() {
	p.t.Helper()
	p.await(`(t => t.width && !t.waiting && !t.tiles.busy && t.lastWanted && t.tiles.known.size > 0 && !t.overviewAsked)(` + lanes + `)`)
	p.settle()
	p.await(`(t => !t.waiting && !t.tiles.busy)(` + lanes + `)`)
}

func TestLiveLooks(t *testing.T) {
	file := os.Getenv("WHYLATE_TRACE")
	if file == "" {
		t.Skip("only with a trace in WHYLATE_TRACE")
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	browser := chromium(t)
	_, _, url := serve(t, data, "http.trace")
	for _, dark := range []bool{false, true} {
		name := "light"
		if dark {
			name = "dark"
		}
		p := visit(t, browser, url, "", 1280, dark)
		p.do(chromedp.Sleep(1500e6))
		p.element("all", "live-all-"+name)
		p.element("timelines", "live-lanes-"+name)
		p.do(chromedp.Evaluate[chromedp.Void](`document.querySelector('.vbody .vrow[data-n]').click()`))
		p.await(`!document.getElementById('opened').hidden`)
		p.settle()
		p.element("all", "live-opened-"+name)
		p.do(chromedp.Evaluate[chromedp.Void](`document.querySelector('#opened .accent').click()`))
		p.await(`document.querySelector('.lanes').dataset.around`)
		p.quiet()
		p.do(chromedp.Sleep(800e6))
		p.element("timelines", "live-around-"+name)
		p.close()
	}
	_ = testprog.Trace
}

// element keeps a picture of one part of the page.
func (p *tab) element(id, name string) {
	p.t.Helper()
	type box struct{ X, Y, W, H float64 }
	b := ask[box](p, `(r => ({X: r.left + scrollX, Y: r.top + scrollY, W: r.width, H: r.height}))(document.getElementById('`+id+`').getBoundingClientRect())`)
	format, beyond := page.CaptureScreenshotFormatPng, true
	shot := get(p, chromedp.Action[[]byte](func(ctx context.Context, t *chromedp.Target) ([]byte, error) {
		r, err := cdp.Call(ctx, t, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: format, CaptureBeyondViewport: &beyond, Clip: &page.Viewport{X: b.X, Y: b.Y, Width: b.W, Height: b.H, Scale: 1}})
		if err != nil {
			return nil, err
		}
		return r.Data, nil
	}))
	if err := os.MkdirAll(artefacts, 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(artefacts+"/"+name+".png", shot, 0o644); err != nil {
		p.t.Fatal(err)
	}
}
