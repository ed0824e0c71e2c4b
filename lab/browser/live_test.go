package browser

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/whylate/whylate/internal/explain"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/viewer/inspect"
	"github.com/whylate/whylate/internal/viewer/view"
	"github.com/whylate/whylate/report"
)

// serveTrace explains a trace and serves it as whylate view does.
func serveTrace(t *testing.T, data []byte, name string) (*report.Report, *inspect.Trace, string) {
	t.Helper()
	return serveRecording(t, data, nil, name)
}

// serveRecording serves a trace with the kernel's events.
func serveRecording(t *testing.T, data []byte, kernel io.Reader, name string) (*report.Report, *inspect.Trace, string) {
	t.Helper()
	x := inspect.NewIndex(inspect.Limits{})
	rep := must.Have(explain.Explain(context.Background(), bytes.NewReader(data), explain.Options{Name: name, Kernel: kernel, Index: x}))(t)
	trace := must.Have(inspect.Open(x, bytes.NewReader(data), int64(len(data))))(t)
	s := must.Have(view.New(view.Options{}))(t)
	must.Do(t, s.Show(trace, rep))
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return rep, trace, server.URL
}

// visitServer shows the page of a server, which may only request from that server.
func visitServer(t *testing.T, browser context.Context, origin, fragment string, width int, dark bool) *tab {
	t.Helper()
	p := loadPage(t, browser, origin+"/"+fragment, "html[data-live=ready]", func(url string) bool { return strings.HasPrefix(url, origin+"/") }, width, dark)
	p.waitUntil(`document.querySelectorAll('.vbody .vrow[data-n]').length > 0`)
	p.waitForTiles()
	return p
}

// waitUntil waits until an expression is true in the page.
func (p *tab) waitUntil(expr string) {
	p.t.Helper()
	got := runAction(p, chromedp.Evaluate[string](`new Promise(done => { const until = performance.now() + 40000; const look = () => { let v; try { v = `+expr+`; } catch (err) { v = false; } if (v) done('yes'); else if (performance.now() > until) done('no'); else setTimeout(look, 30); }; look(); })`, chromedp.EvalAwaitPromise))
	if got != "yes" {
		p.t.Fatalf("never true: %s\n%s", expr, runAction(p, chromedp.Evaluate[string](`(t => t && t.tiles ? JSON.stringify({frames: t.frames.count, waiting: t.waiting, known: t.tiles.known.size, running: [...t.tiles.running].map(r => [r.level, r.index, r.lanes.length]), queue: t.tiles.queue.length, partial: [...t.tiles.known].filter(x => x[1].partial).map(x => x[0]).slice(0, 5), overview: t.overviewTimer, size: t.tiles.cacheSize, spent: t.tiles.spent.slice(-5)}) : 'no timelines')(`+lanes+`)`)))
	}
}

// waitAcrossPages waits until an expression is true, also on a page that replaces this one.
func (p *tab) waitAcrossPages(expr string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, actionTimeout)
	defer cancel()
	for {
		v, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!(() => { try { return "+expr+"; } catch { return false; } })()"))
		if err == nil && v {
			return
		}
		if ctx.Err() != nil {
			p.t.Fatalf("never true: %s (%v)", expr, err)
		}
		time.Sleep(30 * time.Millisecond)
	}
}

const lanes = `document.querySelector('.lanes').timelines`

// waitForTiles waits until the timelines have all tiles that they requested.
func (p *tab) waitForTiles() {
	p.t.Helper()
	p.waitUntil(`(t => t.width && !t.waiting && !t.requestTimer && !t.tiles.busy && t.lastWanted && t.tiles.known.size > 0 && !t.overviewTimer)(` + lanes + `)`)
	p.settle()
	p.waitUntil(`(t => !t.waiting && !t.requestTimer && !t.tiles.busy)(` + lanes + `)`)
}

