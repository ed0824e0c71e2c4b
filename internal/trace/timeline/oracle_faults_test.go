package timeline

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// A scenario is a small trace with one event of each kind; each fault below changes one field.
type scenario struct {
	blockAt    int64
	reason     string
	waker      int // thread that runs the waker
	wakeStack  string
	blockLine  string
	logText    string
	gcEnd      int64
	stwKind    string
	heap       uint64
	procs      int
	sampleLine string
	label      string
	region     string
	stopAt     int64
	birthBy    int
	noP        bool
}

func faultlessScenario() scenario {
	return scenario{
		blockAt: 300, reason: "chan receive", waker: 0, wakeStack: "main.send:5", blockLine: "main.recv:9", logText: "hello",
		gcEnd: 900, stwKind: "GC mark termination", heap: 4096, procs: 2, sampleLine: "main.hot:3", label: "GC (idle)", region: "step", stopAt: 1500,
	}
}

func (s scenario) trace(t *testing.T) []byte {
	t.Helper()
	b := tracetext.New(26)
	th := []*tracetext.Thread{b.Thread(), b.Thread(), b.Thread()}
	monitor := b.ThreadWithoutP()
	for i, th := range th {
		th.HasRun(uint64(1 + i))
	}
	b.Waiting(50)
	th[s.birthBy].Create(100, 10, "main.child", "main.parent:7")
	th[2].Block(s.blockAt, s.reason, s.blockLine)
	th[s.waker].Unblock(400, 3, s.wakeStack)
	th[2].Start(500, 3)
	if s.noP {
		monitor.Unblock(550, 50)
	} else {
		th[2].ProcsChange(540, s.procs, "main.procs:1")
		th[2].Stop(541, "preempted", "main.f:1")
		th[2].Unblock(550, 50)
		th[2].Start(560, 3)
	}
	if s.noP {
		th[2].ProcsChange(560, s.procs, "main.procs:1")
	}
	th[0].StopWorld(600, s.stwKind, "runtime.stop:1")
	th[0].StartWorld(700)
	th[0].GCBegin(800, "runtime.gcStart:1")
	th[0].GCEnd(s.gcEnd)
	th[0].HeapAlloc(1000, s.heap)
	th[0].Log(1010, 1, "key", s.logText, "main.log:1")
	th[0].RegionBegin(1020, 1, s.region, "main.region:1")
	th[0].Label(1030, s.label)
	b.Sample(1040, th[0], 1, s.sampleLine)
	th[0].Stop(s.stopAt, "preempted", "main.loop:2")
	th[0].ProcStop(1600)
	return must.Have(b.Bytes())(t)
}

// TestOracleFindsFaults decodes one trace with this package and another, which differs in one field, with the
// reference reader. The comparison must detect each difference: otherwise it proves nothing.
func TestOracleFindsFaults(t *testing.T) {
	compare := func(t *testing.T, us, ref scenario) []string {
		t.Helper()
		stk := newStacks()
		a := accountOfReference(ref.trace(t), stk, 1<<30)
		in := decodeAll(us.trace(t), 2)
		must.True(t, a.err == nil && in.err == nil, "the reference: %v; we: %v", a.err, in.err)
		return differences(accountOfOurs(in, len(in.gens), stk), a, stk)
	}
	if diff := compare(t, faultlessScenario(), faultlessScenario()); diff != nil {
		t.Fatalf("without a fault:\n%s", strings.Join(diff, "\n"))
	}
	faults := map[string]func(*scenario){
		"one tick later":       func(s *scenario) { s.blockAt++ },
		"one tick earlier":     func(s *scenario) { s.blockAt-- },
		"another reason":       func(s *scenario) { s.reason = "chan send" },
		"another waker":        func(s *scenario) { s.waker = 1 },
		"another waker's line": func(s *scenario) { s.wakeStack = "main.send:6" },
		"another line":         func(s *scenario) { s.blockLine = "main.recv:10" },
		"another creator":      func(s *scenario) { s.birthBy = 1 },
		"woken without a P":    func(s *scenario) { s.noP = true },
		"another message":      func(s *scenario) { s.logText = "hallo" },
		"a later end of GC":    func(s *scenario) { s.gcEnd++ },
		"another kind of stop": func(s *scenario) { s.stwKind = "start trace" },
		"another heap size":    func(s *scenario) { s.heap++ },
		"another GOMAXPROCS":   func(s *scenario) { s.procs++ },
		"another sample":       func(s *scenario) { s.sampleLine = "main.hot:4" },
		"another label":        func(s *scenario) { s.label = "GC (dedicated)" },
		"another region":       func(s *scenario) { s.region = "pace" },
		"a P that stops later": func(s *scenario) { s.stopAt-- },
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			s := faultlessScenario()
			fault(&s)
			check.True(t, compare(t, s, faultlessScenario()) != nil, "the difference was not detected")
		})
	}
}

// TestTimeRule checks the rule that relates our times to the reference's.
func TestTimeRule(t *testing.T) {
	for _, tt := range []struct {
		ours, ref, before int64
		equal             bool
	}{
		{100, 100, 50, true},    // not moved
		{101, 100, 50, false},   // we are late
		{99, 100, 50, false},    // we are early
		{100, 101, 100, true},   // moved after the event before
		{40, 101, 100, true},    // moved far
		{101, 101, 100, true},   // need not have been moved
		{102, 101, 100, false},  // would not have been moved so far
		{100, 102, 100, false},  // moved without need
		{100, 100, 1000, false}, // violates the order
	} {
		check.Equal(t, sameTime(tt.ours, change{t: tt.ref, prev: tt.before}), tt.equal,
			"our %d, the reference's %d after %d", tt.ours, tt.ref, tt.before)
	}
	points := func(times ...int64) (list []change) {
		for i := 0; i < len(times); i += 2 {
			list = append(list, change{t: times[i], prev: times[i+1]})
		}
		return list
	}
	check.True(t, samePoints(points(1, 0, 5, 0), points(5, 0, 3, 2)), "points that fit are not matched")
	check.False(t, samePoints(points(1, 0, 5, 0), points(5, 0, 3, 1)), "a point at 1 matches one at 3 that was not moved")
	check.False(t, samePoints(points(4, 0, 5, 0), points(5, 0, 3, 2)), "a point at 4 matches one that was moved to 3")
	check.False(t, samePoints(points(1, 0), points(1, 0, 1, 0)), "a missing point is not detected")
}
