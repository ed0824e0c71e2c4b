package browser

import (
	"bytes"
	"fmt"
	"io"
	"net/url"
	"testing"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// TestKernelPictures: with the kernel's events the waterfall draws each thread's state, each CPU and each arrival of the report,
// to a pixel, in visible colours, and the live page has lanes of CPUs and of threads.
func TestKernelPictures(t *testing.T) {
	browser := chromium(t)
	b, err := bundle.Open(testprog.Recording(t, "cases/kernel-mmap.whylate"))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	r, _, err := b.Trace()
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	events, err := b.KernelEvents()
	if err != nil {
		t.Fatal(err)
	}
	rep, _, origin := serveRecording(t, data, bytes.NewReader(events), "kernel.whylate")
	want := map[report.ThreadState]bool{}
	var q *report.Request
	for i := range rep.Groups {
		for k := range rep.Groups[i].Slowest {
			for _, l := range rep.Groups[i].Slowest[k].Lanes {
				for _, x := range l.Threads {
					want[x.State] = true
				}
			}
			if r := &rep.Groups[i].Slowest[k]; len(r.CPUs) > 0 {
				q = r
			}
		}
	}
	if q == nil || !want[report.ThreadDisk] || !want[report.ThreadCPUWait] {
		t.Fatalf("a recording with states %v", want)
	}
	for _, width := range []int{1280, 400} {
		p := open(t, browser, rep, width, width == 400, "#req="+url.QueryEscape(q.ID))
		if got := evaluate[int](p, `document.querySelectorAll('#requests figure .thread').length`); got == 0 {
			t.Errorf("%d wide: no states of threads", width)
		}
		if got := evaluate[int](p, `document.querySelectorAll('#requests figure .cpu-own, #requests figure .cpu-other').length`); got == 0 {
			t.Errorf("%d wide: nothing has a CPU", width)
		}
		// A thread's state begins and ends where its bar does.
		if got := evaluate[string](p, `(() => {
			const picture = document.querySelector('#requests figure .waterfall svg'), left = innerWidth < 700 ? 0 : 196;
			return [...picture.querySelectorAll('.thread')].some(el => Number(el.getAttribute('x')) < left - 3) ? 'before the picture' : '';
		})()`); got != "" {
			t.Errorf("%d wide: a bar is %s", width, got)
		}
		for _, state := range []string{"cpu-wait", "disk"} {
			if got := evaluate[string](p, fmt.Sprintf(`getComputedStyle(document.querySelector('#pt-%s rect')).fill`, state)); got == "rgb(0, 0, 0)" {
				t.Errorf("the pattern of %s is black", state)
			}
		}
		p.shotElement("requests", fmt.Sprint("kernel-waterfall-", width))
		p.close()
	}
	p := visitServer(t, browser, origin, fmt.Sprintf("#lanes.time=%d-%d&lanes.first=%d", q.StartNS, q.StartNS+q.LatencyNS, q.Goroutine), 1280, false)
	defer p.close()
	key := fmt.Sprint("t", q.Goroutine)
	p.waitUntil(`[...` + lanes + `.tiles.known].some(([k, tile]) => k.endsWith(' ` + key + `') && tile.pieces && tile.pieces.some(x => x.g === 2))`)
	p.waitUntil(`[...` + lanes + `.tiles.known].some(([k, tile]) => / c\d+$/.test(k) && tile.pieces && tile.pieces.length > 0)`)
	p.shotElement("timelines", "kernel-lanes")
}