// TestLive goes from the table of all requests to one of them and to the timelines around it, and compares the page with the
// server's data.
func TestLive(t *testing.T) {
	browser := chromium(t)
	data := testprog.Trace(t, "http1-long")
	rep, trace, url := serveTrace(t, data, "http1.trace")
	for _, dark := range []bool{false, true} {
		name := "light"
		if dark {
			name = "dark"
		}
		t.Run(name, func(t *testing.T) {
			p := visitServer(t, browser, url, "", 1280, dark)
			defer p.close()
			page := must.Have(trace.Requests(context.Background(), inspect.Query{Sort: "latency", Descending: true, Limit: 3}))(t)
			if got := evaluate[int](p, `Number(document.querySelector('.vtable').getAttribute('aria-rowcount'))`); got != page.Total {
				t.Errorf("the table has %d rows, there are %d requests", got, page.Total)
			}
			if got := evaluate[int](p, `document.querySelectorAll('.vbody .vrow').length`); got > 100 {
				t.Errorf("%d rows are built", got)
			}
			p.shotElement("all", "live-all-"+name)
			p.shotElement("timelines", "live-lanes-"+name)

			// By keyboard: the second row.
			p.run(chromedp.Evaluate[chromedp.Void](`document.querySelector('.vbody').focus()`))
			p.press(arrowDown, arrowDown, "\r")
			want := page.Rows[1]
			p.waitUntil(`document.getElementById('opened').dataset.request === '` + want.ID + `'`)
			p.settle()
			full := must.Have(trace.Request(context.Background(), want.N))(t)
			p.checkSegments(full)
			p.shotElement("all", "live-opened-"+name)

			// In the timelines around the request, its goroutine is first, and its lane has the pieces of the trace.
			p.run(chromedp.Evaluate[chromedp.Void](`document.querySelector('#opened .accent').click()`))
			p.waitUntil(`document.querySelector('.lanes').dataset.around === '` + want.ID + `'`)
			p.waitForTiles()
			if got := evaluate[uint64](p, lanes+`.first[0].id`); got != want.Goroutine {
				t.Errorf("goroutine %d is first, want %d", got, want.Goroutine)
			}
			p.checkLane(trace, want.Goroutine)
			p.checkPictures(trace, false)
			p.shotElement("timelines", "live-around-"+name)

			// Zoom and pan by keyboard.
			before := p.visibleTime()
			p.run(chromedp.Evaluate[chromedp.Void](`document.querySelector('.lanes').focus()`))
			p.press("+", "+")
			if after := p.visibleTime(); after.To-after.From > (before.To-before.From)/3 {
				t.Errorf("two steps in: from %v to %v", before, after)
			}
			in := p.visibleTime()
			p.press(arrowRight)
			if right := p.visibleTime(); right.From <= in.From {
				t.Errorf("to the right: from %v to %v", in, right)
			}
			p.waitForTiles()
			p.checkLane(trace, want.Goroutine)
			// The state of a lane in the middle of the view, as text.
			p.press(arrowDown, "\r")
			p.waitUntil(`document.querySelector('.moment').textContent.length > 0`)
			p.press("0")
			if all := p.visibleTime(); all.From != 0 || int64(all.To) != rep.Input.DurationNS {
				t.Errorf("all of it is %v", all)
			}
			p.waitForTiles()
			p.checkPictures(trace, true)
			// Lanes below the view are loaded before they are scrolled to.
			if got := evaluate[int](p, `(t => t.lastView[4].filter(k => !t.tiles.get(t.lastView[0], 0, k)).length - (t.lastView[4].length ? 0 : 1))(`+lanes+`)`); got != 0 {
				t.Errorf("%d of the lanes just below the view are not loaded", got)
			}
			// Requests for lanes that have left the view are cancelled.
			if !evaluate[bool](p, `(w => { w.want(10, 0, 0, ['g18446744073709551615'], [], false); const r = [...w.running].pop(); w.want(10, 0, 0, ['p0'], [], false); return r.lanes[0] === 'g18446744073709551615' && r.stop.signal.aborted; })(`+lanes+`.tiles)`) {
				t.Error("a lane outside the view is still requested")
			}
			p.waitForTiles()
			// By pointer: Ctrl and the wheel zoom in at the pointer.
			p.run(chromedp.Evaluate[chromedp.Void](`(b => { const r = b.getBoundingClientRect(); b.dispatchEvent(new WheelEvent('wheel', { deltaY: -60, ctrlKey: true, clientX: r.left + r.width * 0.6, clientY: r.top + 200, cancelable: true, bubbles: true })); })(document.querySelector('.lanes'))`))
			p.settle()
			if z := p.visibleTime(); z.To-z.From >= float64(rep.Input.DurationNS) {
				t.Errorf("the wheel does not zoom: %v", z)
			}
		})
	}
	t.Run("search", func(t *testing.T) {
		p := visitServer(t, browser, url, "", 1280, false)
		defer p.close()
		g := rep.Groups[0]
		p.run(chromedp.Evaluate[chromedp.Void](`(e => { e.value = '` + g.ID + `'; e.dispatchEvent(new Event('change')); })(document.querySelector('[data-filter=group]'))`))
		p.waitUntil(fmt.Sprintf(`document.querySelector('.vtable').getAttribute('aria-rowcount') === '%d' && !document.querySelector('.vbody').hasAttribute('aria-busy')`, g.Count+g.Open.Count))
		p.run(chromedp.Evaluate[chromedp.Void](`document.querySelector('#all .filters').reset()`))
		p.run(chromedp.Evaluate[chromedp.Void](`(e => { e.value = 'no such function'; e.dispatchEvent(new Event('input')); })(document.querySelector('[data-filter=function]'))`))
		p.waitUntil(`document.querySelector('.vtable').getAttribute('aria-rowcount') === '0'`)
		const fn = "net/http.(*conn).serve"
		_, n, err := trace.Goroutines(context.Background(), inspect.GoroutineQuery{Function: fn, Limit: 1})
		if err != nil || n == 0 {
			t.Fatal(n, err)
		}
		p.run(chromedp.Evaluate[chromedp.Void](`(e => { e.value = '` + fn + `'; e.dispatchEvent(new Event('input')); })(document.querySelector('[data-lanes=function]'))`))
		p.waitUntil(fmt.Sprintf(`%s.total === %d`, lanes, n))
	})
	t.Run("link", func(t *testing.T) {
		row := trace.Row(trace.Facts().Requests / 2)
		p := visitServer(t, browser, url, "#open="+row.ID, 400, false)
		defer p.close()
		p.waitUntil(`document.getElementById('opened').dataset.request === '` + row.ID + `'`)
		p.settle()
		if excess := evaluate[float64](p, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); excess > 0 {
			t.Errorf("at 400 pixels the page is %v wider than the window", excess)
		}
		p.screenshot("live-400")
	})
}

