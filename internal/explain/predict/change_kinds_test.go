package predict

import (
	"math"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestChangesAsData: what a change is as data, and that --what-if accepts its text as the same change.
func TestChangesAsData(t *testing.T) {
	for _, c := range []struct {
		change Change
		kind   report.ChangeKind
		value  float64
		text   string
	}{
		{Slots("main.go:71", 5), report.ChangeSlots, 5, "slots@main.go:71=5"},
		{Unlock("main.(*Shop).charge:95"), report.ChangeUnlock, 0, "unlock@main.(*Shop).charge:95"},
		{Calls("main.fetch:12 from main.all:8", 1), report.ChangeCalls, 1, "calls@main.fetch:12 from main.all:8=1"},
		{Parallel("main.fetch"), report.ChangeParallel, 0, "parallel@main.fetch"},
		{Reuse("main.fetch"), report.ChangeReuse, 0, "reuse@main.fetch"},
		{Remove(report.CauseSleep, "main.poll:3"), report.ChangeTime, 0, "sleep@main.poll:3=gone"},
		{Change{Cause: report.CauseNetwork, Site: "main.ask", To: 5 * time.Millisecond}, report.ChangeTime, 5e6, "network@main.ask=5ms"},
		{Halve(report.CauseCPU, "main.work"), report.ChangeShare, 0.5, "cpu@main.work=50%"},
		{Remove(Queue, ""), report.ChangeTime, 0, "queue@=gone"},
		{Set(GOGC, 400), report.ChangeGOGC, 400, "GOGC=400"},
		{Set(GOGC, math.Inf(1)), report.ChangeGOGC, -1, "GOGC=off"},
		{Set(GOMEMLIMIT, 900<<20), report.ChangeGOMEMLIMIT, 900 << 20, "GOMEMLIMIT=900MiB"},
		{Set(GOMAXPROCS, 2), report.ChangeGOMAXPROCS, 2, "GOMAXPROCS=2"},
		{Set(Quota, 1.5), report.ChangeQuota, 1.5, "quota=1.5"},
	} {
		data := c.change.Data()
		if want := (report.Change{Kind: c.kind, Cause: c.change.Cause, Site: c.change.Site, Value: c.value, Text: c.text}); data != want {
			t.Errorf("%+v, want %+v", data, want)
		}
		check.Equal(t, ChangeOf(&data), c.change, "%+v of the report", data)
		if parsed, err := Parse(data.Text); err != nil || parsed != c.change {
			t.Errorf("%s is read as %+v, %v", data.Text, parsed, err)
		}
	}
	for _, text := range []string{"slots@main.go:71", "slots@main.go:71=0", "slots@=3", "slots@main.go:71=1.5", "unlock@", "unlock@main.go:1=gone", "calls@x=gone", "parallel@x=2"} {
		if c, err := Parse(text); err == nil {
			t.Errorf("%s is read as %+v", text, c)
		}
	}
}

// TestSlotsEffect: more slots make random arrivals wait seldom, and clients without rest wait as the rest of them does.
func TestSlotsEffect(t *testing.T) {
	load := erlangLoad(2, 1.5)
	if got := load * erlangWait(2, load); math.Abs(got-1.5) > 1e-6 {
		t.Errorf("the queue of load %f is %f", load, got)
	}
	e := &slotsEffect{slots: 2, newSlots: 4, chance: 0.2, length: 0.3, holdNS: 10e6}
	if got := e.newWaitNS(100e6, est); math.Abs(got-30e6) > 1 { // random arrivals
		t.Errorf("%f", got)
	}
	if got := e.newWaitNS(100e6, high); math.Abs(got-(100e6*2-2*10e6)/4) > 1 { // 20 requests ahead, 18 with 4 slots
		t.Errorf("%f", got)
	}
	e.regularity = 1
	if got := e.newWaitNS(100e6, est); got != e.newWaitNS(100e6, high) || e.chances()[est] != 1 {
		t.Errorf("%f, %v", got, e.chances())
	}
	e.ownNS = 20e6 // a worker's wait contains the service
	if got := e.newWaitNS(20e6, low); got != 20e6 {
		t.Errorf("%f", got)
	}
}

// TestShareOfPs: work that no longer waits for a lock competes for Ps with the request's own.
func TestShareOfPs(t *testing.T) {
	for _, c := range []struct{ procs, ownNS, otherNS, want float64 }{
		{2, 4, 12, (16./2 - 4) / 12}, // four goroutines on two Ps take twice as long as alone
		{8, 4, 12, 0},                // a P for each
		{2, 0, 12, 0},                // the request itself computes nothing
		{0, 4, 12, 0},                // it is not known how many Ps there are
	} {
		change := trialChange{Change: Unlock("main.work"), procs: c.procs}
		if got := change.shareOfPs(c.ownNS, c.otherNS); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestWithoutPartial: requests that depend on events before the trace are excluded, unless they are the majority.
func TestWithoutPartial(t *testing.T) {
	request := func(weight float64, isPartial bool) retimedRequest {
		return retimedRequest{weightedGraph: &weightedGraph{&Graph{}, weight}, isPartial: isPartial}
	}
	for _, c := range []struct{ complete, partial float64 }{{6, 4}, {4, 6}} {
		remaining := withoutPartial([]retimedRequest{request(c.complete, false), request(c.partial, true)})
		check.Equal(t, len(remaining), 1+int(c.partial/5), "%+v: requests remain", c)
	}
}

// TestQueueThatDisappears: if hardly anything of a service is left, hardly any of few clients queues.
func TestQueueThatDisappears(t *testing.T) {
	q := queue{utilisation: 0.95, regularity: 1}
	q.tabulateClosedWaits(3, 8e6, 1.3e6)
	for _, s := range []float64{1, 0.5, 0.1, 0.01, 0.002} {
		want := closedWait(3, s*8e6, 1.3e6) / closedWait(3, 8e6, 1.3e6)
		check.True(t, math.Abs(q.factor(s, est)-want) < 0.1*want, "service %v: the factor is %v, not %v", s, q.factor(s, est), want)
	}
}

// TestTailRange: of few requests the slowest may be an exception, and slower ones may not have been recorded.
func TestTailRange(t *testing.T) {
	tail := func(requests int, values ...float64) (lowFactor, highFactor float64) {
		s := new(series)
		for range requests - len(values) {
			s.after[est] = append(s.after[est], point{1, 1})
		}
		for _, v := range values {
			s.after[est] = append(s.after[est], point{v, 1})
		}
		return s.tailRange(0.99)
	}
	low, high := tail(60, 10, 10)
	check.True(t, low == 0.1 && high > 1.3 && high < 2, "two of 60: %v to %v", low, high)
	low, _ = tail(60, 10, 10, 10, 10)
	check.True(t, low == 1, "four of 60: %v", low)
	low, high = tail(20000)
	check.True(t, low == 1 && high == 1, "all equal: %v to %v", low, high)
}
