package browser

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/whylate/whylate/internal/testing/testprog"
)

// drag presses the pointer at one place of the lanes with Shift held and lets it go at another.
func (p *tab) drag(x1, y1, x2, y2 int) {
	p.t.Helper()
	p.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`(() => { const box = document.querySelector('.lanes'), r = box.querySelector('canvas').getBoundingClientRect();
		const at = (type, x, y, to) => to.dispatchEvent(new PointerEvent(type, { clientX: r.left + x, clientY: r.top + y, button: 0, buttons: type === 'pointerup' ? 0 : 1, shiftKey: true, bubbles: true }));
		at('pointerdown', %d, %d, box); at('pointermove', %d, %d, window); at('pointerup', %d, %d, window); })()`, x1, y1, x2, y2, x2, y2)))
}

// area reads what a selected area shows: the ns of each state.
func (p *tab) area() map[string]int64 {
	p.t.Helper()
	p.await(`document.querySelector('.moment .sums')`)
	return ask[map[string]int64](p, `(sums => { for (const r of document.querySelectorAll('.moment [data-state]')) sums[r.dataset.state] = (sums[r.dataset.state] || 0) + Number(r.dataset.ns); return sums; })({})`)
}

// TestLiveFunctions finds the goroutines of a function, adds up an area of their lanes by pointer and by keyboard, copies it, and
// follows a link to the same.
func TestLiveFunctions(t *testing.T) {
	browser := chromium(t)
	_, trace, url := serve(t, testprog.Trace(t, "http1-long"), "http1.trace")
	p := visit(t, browser, url, "", 1440, false)
	defer p.close()
	ctx := context.Background()
	p.do(chromedp.Evaluate[chromedp.Void](`document.getElementById('functions').scrollIntoView()`))
	p.await(`document.querySelectorAll('.functions [data-function]').length > 0`)
	sums, err := trace.ByFunction(ctx, 0, trace.Facts().DurationNS+1)
	if err != nil {
		t.Fatal(err)
	}
	if got := ask[int](p, `document.querySelectorAll('.functions [data-function]').length`); got != len(sums) {
		t.Errorf("%d functions are shown, %d are known", got, len(sums))
	}
	// By keyboard: the table, the order by name, and the first function.
	p.press("u")
	p.do(chromedp.Evaluate[chromedp.Void](`document.querySelector('[data-by=goroutines]').focus()`))
	p.press("\r")
	most := sums[0]
	for _, f := range sums {
		if f.Goroutines > most.Goroutines {
			most = f
		}
	}
	p.await(`document.querySelector('.functions [data-function]').dataset.function === ` + strconv.Quote(most.Name))
	p.do(chromedp.Evaluate[chromedp.Void](`document.querySelector('.functions tbody button').focus()`))
	p.press("\r")
	p.await(`document.querySelectorAll('.members [data-lane]').length > 0`)
	p.element("functions", "live-functions-1440")
	p.do(chromedp.Evaluate[chromedp.Void](`[...document.querySelectorAll('.inside button')].find(b => b.textContent.startsWith('Show them')).click()`))
	p.await(fmt.Sprintf(`%s.total === %d`, lanes, most.Goroutines))
	p.quiet()

	same := func(name string) {
		t.Helper()
		a := ask[struct {
			From, To int64
			Lanes    []string
		}](p, `(a => ({ From: a.from, To: a.to, Lanes: a.lanes }))(`+lanes+`.area)`)
		var ids []uint64
		for _, l := range a.Lanes {
			id, err := strconv.ParseUint(strings.TrimPrefix(l, "g"), 10, 64)
			if err != nil {
				t.Fatalf("%s: lane %q", name, l)
			}
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
		if got := p.area(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s shows %v, the trace has %v", name, got, want)
		}
	}
	p.do(chromedp.Evaluate[chromedp.Void](lanes + `.only('net/http.(*conn).serve')`))
	p.await(lanes + `.total > 0 && ` + lanes + `.total < 100`)
	p.quiet()
	p.drag(400, 130, 700, 230)
	same("an area by pointer")
	p.settle()
	p.element("timelines", "live-area-1440")
	p.do(chromedp.Evaluate[chromedp.Void](`document.querySelector('[data-copy=text]').click()`))
	p.await(`/Copied|Select/.test(document.querySelector('[data-copy=text]').textContent)`)
	p.await(`location.hash.includes('lanes.area=') && location.hash.includes('fn.open=')`)
	hash := ask[string](p, `location.hash`)
	p.press("\u001b")
	p.await(`document.querySelector('.moment').textContent === ''`)
	p.do(chromedp.Evaluate[chromedp.Void](`document.querySelector('.lanes').focus()`))
	p.press("m")
	same("an area by key")

	p.press("\u001b")
	p.do(chromedp.Evaluate[chromedp.Void](`document.getElementById('sumup').click()`))
	same("an area by the button")

	link := visit(t, browser, url, hash, 1000, false)
	defer link.close()
	link.do(chromedp.Evaluate[chromedp.Void](`document.getElementById('functions').scrollIntoView()`))
	link.await(`document.querySelector('.moment .sums') && document.querySelectorAll('.members [data-lane]').length > 0`)
	if got := ask[string](link, `document.querySelector('.functions [data-function]').dataset.function`); got != most.Name {
		t.Errorf("the link shows %q first", got)
	}

	// The Ps alone: what ran on them, by function.
	link.drag(300, 92, 600, 100)
	link.await(`document.querySelector('.moment .sums th[scope=row] button')`)
	n := ask[int](link, `document.querySelectorAll('.moment [data-state=running]').length`)
	a := ask[[2]int64](link, `[`+lanes+`.area.from, `+lanes+`.area.to]`)
	if by, err := trace.ByFunction(ctx, a[0], a[1]); err != nil || n != min(len(by), 12) {
		t.Errorf("%d functions ran, %d are shown: %v", len(by), n, err)
	}
	link.shot("live-area-procs-1000")
}