// The arrow keys, as the protocol's client names them.
const arrowDown, arrowRight = "\u0301", "\u0303"

type viewWindow struct{ From, To float64 }

// visibleTime returns the visible interval of the timelines.
func (p *tab) visibleTime() viewWindow {
	p.t.Helper()
	return evaluate[viewWindow](p, `(t => ({From: t.from, To: t.to}))(`+lanes+`)`)
}

// checkSegments compares the opened waterfall with the request's segments.
func (p *tab) checkSegments(r *report.Request) {
	p.t.Helper()
	type box struct{ X, W float64 }
	got := evaluate[[]box](p, `[...document.querySelectorAll('#opened .seg')].map(g => { const b = g.querySelector('rect.path'); return {X: Number(b.getAttribute('x')), W: Number(b.getAttribute('width'))}; })`)
	if len(got) != len(r.Segments) {
		p.t.Fatalf("%d segments are drawn, the request has %d", len(got), len(r.Segments))
	}
	width := evaluate[float64](p, `document.querySelector('#opened .waterfall').clientWidth`)
	const gutter = 196
	for i, s := range r.Segments {
		x := gutter + float64(s.StartNS-r.StartNS)/float64(r.LatencyNS)*(width-gutter-2)
		w := float64(s.DurationNS) / float64(r.LatencyNS) * (width - gutter - 2)
		if d := got[i].X - x; d > 0.5 || d < -0.5 || got[i].W < w-0.5 || got[i].W > max(w, 0.4)+0.5 {
			p.t.Errorf("segment %d is drawn at %v, want x %.2f width %.2f", i, got[i], x, w)
		}
	}
}

