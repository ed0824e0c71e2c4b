package browser

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
)

// drag presses the pointer at one point of the lanes with Shift held and releases it at another.
func (p *tab) drag(x1, y1, x2, y2 int) {
	p.t.Helper()
	p.run(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`(() => { const box = document.querySelector('.lanes'), r = box.querySelector('canvas').getBoundingClientRect();
		const at = (type, x, y, to) => to.dispatchEvent(new PointerEvent(type, { clientX: r.left + x, clientY: r.top + y, button: 0, buttons: type === 'pointerup' ? 0 : 1, shiftKey: true, bubbles: true }));
		at('pointerdown', %d, %d, box); at('pointermove', %d, %d, window); at('pointerup', %d, %d, window); })()`, x1, y1, x2, y2, x2, y2)))
}

// selectedArea returns the time in ns of each state in the selected area.
func (p *tab) selectedArea() map[string]int64 {
	p.t.Helper()
	p.waitUntil(`document.querySelector('.moment .sums')`)
	return evaluate[map[string]int64](p, `(sums => { for (const r of document.querySelectorAll('.moment [data-state]')) sums[r.dataset.state] = (sums[r.dataset.state] || 0) + Number(r.dataset.ns); return sums; })({})`)
}

// TestLiveFunctions finds the goroutines of a function, sums an area of their lanes by pointer and by keyboard, copies the
// sum, and opens a link to the same area.
func TestLiveFunctions(t *testing.T) {
	browser := chromium(t)
	_, trace, url := serveTrace(t, testprog.Trace(t, "http1-long"), "http1.trace")
	p := visitServer(t, browser, url, "", 1440, false)
	defer p.close()
	ctx := context.Background()
	p.run(chromedp.Evaluate[chromedp.Void](`document.getElementById('functions').scrollIntoView()`))
	p.waitUntil(`document.querySelectorAll('.functions [data-function]').length > 0`)
	sums, err := trace.ByFunction(ctx, 0, trace.Facts().DurationNS+1)
	must.Do(t, err)
	if got := evaluate[int](p, `document.querySelectorAll('.functions [data-function]').length`); got != len(sums) {
		t.Errorf("%d functions are shown, the trace has %d", got, len(sums))
	}
	// By keyboard: focus the table, sort by number of goroutines, open the first function.
	p.press("u")
	p.run(chromedp.Evaluate[chromedp.Void](`document.querySelector('[data-by=goroutines]').focus()`))
	p.press("\r")
	largest := sums[0]
	for _, f := range sums {
		if f.Goroutines > largest.Goroutines {
			largest = f
		}
	}
	p.waitUntil(`document.querySelector('.functions [data-function]').dataset.function === ` + strconv.Quote(largest.Name))
	p.run(chromedp.Evaluate[chromedp.Void](`document.querySelector('.functions tbody button').focus()`))
	p.press("\r")
	p.waitUntil(`document.querySelectorAll('.members [data-lane]').length > 0`)
	p.shotElement("functions", "live-functions-1440")
	p.run(chromedp.Evaluate[chromedp.Void](`[...document.querySelectorAll('.inside button')].find(b => b.textContent.startsWith('Show them')).click()`))
	p.waitUntil(fmt.Sprintf(`%s.total === %d`, lanes, largest.Goroutines))
	p.waitForTiles()

	checkArea := func(name string) {
		t.Helper()
		a := evaluate[struct {
			From, To int64
			Lanes    []string
		}](p, `(a => ({ From: a.from, To: a.to, Lanes: a.lanes }))(`+lanes+`.area)`)
		var ids []uint64
		for _, l := range a.Lanes {
			id, err := strconv.ParseUint(strings.TrimPrefix(l, "g"), 10, 64)
			must.True(t, err == nil, "%s: lane %q", name, l)
			ids = append(ids, id)
		}
		want := map[string]int64{}
		list, err := trace.Area(ctx, a.From, a.To, ids)
		if err != nil || len(ids) == 0 {
			t.Fatal(name, ids, err)
		}
		for _, s := range list {
			want[s.State] += s.NS
		}
		if got := p.selectedArea(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s shows %v, the trace has %v", name, got, want)
		}
	}
	p.run(chromedp.Evaluate[chromedp.Void](lanes + `.only('net/http.(*conn).serve')`))
	p.waitUntil(lanes + `.total > 0 && ` + lanes + `.total < 100`)
	p.waitForTiles()
	p.drag(400, 130, 700, 230)
	checkArea("an area by pointer")
	p.settle()
	p.run(chromedp.Evaluate[chromedp.Void](`document.querySelector('[data-area=flame]').click()`))
	p.waitUntil(`document.querySelectorAll('.areaflame .box').length > 3`)
	// The boxes of the second row are the states of the area.
	states := evaluate[float64](p, `[...document.querySelectorAll('.areaflame .box')].filter(b => b.firstChild.y.baseVal.value > 20 && b.firstChild.y.baseVal.value < 40).reduce((ns, b) => ns + Number(b.dataset.ns), 0)`)
	selected := 0.
	for _, ns := range p.selectedArea() {
		selected += float64(ns)
	}
	check.True(t, states >= 0.95*selected && states <= selected, "the flame graph's states have %v ns, the area %v", states, selected)
	p.shotElement("timelines", "live-area-1440")
	p.run(chromedp.Evaluate[chromedp.Void](`document.querySelector('[data-copy=text]').click()`))
	p.waitUntil(`/Copied|Select/.test(document.querySelector('[data-copy=text]').textContent)`)
	p.waitUntil(`location.hash.includes('lanes.area=') && location.hash.includes('fn.open=')`)
	hash := evaluate[string](p, `location.hash`)
	p.press("\u001b")
	p.waitUntil(`document.querySelector('.moment').textContent === ''`)
	p.run(chromedp.Evaluate[chromedp.Void](`document.querySelector('.lanes').focus()`))
	p.press("m")
	checkArea("an area by key")

	p.press("\u001b")
	p.run(chromedp.Evaluate[chromedp.Void](`document.getElementById('sumup').click()`))
	checkArea("an area by the button")

	link := visitServer(t, browser, url, hash, 1000, false)
	defer link.close()
	link.run(chromedp.Evaluate[chromedp.Void](`document.getElementById('functions').scrollIntoView()`))
	link.waitUntil(`document.querySelector('.moment .sums') && document.querySelectorAll('.members [data-lane]').length > 0`)
	if got := evaluate[string](link, `document.querySelector('.functions [data-function]').dataset.function`); got != largest.Name {
		t.Errorf("the link shows %q first", got)
	}

	// An area of the Ps shows what ran on them, by function.
	link.drag(300, 92, 600, 100)
	link.waitUntil(`document.querySelector('.moment .sums th[scope=row] button')`)
	n := evaluate[int](link, `document.querySelectorAll('.moment [data-state=running]').length`)
	a := evaluate[[2]int64](link, `[`+lanes+`.area.from, `+lanes+`.area.to]`)
	if byFunction, err := trace.ByFunction(ctx, a[0], a[1]); err != nil || n != min(len(byFunction), 12) {
		t.Errorf("%d functions ran, %d are shown: %v", len(byFunction), n, err)
	}
	link.screenshot("live-area-procs-1000")
}
