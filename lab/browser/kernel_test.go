package browser

import (
	"bytes"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// TestKernelPictures: with the kernel's events the waterfall draws each thread's state, each CPU and each arrival of the report,
// to a pixel, in visible colours, and the live page has lanes of CPUs and of threads.
func TestKernelPictures(t *testing.T) {
	browser := chromium(t)
	rep, origin := serveKernelRecording(t, "cases/kernel-mmap.whylate")
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
	must.True(t, q != nil && want[report.ThreadDisk] && want[report.ThreadCPUWait], "a recording with states %v", want)
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

// serveKernelRecording serves the live page of a recording with the kernel's events.
func serveKernelRecording(t *testing.T, name string) (rep *report.Report, origin string) {
	t.Helper()
	b := must.Have(bundle.Open(testprog.Recording(t, name)))(t)
	defer b.Close()
	r, _, err := b.Trace()
	must.Do(t, err)
	data := must.Have(io.ReadAll(r))(t)
	events := must.Have(b.KernelEvents())(t)
	rep, _, origin = serveRecording(t, data, bytes.NewReader(events), "kernel.whylate")
	return rep, origin
}

// TestPeerPictures: the lane of a goroutine that waits for a process of this host shows what that did, in the waterfall and in the live page.
func TestPeerPictures(t *testing.T) {
	browser := chromium(t)
	rep, origin := serveKernelRecording(t, "peers/python.whylate")
	q := &rep.Groups[0].Slowest[0]
	lane := &q.Lanes[slices.IndexFunc(q.Lanes, func(l report.Lane) bool { return len(l.Peers) > 0 })]
	p := open(t, browser, rep, 1280, false, "#req="+url.QueryEscape(q.ID))
	drawn := evaluate[[]string](p, `[...document.querySelectorAll('#requests figure [data-peer]')].map(el => el.dataset.peer)`)
	for _, state := range []report.PeerStateName{report.PeerRunning, report.PeerCPUWait, report.PeerTimer, report.PeerLock, report.PeerDisk} {
		check.True(t, slices.Contains(drawn, string(state)), "%s is not drawn: %v", state, drawn)
	}
	if text := evaluate[string](p, `document.querySelector('#requests figure [aria-label="Marks of threads and CPUs"]').textContent`); !strings.Contains(text, "asleep until a timer") {
		t.Errorf("the legend is %q", text)
	}
	p.shotElement("requests", "peer-waterfall")
	p.close()
	p = visitServer(t, browser, origin, fmt.Sprintf("#lanes.time=%d-%d&lanes.first=%d", q.StartNS, q.StartNS+q.LatencyNS, lane.Goroutine), 1280, false)
	defer p.close()
	// The numbers of states are those after the threads'.
	for number, words := range map[int]string{7: "computing", 8: "waiting for a CPU", 11: "waiting for a disk", 12: "waiting for a lock", 13: "asleep until a timer"} {
		p.waitUntil(fmt.Sprintf(`[...%s.tiles.known].some(([k, tile]) => k.endsWith(' t%d') && tile.pieces && tile.pieces.some(x => x.g === %d && x.text.includes(%q)))`, lanes, lane.Goroutine, number, words))
	}
	p.shotElement("timelines", "peer-lanes")
}