// checkLane compares the visible tiles of a goroutine's lane with the trace.
func (p *tab) checkLane(trace *inspect.Trace, g uint64) {
	p.t.Helper()
	type piece struct {
		From, To int64
		State    int
	}
	type tile struct {
		From, To int64
		Pieces   []piece
	}
	got := evaluate[[]tile](p, fmt.Sprintf(`[...%s.tiles.known].filter(([k, t]) => k.endsWith(' g%d') && t.pieces && !t.partial).map(([, t]) => ({From: t.from, To: t.to, Pieces: t.pieces.map(q => ({From: q.from, To: q.to, State: q.state}))}))`, lanes, g))
	if len(got) == 0 {
		p.t.Errorf("no tile shows single pieces of goroutine %d", g)
	}
	for _, tl := range got {
		want, err := trace.Strips(context.Background(), inspect.Tile{From: tl.From, To: tl.To, Buckets: 4096, Lanes: []inspect.Lane{{ID: g}}})
		if err != nil {
			p.t.Fatal(err)
		}
		if len(want.Strips[0].Pieces) != len(tl.Pieces) {
			p.t.Fatalf("%d pieces in the page, %d in the trace", len(tl.Pieces), len(want.Strips[0].Pieces))
		}
		for i, w := range want.Strips[0].Pieces {
			if q := tl.Pieces[i]; q.From != w.From || q.To != w.To || q.State != int(w.State-timeline.Running) {
				p.t.Fatalf("piece %d is %+v in the page, %+v in the trace", i, q, w)
			}
		}
	}
}

// checkPictures compares the pictures of tiles with the trace: how long a lane ran in each bucket. With summed, it checks
// tiles that the server summed; otherwise, tiles whose pieces the page sums.
func (p *tab) checkPictures(trace *inspect.Trace, summed bool) {
	p.t.Helper()
	const buckets, lane = 512, 22 // pixels
	type picture struct {
		Level   int
		Index   int64
		Lane    string
		Running []int // pixels of each column
	}
	got := evaluate[[]picture](p, fmt.Sprintf(`(t => [...t.tiles.known].filter(([, tile]) => !tile.partial && !!tile.sums === %t).slice(-40).map(([key, tile]) => {
		const [level, index, lane] = key.split(' ');
		t.pictures.left = 1;
		const p = t.pictures.of(tile, %d, lane[0]), c = new OffscreenCanvas(p.width, p.height).getContext('2d');
		c.drawImage(p, 0, 0);
		const px = new Uint32Array(c.getImageData(0, 0, p.width, p.height).data.buffer);
		return { Level: Number(level), Index: Number(index), Lane: lane, Running: Array.from({ length: p.width }, (_, k) => { let n = 0; for (let y = 0; y < p.height; y++) if (px[y * p.width + k] === t.pictures.inks.cpu) n++; return n; }) };
	}))(`+lanes+`)`, summed, lane))
	runningBuckets := 0
	for _, pic := range got {
		var id uint64
		if _, err := fmt.Sscan(pic.Lane[1:], &id); err != nil {
			p.t.Fatal(err)
		}
		span := int64(buckets) << pic.Level
		answer, err := trace.Strips(context.Background(), inspect.Tile{From: pic.Index * span, To: (pic.Index + 1) * span, Buckets: buckets, Lanes: []inspect.Lane{{Kind: map[byte]inspect.LaneKind{'p': inspect.ProcLane}[pic.Lane[0]], ID: id}}})
		if err != nil {
			p.t.Fatal(err)
		}
		strip, width := answer.Strips[0], int64(1)<<pic.Level
		want := make([]int64, buckets)
		if strip.Sums != nil {
			want = strip.Sums[timeline.Running]
		}
		for _, q := range strip.Pieces {
			for k := (q.From - answer.From) / width; q.State == timeline.Running && k < buckets && answer.From+k*width < q.To; k++ {
				want[k] += min(q.To, answer.From+(k+1)*width) - max(q.From, answer.From+k*width)
			}
		}
		if len(pic.Running) != buckets {
			p.t.Fatalf("a picture of %s has %d columns", pic.Lane, len(pic.Running))
		}
		for k, ns := range want {
			// Any running time is visible. The last bucket of the trace may be incomplete.
			high := 0.0
			if ns > 0 {
				runningBuckets++
				high = max(float64(ns)/float64(width), 0.07) * 0.84 * lane
			}
			whole := answer.From+int64(k+1)*width <= answer.To
			if d := float64(pic.Running[k]) - high; whole && (d > 1.5 || d < -1.5) || (pic.Running[k] > 0) != (ns > 0) {
				p.t.Fatalf("%s, level %d, tile %d, bucket %d: %d ns of %d are drawn %d pixels high", pic.Lane, pic.Level, pic.Index, k, ns, width, pic.Running[k])
			}
		}
	}
	if runningBuckets == 0 {
		p.t.Error("no picture shows a running goroutine")
	}
}

