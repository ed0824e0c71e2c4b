package capacity

import (
	"math"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// TestSimulation compares simulated waits with formulas: M/M/1, M/D/1, and M/M/c by Erlang C for c = 3.
func TestSimulation(t *testing.T) {
	exponential := make([]float64, 1000) // quantiles
	for i := range exponential {
		exponential[i] = -1e6 * math.Log(1-(float64(i)+0.5)/1000)
	}
	for _, test := range []struct {
		name    string
		servers float64
		service []float64
		load    float64 // per server, relative to its capacity
		average float64 // in services
	}{
		{"M/M/1", 1, exponential, 0.5, 2},
		{"M/D/1", 1, []float64{1e6}, 0.5, 1.5},
		{"M/M/3", 3, exponential, 2.0 / 3, 1 + 0.4444},
		{"M/D/1 idle", 1, []float64{1e6}, 0.01, 1.005},
	} {
		r := &resource{kind: report.LimitPool, servers: test.servers, factor: 1}
		s := &simulation{load: 1}
		for _, ns := range test.service {
			s.plans = append(s.plans, plan{services: []service{{resource: r, ns: ns}}})
		}
		sum := 0.0
		list := s.simulateLatencies(test.load * test.servers / 1e6)
		for _, ns := range list {
			sum += ns
		}
		if average := sum / float64(len(list)) / 1e6; math.Abs(average/test.average-1) > 0.12 {
			t.Errorf("%s: a request takes %.3g services on average, want %.3g", test.name, average, test.average)
		}
	}
}

// TestReads: a read waits for the write that holds an RWMutex, not for the writes behind it. At 0.8 of the writes' capacity,
// writes take 3 services on average as M/D/1, and reads wait for half a service with a probability of 0.8.
func TestReads(t *testing.T) {
	r := &resource{kind: report.LimitLock, servers: 1, factor: 1, readLines: map[tracefmt.Line]bool{}}
	s := &simulation{load: 1, plans: []plan{{services: []service{{r, 1e6, false}}}, {services: []service{{r, 1, true}}}}}
	sum := 0.0
	list := s.simulateLatencies(1.6 / 1e6)
	for _, ns := range list {
		sum += ns
	}
	if average := sum / float64(len(list)) / 1e6; math.Abs(average/1.7-1) > 0.2 {
		t.Errorf("a request takes %.3g services on average, want 1.7", average)
	}
}

// TestQuota holds computations back to the next period when the quota is used up.
func TestQuota(t *testing.T) {
	q := &quota{budget: 50e6, used: map[int]float64{}}
	for i, want := range []float64{0, 30e6, 100e6, 200e6} {
		check.Equal(t, q.reserve([]float64{0, 30e6, 60e6, 60e6}[i], []float64{30e6, 30e6, 60e6, 1e6}[i]), want, "computation %d starts at", i)
	}
}

// TestAddGrowth extrapolates a process that needs CPU time without requests, and a demand that grows with load.
func TestAddGrowth(t *testing.T) {
	capacityAt := func(load float64, demandNS int64) *report.Capacity {
		use := load * float64(demandNS) / 1e9
		return &report.Capacity{LoadPerS: load, Limits: []report.Limit{{
			Kind: report.LimitCPU, Servers: 1, DemandNS: demandNS, Utilisation: use, SaturatesPerS: load / use, SaturatesLow: 0.9 * load / use, SaturatesHigh: 1.1 * load / use,
		}}}
	}
	idle := capacityAt(200, 3_000_000) // 0.2 CPUs without requests, and 2 ms a request: 400/s
	AddGrowth(idle, capacityAt(100, 4_000_000))
	if l := &idle.Limits[0]; math.Abs(l.SaturatesPerS-400) > 1 || l.Growth == nil || l.SaturatesHigh < 400 {
		t.Errorf("a constant part: %+v", l)
	}
	growing := capacityAt(200, 2_000_000) // 1 ms + 5 us for each request/s: 358/s
	AddGrowth(growing, capacityAt(100, 1_500_000))
	if l := &growing.Limits[0]; math.Abs(l.SaturatesPerS-358) > 1 || l.SaturatesLow > 358 {
		t.Errorf("a growing demand: %+v", l)
	}
}

// TestParse parses changes, and formats them as they were written.
func TestParse(t *testing.T) {
	for _, text := range []string{"load=2x", "load=1500", "cpus=8", "quota=2.5", "GOMAXPROCS=4", "slots@main.go:12=16", "unlock@main.f", "main.go:7=5ms"} {
		if c, err := Parse(text); err != nil || c.String() != text {
			t.Errorf("%s: %v, %v", text, c, err)
		}
	}
	for _, text := range []string{"load=", "load=0x", "cpus=2x", "load=-1", "cpus=NaN", "load=1e300"} {
		if _, err := Parse(text); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}

// TestText says which limits could not be judged before it calls one the first.
func TestText(t *testing.T) {
	c := &report.Capacity{LoadPerS: 1240, Limits: []report.Limit{
		{Kind: report.LimitLock, Servers: 1, Site: &report.Site{Func: "main.(*journal).append", File: "/src/main.go", Line: 126}, SaturatesPerS: 3200, SaturatesLow: 3000, SaturatesHigh: 3400},
		{Kind: report.LimitCPU, Servers: 4, SaturatesPerS: 4100},
	}}
	if got, want := Text(c), "today 1,240/s; first limit: lock main.(*journal).append main.go:126 at 3,200/s (3,000 to 3,400), then CPU of 4 CPUs at 4,100/s"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	c.AskedLoadPerS = 3300
	if got, want := Text(c), "today 1,240/s; does not reach 3,300/s; first limit: lock "; !strings.HasPrefix(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	c.NotJudged = []report.NotJudged{{Kind: report.LimitPool, Site: &report.Site{Func: "main.f", File: "main.go", Line: 3}, Reason: "w"}, {Site: &report.Site{Func: "main.g", File: "main.go", Line: 4}, Reason: peerReason}}
	c.Limits = c.Limits[1:]
	if got, want := Text(c), "today 1,240/s; first limit of those that can be judged: CPU of 4 CPUs at 4,100/s (0 to 0); not judged: pool main.f main.go:3, peers"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
