package browser

import (
	"net/url"
	"testing"

	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
)

// TestPoolPictures: the waterfall of a request that queued for a pool of two slots shows who held each, as the report has it, on the page
// and in the live view; on a phone, cause and remedy are on the first screen.
func TestPoolPictures(t *testing.T) {
	browser := chromium(t)
	rep, _, origin := serveTrace(t, testprog.Service(t, "connection-pool").Trace, "pool.trace")
	q := &rep.Groups[0].Slowest[0]
	must.True(t, len(q.Pools) == 1 && len(q.Pools[0].Slots) == 2, "pools %+v", q.Pools)
	for _, width := range []int{1280, 400} {
		p := open(t, browser, rep, width, width == 400, "#req="+url.QueryEscape(q.ID))
		// Each bar is as long, in its lane of the picture, as the hold is in the report.
		holds := q.Pools[0].Slots[0]
		got := evaluate[[]float64](p, `[...document.querySelectorAll('#requests figure .hold')].map(el => Number(el.getAttribute('width')))`)
		if n := len(holds) + len(q.Pools[0].Slots[1]); len(got) != n {
			t.Errorf("%d wide: %d bars, want %d", width, len(got), n)
		}
		left := 196.0
		if width < 700 {
			left = 0
		}
		inner := evaluate[float64](p, `document.querySelector('#requests figure .waterfall svg').width.baseVal.value`) - left - 2
		for i, hold := range holds {
			if want := float64(hold.DurationNS) / float64(q.LatencyNS) * inner; i < len(got) && (got[i] < want-1 || got[i] > want+1) {
				t.Errorf("%d wide: a hold of %d ns is %.1f pixels, want %.1f", width, hold.DurationNS, got[i], want)
			}
		}
		p.shotElement("requests", "pools-"+map[int]string{1280: "wide", 400: "phone"}[width])
		p.close()
	}
	p := open(t, browser, rep, 390, false, "")
	if bottom := evaluate[float64](p, `document.querySelector('#outcome .remedy').getBoundingClientRect().bottom`); bottom <= 0 || bottom > 844 {
		t.Errorf("what to do ends %.0f pixels below the top of a phone's screen of 844", bottom)
	}
	p.close()
	live := visitServer(t, browser, origin, "#open="+url.QueryEscape(q.ID), 1440, false)
	defer live.close()
	live.waitUntil(`document.querySelectorAll('#opened .hold').length > 4`)
	live.shotElement("opened", "pools-live")
}