// TestLiveSmooth measures zooming and panning in a trace, and takes screenshots; WHYLATE_TRACE names the trace (go run
// ./lab/bench records one).
func TestLiveSmooth(t *testing.T) {
	file := os.Getenv("WHYLATE_TRACE")
	if file == "" {
		t.Skip("measures a trace named by WHYLATE_TRACE")
	}
	data := must.Have(os.ReadFile(file))(t)
	browser := chromium(t)
	began := time.Now()
	_, trace, url := serveTrace(t, data, "big.trace")
	t.Logf("explained and indexed in %v: %+v", time.Since(began).Round(time.Millisecond), trace.Facts())
	p := visitServer(t, browser, url, "", 1280, false)
	defer p.close()
	p.shotElement("timelines", "live-big-lanes")
	for _, m := range []struct{ name, move string }{
		{"zoom in, 4 s", `const c = w0 * 0.4; t.zoom(0.965, c)`},
		{"pan, 4 s", `t.pan((t.to - t.from) * 0.02)`},
		{"zoom out, 4 s", `t.zoom(1.035)`},
		{"scroll, 4 s", `t.scrollBy(9)`},
	} {
		got := runAction(p, chromedp.Evaluate[string](`new Promise(done => { const t = `+lanes+`, w0 = t.end, steps = [], from = t.frames.drawn.length, asked = t.tiles.spent.length; let last = 0, began = 0;
			const frame = now => { if (last) steps.push(now - last); last = now; began ||= now; if (now - began > 4000) { const s = [...steps].sort((a, b) => a - b), d = t.frames.drawn.slice(from).sort((a, b) => a - b), r = t.tiles.spent.slice(asked).sort((a, b) => a - b), q = (l, x) => l.length ? l[Math.min(l.length - 1, Math.floor(l.length * x))] : 0;
				done(JSON.stringify({Frames: s.length, P50: q(s, .5), P95: q(s, .95), Max: s[s.length - 1], Draw95: q(d, .95), Answers: r.length, Answer50: q(r, .5), Answer95: q(r, .95)})); return; }
				{ `+m.move+` } requestAnimationFrame(frame); }; requestAnimationFrame(frame); })`, chromedp.EvalAwaitPromise))
		t.Logf("%s: %s", m.name, got)
		p.waitForTiles()
	}
	p.run(chromedp.Evaluate[chromedp.Void](`document.querySelector('.vbody .vrow[data-n]').click()`))
	p.waitUntil(`!document.getElementById('opened').hidden`)
	p.run(chromedp.Evaluate[chromedp.Void](`document.querySelector('#opened .accent').click()`))
	p.waitUntil(`document.querySelector('.lanes').dataset.around`)
	p.waitForTiles()
	p.shotElement("timelines", "live-big-around")
}

