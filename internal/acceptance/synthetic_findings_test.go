package acceptance_test

import (
	"math"
	"strings"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

const ms = int64(1_000_000)

// lateHubTrace writes rounds of 40 ms. In each, three tasks send a request to one goroutine that waits for the network. A
// thread without a P notices its message 5 ms later, and the goroutine runs another 10 ms later, because loops occupy both Ps.
func lateHubTrace(t *testing.T, rounds int64) []byte {
	t.Helper()
	b := tracetext.New(26)
	firstThread, secondThread, monitor := b.Thread(), b.Thread(), b.ThreadWithoutP()
	const hub, loops = 50, 60
	for _, g := range []uint64{1, 2, 3, hub, loops, loops + 1} {
		b.Waiting(g)
	}
	waitForNetwork := func(th *tracetext.Thread, start int64) {
		th.Block(start, "network", "internal/poll.runtime_pollWait:1", "main.(*hub).read:20", "main.(*hub).run:15")
	}
	monitor.Unblock(0, hub)
	firstThread.Start(1000, hub)
	waitForNetwork(firstThread, 2000)
	for r := range rounds {
		start := r*40*ms + r*r*7%13*ms + ms // not at a fixed rate
		for g := range uint64(3) {
			task := uint64(r)*3 + g + 1
			monitor.Unblock(start, g+1)
			firstThread.Start(start+1000, g+1)
			firstThread.TaskBegin(start+2000, task, 0, "ask", "main.ask:8", "main.client:5")
			firstThread.Block(start+3000, "chan receive", "runtime.chanrecv1:1", "main.ask:10", "main.client:5")
			start += 10_000
		}
		for i, th := range []*tracetext.Thread{firstThread, secondThread} {
			monitor.Unblock(start, loops+uint64(i))
			th.Start(start+1000, loops+uint64(i))
		}
		for i := range int64(38) { // the other loop yields, so that the process is never silent
			secondThread.Stop(start+(i+1)*ms/2, "runtime.Gosched", "runtime.Gosched:1", "main.loop:31")
			secondThread.Start(start+(i+1)*ms/2+100, loops+1)
		}
		monitor.Unblock(start+5*ms, hub)
		firstThread.Stop(start+15*ms-1000, "preempted", "main.crunch:33", "main.loop:30")
		firstThread.Start(start+15*ms, hub)
		for g := range uint64(3) {
			firstThread.Unblock(start+15*ms+1000*int64(g+1), g+1, "runtime.send:1", "main.(*hub).answer:25", "main.(*hub).run:16")
		}
		waitForNetwork(firstThread, start+15*ms+5000)
		for g := range uint64(3) {
			from := start + 15*ms + 10_000*int64(g+1)
			firstThread.Start(from, g+1)
			firstThread.TaskEnd(from+1000, uint64(r)*3+g+1, "main.ask:12", "main.client:5")
			firstThread.Block(from+2000, "sleep", "time.Sleep:1", "main.client:6")
		}
		firstThread.Start(start+16*ms, loops)
		firstThread.Block(start+20*ms, "sleep", "time.Sleep:1", "main.loop:31")
		secondThread.Block(start+20*ms, "sleep", "time.Sleep:1", "main.loop:31")
	}
	return must.Have(b.Bytes())(t)
}

func TestLateHub(t *testing.T) {
	rep := explainBytes(t, lateHubTrace(t, 20), whylate.Options{})
	f := findingOf(rep, "WL1001")
	must.True(t, f != nil && rep.Findings[0].Code == "WL1001", "the first finding is not the hub: %+v", rep.Findings)
	if f.Severity != report.SeverityHigh || f.Site == nil || f.Site.Func != "main.(*hub).read" || f.Site.Line != 20 || !strings.Contains(f.Title, "main.(*hub).run") {
		t.Errorf("%+v at %+v", f, f.Site)
	}
	// Of about 15 ms each, the hub was ready for 10 ms; before that, no P polled the network.
	check.True(t, f.Share >= 0.95, "its share is %.3f", f.Share)
	for text, want := range map[string]float64{
		"requests held up by each late run": 3,
		"late runs":                         20,
		"meanwhile ran main.crunch":         0.5,
		"meanwhile ran main.loop":           0.5,
		"part of that, at most, in which the message lay unread because no P polled the network": float64(5*ms) * 19 / 20, // polls before the first message are unknown
		"mean delay from when the message was readable until the goroutine ran":                  float64(10*ms) + float64(5*ms)*19/20,
	} {
		if got := evidenceOf(f, text); math.Abs(got-want) > 0.01*want {
			t.Errorf("%s: %g, want %g", text, got, want)
		}
	}
	check.True(t, findingOf(rep, "WL1002") == nil, "the requests that wait behind the hub have a second finding")
}

// TestPsTaken: a task yields once and waits until the goroutines that occupy both Ps let it run.
func TestPsTaken(t *testing.T) {
	const rounds = 30
	slice := int64(0)
	runLoop := func(th *tracetext.Thread, g uint64, from, to int64) {
		for sliceStart := from; sliceStart < to; sliceStart += slice {
			th.Start(sliceStart+100, g)
			th.Stop(min(sliceStart+slice, to)-100, "preempted", "main.crunch:33", "main.loop:30")
		}
	}
	runTimerHerd := func(th *tracetext.Thread, first uint64, from, to int64) {
		for sliceStart := from; sliceStart+100_000 < to; sliceStart += 100_000 {
			th.Start(sliceStart+100, first)
			th.Block(sliceStart+99_000, "sleep", "time.Sleep:1", "main.tick:41", "main.ticker:40")
			first++
		}
	}
	for _, c := range []struct {
		code, site string
		period     int64 // of the rounds; after 24 ms the Ps are idle
		slice      int64 // of the loops; 0 for a herd
	}{
		{"WL1002", "main.crunch", 24 * ms, ms / 2},
		{"WL1007", "main.crunch", 100 * ms, 12 * ms},
		{"WL1004", "main.tick", 100 * ms, 0},
	} {
		slice = c.slice
		b := tracetext.New(26)
		firstThread, secondThread, monitor := b.Thread(), b.Thread(), b.ThreadWithoutP()
		const task, loops, tickers = 1, 10, 1000
		b.Waiting(task)
		b.Runnable(loops)
		b.Runnable(loops + 1)
		for i := range uint64(480) {
			b.Waiting(tickers + i)
		}
		for r := range int64(rounds) {
			start := r * c.period
			if c.period > 24*ms {
				start += r * r * 7 % 13 * ms // not at a fixed rate
			}
			if c.period > 24*ms && r > 0 {
				firstThread.ProcStart(start, 0)
				secondThread.ProcStart(start, 1)
			}
			monitor.Unblock(start, task)
			firstThread.Start(start+1000, task)
			firstThread.TaskBegin(start+2000, uint64(r)+1, 0, "compute", "main.compute:8", "main.client:5")
			firstThread.Stop(start+3000, "runtime.Gosched", "runtime.Gosched:1", "main.compute:9", "main.client:5")
			if slice == 0 {
				for i := range uint64(238) { // the number that will run
					monitor.Unblock(start+3100+2*int64(i), tickers+i)
					monitor.Unblock(start+3101+2*int64(i), tickers+240+i)
				}
				runTimerHerd(firstThread, tickers, start+5000, start+12*ms)
				runTimerHerd(secondThread, tickers+240, start+5000, start+5000+238*100_000+50_000)
			} else {
				runLoop(firstThread, loops, start+5000, start+12*ms)
				runLoop(secondThread, loops+1, start+5000, start+24*ms)
			}
			firstThread.Start(start+12*ms, task)
			firstThread.TaskEnd(start+12*ms+1000, uint64(r)+1, "main.compute:10", "main.client:5")
			firstThread.Block(start+12*ms+2000, "sleep", "time.Sleep:1", "main.client:6")
			if slice == 0 {
				runTimerHerd(firstThread, tickers+119, start+12*ms+3000, start+24*ms)
			} else {
				runLoop(firstThread, loops, start+12*ms+3000, start+24*ms)
			}
			if c.period > 24*ms {
				firstThread.ProcStop(start + 24*ms + 1000)
				secondThread.ProcStop(start + 24*ms + 1000)
			}
		}
		data, err := b.Bytes()
		must.Do(t, err, c.code)
		rep := explainBytes(t, data, whylate.Options{})
		if len(rep.Findings) == 0 {
			t.Errorf("%s: no findings", c.code)
			continue
		}
		f := &rep.Findings[0]
		check.True(t, string(f.Code) == c.code && f.Severity == report.SeverityHigh && f.Site != nil && f.Site.Func == c.site && f.Share >= 0.97,
			"%s at %s is %s", c.code, c.site, describeFinding(f))
		if len(rep.Findings) > 1 && rep.Findings[1].Severity != report.SeverityInfo {
			t.Errorf("%s: also %s", c.code, describeFinding(&rep.Findings[1]))
		}
	}
}

func findingOf(rep *report.Report, code string) *report.Finding {
	for i := range rep.Findings {
		if string(rep.Findings[i].Code) == code {
			return &rep.Findings[i]
		}
	}
	return nil
}

func evidenceOf(f *report.Finding, text string) float64 {
	for _, e := range f.Evidence {
		if e.Text == text {
			return e.Value
		}
	}
	return math.NaN()
}

// TestPoolWaitIsTheDatabase: requests wait for a connection of a pool of two, which goes to any waiter. They wait for the
// database that the holders call, which by the service's own clock has all but a few percent of the time; nothing of it is a
// wait for a client.
func TestPoolWaitIsTheDatabase(t *testing.T) {
	rep := explainService(t, "connection-pool")
	for _, b := range rep.Groups[0].Bands {
		for _, c := range b.Causes {
			if c.Cause == report.CauseNetwork && c.Kind == "inbound" && c.Share > 0.001 {
				t.Errorf("%.1f %% of %s is waiting for the client at %s", 100*c.Share, b.Band, c.Site.Func)
			}
		}
	}
}
