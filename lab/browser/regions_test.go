package browser

import (
	"fmt"
	"testing"

	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/internal/viewer/inspect"
)

// TestLiveRegions shows regions and log messages of runtime/trace on lanes, for an interval and for a request.
func TestLiveRegions(t *testing.T) {
	browser := chromium(t)
	_, trace, url := serveTrace(t, testprog.Trace(t, "tasks"), "tasks.trace")
	page := must.Have(trace.Requests(t.Context(), inspect.Query{Sort: "latency", Descending: true, Limit: 1000}))(t)
	// A request of which the program wrote something on its own goroutine.
	for _, row := range page.Rows {
		marks, _ := trace.AnnotationsIn(row.StartNS, row.StartNS+row.LatencyNS, 0, []uint64{row.Goroutine}, 100)
		if len(marks) < 2 || row.LatencyNS > 20e6 {
			continue
		}
		p := visitServer(t, browser, url, fmt.Sprintf("#open=%s&lanes.first=%d&lanes.time=%d-%d&lanes.at=g%d@%d", row.ID, row.Goroutine, row.StartNS, row.StartNS+row.LatencyNS, row.Goroutine, row.StartNS+row.LatencyNS/2), 1440, false)
		defer p.close()
		p.waitUntil(`Number(document.querySelector('.lanes').dataset.marks) > 0`)
		p.waitUntil(`document.querySelectorAll('#opened .marks tbody tr').length > 1`)
		if got := evaluate[bool](p, fmt.Sprintf(`[...document.querySelectorAll('#opened .marks tbody tr')].some(e => e.dataset.mark === %q)`, marks[0].Name)); !got {
			t.Errorf("the request does not show %+v", marks[0])
		}
		p.waitForTiles()
		p.shotElement("timelines", "live-regions-1440")
		p.shotElement("opened", "live-regions-request-1440")
		return
	}
	t.Error("no request has regions")
}