// shotElement takes a screenshot of one element of the page.
func (p *tab) shotElement(id, name string) {
	p.t.Helper()
	type box struct{ X, Y, W, H float64 }
	b := evaluate[box](p, `(r => ({X: r.left + scrollX, Y: r.top + scrollY, W: r.width, H: r.height}))(document.getElementById('`+id+`').getBoundingClientRect())`)
	format, beyondViewport := page.CaptureScreenshotFormatPng, true
	shot := runAction(p, chromedp.Action[[]byte](func(ctx context.Context, t *chromedp.Target) ([]byte, error) {
		r, err := cdp.Call(ctx, t, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: format, CaptureBeyondViewport: &beyondViewport, Clip: &page.Viewport{X: b.X, Y: b.Y, Width: b.W, Height: b.H, Scale: 1}})
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

// TestLiveAddress opens the address of a view and gets the same view, closes the detail box with Esc, and disables the page's
// keys while a dialog is open.
func TestLiveAddress(t *testing.T) {
	browser := chromium(t)
	rep, trace, url := serveTrace(t, testprog.Trace(t, "http1-long"), "http1.trace")
	p := visitServer(t, browser, url, "", 1000, false)
	defer p.close()
	g := rep.Groups[0]
	p.run(chromedp.Evaluate[chromedp.Void](`(e => { e.value = '` + g.ID + `'; e.dispatchEvent(new Event('change')); })(document.querySelector('[data-filter=group]'))`))
	p.run(chromedp.Evaluate[chromedp.Void](`document.querySelector('[data-sort=goroutine]').click()`))
	p.run(chromedp.Evaluate[chromedp.Void](`document.querySelector('.lanes').focus()`))
	p.press("w", "w", "d", arrowDown, "\r")
	p.waitUntil(`document.querySelector('.moment').textContent.length > 0`)
	p.waitUntil(`['all.group=', 'all.sort=', 'lanes.time=', 'lanes.at='].every(k => location.hash.includes(k))`)
	if !evaluate[bool](p, `((b, l) => b.top >= l.top && b.bottom <= l.bottom && b.left >= l.left && b.right <= l.right)(document.querySelector('.moment').getBoundingClientRect(), document.querySelector('.lanes').getBoundingClientRect())`) {
		t.Error("the detail box of a piece is outside the lanes")
	}
	p.waitForTiles()
	p.screenshot("live-told-1000")
	hash, window := evaluate[string](p, `location.hash`), p.visibleTime()

	linked := visitServer(t, browser, url, hash, 1000, false)
	defer linked.close()
	linked.waitUntil(`document.querySelector('.moment').textContent.length > 0`)
	check.True(t, evaluate[bool](linked, `(r => r.top >= 0 && r.top < innerHeight / 2)(document.getElementById('timelines').getBoundingClientRect())`),
		"a link to the timelines opens elsewhere")
	if got := linked.visibleTime(); got.To-window.To > 1 || window.From-got.From > 1 || got.From-window.From > 1 {
		t.Errorf("the link shows %v, want %v", got, window)
	}
	check.Equal(t, evaluate[string](linked, `document.querySelector('[data-filter=group]').value`), g.ID, "the link filters by group")
	if got := evaluate[string](linked, `document.querySelector('[aria-sort=ascending], [aria-sort=descending]').textContent`); !strings.HasPrefix(got, "Goroutine") {
		t.Errorf("the link sorts by %q", got)
	}
	linked.press("?")
	before := evaluate[float64](linked, `scrollY`)
	linked.press("a", "l")
	if got := evaluate[float64](linked, `scrollY`); got != before {
		t.Error("keys act behind the dialog")
	}
	linked.press("\u001b")
	linked.waitUntil(`!document.getElementById('help').open`)
	linked.run(chromedp.Evaluate[chromedp.Void](`document.querySelector('.moment .close').focus()`))
	linked.press("\u001b")
	linked.waitUntil(`document.querySelector('.moment').textContent === ''`)
	linked.waitUntil(`!location.hash.includes('lanes.at=')`)

	row := trace.Row(0)
	unknownFinding := visitServer(t, browser, url, "#open="+row.ID+"&finding=nosuch", 390, false)
	defer unknownFinding.close()
	unknownFinding.waitUntil(`document.getElementById('opened').dataset.request === '` + row.ID + `'`)
	unknownFinding.waitUntil(`document.getElementById('unknown').textContent.includes('finding=nosuch')`)
}

// TestLiveLists goes from pictures to lists of requests: the list of a bar of the distribution, or of a band, has as many
// requests as the picture says.
func TestLiveLists(t *testing.T) {
	browser := chromium(t)
	_, _, url := serveTrace(t, testprog.Trace(t, "http1-long"), "http1.trace")
	p := visitServer(t, browser, url, "", 1440, false)
	defer p.close()
	if !evaluate[bool](p, `((lanes, answer) => lanes.top < innerHeight / 3 && Math.abs(answer.top - lanes.top) < 2 && answer.left >= lanes.right)(document.getElementById('timelines').getBoundingClientRect(), document.getElementById('verdict').getBoundingClientRect())`) {
		t.Error("the page does not open on the timelines with the answer beside them")
	}
	checkListed := func(name, click string, want int) {
		t.Helper()
		p.run(chromedp.Evaluate[chromedp.Void]("document.querySelector('#all .filters').reset()"))
		p.run(chromedp.Evaluate[chromedp.Void](click))
		p.waitUntil("!document.querySelector('.vbody').hasAttribute('aria-busy') && location.hash.includes('all.group=')")
		if got := evaluate[int](p, "Number(document.querySelector('.vtable').getAttribute('aria-rowcount'))"); got != want {
			t.Errorf("%s: %d requests are listed, want %d", name, got, want)
		}
	}
	bar := "[...document.querySelectorAll('.bucket')].sort((a, b) => b.dataset.count - a.dataset.count)[0]"
	checkListed("the highest bar", bar+".dispatchEvent(new MouseEvent('click', { bubbles: true }))", evaluate[int](p, "Number("+bar+".dataset.count)"))
	for i := range evaluate[int](p, "document.querySelectorAll('[data-band]').length") {
		band := fmt.Sprintf("document.querySelectorAll('[data-band]')[%d]", i)
		p.run(chromedp.Evaluate[chromedp.Void](band + ".click()"))
		n := evaluate[string](p, fmt.Sprintf("document.querySelectorAll('[data-band]')[%d].textContent.replaceAll(',', '').match(/ (\\d+) request/)[1]", i))
		var want int
		fmt.Sscan(n, &want)
		checkListed("band "+n, "document.querySelector('#bandcauses > p .listing').click()", want)
	}
	p.run(chromedp.Evaluate[chromedp.Void]("document.querySelector('#bandcauses td .listing').click()"))
	p.waitUntil("location.hash.includes('all.cause=') && !document.querySelector('.vbody').hasAttribute('aria-busy') && Number(document.querySelector('.vtable').getAttribute('aria-rowcount')) > 0")
	p.shotElement("all", "live-led-1440")
}

// TestLiveReading opens a page before its trace is read: it shows the progress, then the view of its address. It shows an
// error, and allows another recording.
func TestLiveReading(t *testing.T) {
	browser := chromium(t)
	data := testprog.Trace(t, "http1-long")
	x := inspect.NewIndex(inspect.Limits{})
	recordings := make(chan struct{}, 1)
	s := must.Have(view.New(view.Options{ReadAgain: func(string) { recordings <- struct{}{} }}))(t)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	rep := must.Have(explain.Explain(context.Background(), bytes.NewReader(data), explain.Options{Name: "http1.trace", Index: x}))(t)
	trace := must.Have(inspect.Open(x, bytes.NewReader(data), int64(len(data))))(t)
	g := rep.Groups[0]
	p := loadPage(t, browser, server.URL+"/#all.group="+g.ID, ".reading", func(url string) bool { return strings.HasPrefix(url, server.URL+"/") }, 390, false)
	defer p.close()
	s.SetProgress("http1.trace", "35% of 84.0 MB", 0.35)
	p.waitUntil(`document.getElementById('text').textContent === '35% of 84.0 MB' && document.getElementById('share').value === 0.35`)
	p.screenshot("live-reading-390")
	must.Do(t, s.Show(trace, rep))
	p.waitAcrossPages(`document.documentElement.dataset.live === 'ready' && document.querySelector('[data-filter=group]').value === '` + g.ID + `'`)
	p.waitForTiles()

	p.run(chromedp.Evaluate[chromedp.Void](`document.getElementById('again').click()`))
	<-recordings
	p.waitAcrossPages(`document.querySelector('.reading')`)
	s.Fail(fmt.Errorf("the service is gone"))
	p.waitUntil(`document.getElementById('problem').textContent === 'the service is gone' && !document.getElementById('back').hidden`)
	p.screenshot("live-failed-390")
	p.run(chromedp.Evaluate[chromedp.Void](`document.querySelector('#back button').click()`))
	p.waitAcrossPages(`document.documentElement.dataset.live === 'ready'`)
	p.waitForTiles()
	server.CloseClientConnections()
}
