package predict

import (
	"testing"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A requestKind describes requests that sleep and then wait for the network.
type requestKind struct {
	count          int
	sleep, network int64 // us
	stepUS         int64 // by which the network takes longer from each request to the next
	maxGraphs      int   // graphs in the sample; 0: all that the sample selects
}

// checkOf returns the check of a change for a group with requests of some kinds.
func checkOf(t *testing.T, change string, kinds []requestKind) *report.Check {
	t.Helper()
	s := new(Sample)
	id := int64(0)
	for _, a := range kinds {
		for i := range a.count {
			id++
			network := a.network + int64(i)*a.stepUS
			g := chained(id, interval{target: target{cause: cause.Sleep}, ns: a.sleep * us}, interval{target: target{cause: cause.Network}, ns: network * us})
			if s.Count(g.Start, g.Start+g.Latency, g.G, 1) && (a.maxGraphs == 0 || i < a.maxGraphs) {
				s.Add(g)
			}
		}
	}
	return checkSample(t, change, s)
}

// chained returns a request with successive intervals.
func chained(id int64, parts ...interval) *Graph {
	g := &Graph{Start: id * 1e9, G: uint64(id), nodes: []node{{predecessor: -1}}}
	for _, p := range parts {
		if p.ns == 0 {
			continue
		}
		p.fullNS = max(p.fullNS, p.ns)
		g.computations = max(g.computations, p.computation)
		g.Latency += p.ns
		g.intervals = append(g.intervals, p)
	}
	g.nodes = append(g.nodes, node{time: g.Latency, endInterval: int32(len(g.intervals))})
	return g
}

func checkSample(t *testing.T, change string, s *Sample) *report.Check {
	t.Helper()
	_, syms := timelinetest.BuildWindow(t, graphs[0].build)
	m := NewModel(syms, settled, 1e9, func(tracefmt.StringID) (map[tracefmt.FrameID]int64, int64) { return nil, 0 })
	m.AddGroup("g", s, report.Latency{})
	p := m.WhatIf("g", parse(t, []string{change}))
	must.True(t, p != nil, "%s meets nothing", change)
	return p.Check
}

func TestCheck(t *testing.T) {
	p99 := func(us int64) *int64 { ns := us * 1000; return &ns }
	for _, c := range []struct {
		name   string
		change string
		kinds  []requestKind
		want   *report.Check // times in us
	}{
		{"unexposed requests are as predicted", "sleep@=gone", []requestKind{{200, 10000, 2000, 0, 0}, {100, 0, 2100, 0, 0}},
			&report.Check{Requests: 100, Sampled: 6, AtMostNS: 200, P50NS: 2100, P99NS: p99(2100), Affected: 200, PredictedNS: report.Estimate{Est: 2000}, Agrees: true}},
		{"hardly exposed requests count", "sleep@=gone", []requestKind{{200, 10000, 2000, 0, 0}, {50, 150, 2000, 0, 0}},
			&report.Check{Requests: 50, Sampled: 6, AtMostNS: 200, MetNS: 150, P50NS: 2150, Affected: 200, PredictedNS: report.Estimate{Est: 2000}, Agrees: true}},
		{"unexposed requests are as slow", "sleep@=gone", []requestKind{{200, 10000, 2000, 0, 0}, {100, 0, 9000, 0, 0}},
			&report.Check{Requests: 100, Sampled: 6, AtMostNS: 200, P50NS: 9000, P99NS: p99(9000), Affected: 200, PredictedNS: report.Estimate{Est: 2000}}},
		{"unexposed requests have less to do", "sleep@=gone", []requestKind{{200, 10000, 2000, 0, 0}, {100, 0, 300, 0, 0}},
			&report.Check{Requests: 100, Sampled: 6, AtMostNS: 200, P50NS: 300, P99NS: p99(300), Affected: 200, PredictedNS: report.Estimate{Est: 2000}}},
		// Six of each stratum are sampled, of 300 and 100 requests.
		{"weights", "sleep@=gone", []requestKind{{800, 10000, 2000, 0, 0}, {300, 0, 2000, 0, 0}, {100, 0, 3000, 0, 0}},
			&report.Check{Requests: 400, Sampled: 12, AtMostNS: 200, P50NS: 2000, P99NS: p99(3000), Affected: 800, PredictedNS: report.Estimate{Est: 2000}, Agrees: true}},
		{"weights the other way round", "sleep@=gone", []requestKind{{2000, 10000, 2000, 0, 0}, {100, 0, 2000, 0, 0}, {1000, 0, 3000, 0, 0}},
			&report.Check{Requests: 1100, Sampled: 12, AtMostNS: 200, P50NS: 3000, P99NS: p99(3000), Affected: 2000, PredictedNS: report.Estimate{Est: 2000}}},
		{"half, by those that met about half", "sleep@=50%", []requestKind{{200, 10000, 2000, 0, 0}, {60, 5200, 2000, 0, 0}, {60, 0, 300, 0, 0}},
			&report.Check{Requests: 60, Sampled: 6, AtLeastNS: 4300, AtMostNS: 5700, MetNS: 5200, P50NS: 7200, Affected: 260, LeftNS: 5000, PredictedNS: report.Estimate{Est: 7000}, Agrees: true}},
		{"half, and those that met none are as predicted without it", "sleep@=50%", []requestKind{{200, 10000, 2000, 0, 0}, {60, 0, 2100, 0, 0}},
			&report.Check{Requests: 60, Sampled: 6, AtMostNS: 200, P50NS: 2100, Affected: 200, PredictedNS: report.Estimate{Est: 2000}, CauseRemoved: true, Agrees: true}},
		{"half, and those that met none took no less", "sleep@=50%", []requestKind{{200, 10000, 2000, 0, 0}, {60, 0, 13000, 0, 0}},
			&report.Check{Requests: 60, Sampled: 6, AtMostNS: 200, P50NS: 13000, Affected: 200, PredictedNS: report.Estimate{Est: 2000}, CauseRemoved: true}},
		{"half, and those that met some less are neither", "sleep@=50%", []requestKind{{200, 10000, 2000, 0, 0}, {60, 2000, 2000, 0, 0}}, nil},
		{"a length, and those that met none", "sleep@=4ms", []requestKind{{200, 10000, 2000, 0, 0}, {60, 100, 2000, 0, 0}},
			&report.Check{Requests: 60, Sampled: 6, AtMostNS: 200, MetNS: 100, P50NS: 2100, Affected: 200, PredictedNS: report.Estimate{Est: 2000}, CauseRemoved: true, Agrees: true}},
		{"half, and too few met none", "sleep@=50%", []requestKind{{200, 10000, 2000, 0, 0}, {19, 0, 2000, 0, 0}}, nil},
		{"half, and those that met none are few by what is left without it", "sleep@=50%", []requestKind{{200, 10000, 2000, 0, 0}, {60, 500, 2000, 0, 0}}, nil},
		{"a length, by those that were as long", "sleep@=2ms", []requestKind{{200, 10000, 2000, 0, 0}, {60, 2300, 2100, 0, 0}},
			&report.Check{Requests: 60, Sampled: 6, AtLeastNS: 1960, AtMostNS: 2840, MetNS: 2300, P50NS: 4400, Affected: 200, LeftNS: 2400, PredictedNS: report.Estimate{Est: 4400}, Agrees: true}},
		{"they differ by much less than is won", "sleep@=gone", []requestKind{{200, 10000, 300, 0, 0}, {60, 0, 100, 0, 0}},
			&report.Check{Requests: 60, Sampled: 6, AtMostNS: 100, P50NS: 100, Affected: 200, PredictedNS: report.Estimate{Est: 300}, Agrees: true}},
		{"no request is unexposed", "sleep@=gone", []requestKind{{200, 10000, 2000, 0, 0}}, nil},
		{"too few are unexposed", "sleep@=gone", []requestKind{{200, 10000, 2000, 0, 0}, {19, 0, 2000, 0, 0}}, nil},
		{"just enough are", "sleep@=gone", []requestKind{{200, 10000, 2000, 0, 0}, {20, 0, 2000, 0, 0}},
			&report.Check{Requests: 20, Sampled: 6, AtMostNS: 200, P50NS: 2000, Affected: 200, PredictedNS: report.Estimate{Est: 2000}, Agrees: true}},
		{"too few of the sample are", "sleep@=gone", []requestKind{{200, 10000, 2000, 0, 0}, {100, 0, 2000, 0, 4}}, nil},
		{"few have nearly all of the weight", "sleep@=gone", []requestKind{{200, 10000, 2000, 0, 0}, {100, 0, 2000, 0, 4}, {4, 0, 3000, 0, 0}, {4, 0, 5000, 0, 0}}, nil},
		{"too small a share of all", "sleep@=gone", []requestKind{{5000, 10000, 2000, 0, 0}, {40, 0, 2000, 0, 0}}, nil},
		{"too few are exposed", "sleep@=gone", []requestKind{{19, 10000, 2000, 0, 0}, {20, 0, 2000, 0, 0}, {10, 0, 13000, 0, 0}}, nil},
		{"the median request is unexposed", "sleep@=gone", []requestKind{{100, 10000, 2000, 0, 0}, {150, 0, 2000, 0, 0}}, nil},
		// The median falls from 7600 to that of a request that still sleeps, but most requests never did.
		{"the remainder of the median request counts", "sleep@=4ms", []requestKind{{100, 10000, 2000, 0, 0}, {90, 0, 7600, 0, 0}, {20, 0, 2000, 0, 0}},
			&report.Check{Requests: 110, Sampled: 12, AtMostNS: 640, P50NS: 7600, P99NS: p99(7600), Affected: 100, PredictedNS: report.Estimate{Est: 6400}, Agrees: true}},
		{"chance may explain the difference", "sleep@=gone", []requestKind{{200, 10000, 2000, 0, 0}, {20, 0, 1900, 60, 0}}, nil},
		{"it is too short to matter", "sleep@=gone", []requestKind{{200, 100, 2000, 0, 0}, {100, 0, 2000, 0, 0}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := checkOf(t, c.change, c.kinds)
			if got == nil || c.want == nil {
				must.True(t, got == nil && c.want == nil, "the check says %+v, want %+v", got, c.want)
				return
			}
			want := *c.want
			for _, ns := range []*int64{&want.AtLeastNS, &want.AtMostNS, &want.MetNS, &want.LeftNS, &want.P50NS, &want.PredictedNS.Est} {
				*ns *= us
			}
			check.True(t, got.PredictedNS.Low <= got.PredictedNS.Est && got.PredictedNS.High >= got.PredictedNS.Est,
				"the range %+v does not hold the estimate", got.PredictedNS)
			p99, wantP99 := got.P99NS, want.P99NS
			if (p99 == nil) != (wantP99 == nil) || p99 != nil && *p99 != *wantP99 {
				t.Errorf("the 99th percentile is %v, want %v", p99, wantP99)
			}
			gotEstimate := *got
			gotEstimate.PredictedNS = report.Estimate{Est: got.PredictedNS.Est}
			gotEstimate.P99NS, want.P99NS = nil, nil
			check.True(t, gotEstimate == want, "the check says\n%+v, want\n%+v", gotEstimate, want)
		})
	}
}

// TestCheckByLength: if a change makes requests faster that met little of its cause (a queue gets shorter), there is no
// check.
func TestCheckByLength(t *testing.T) {
	s := new(Sample)
	for i := range int64(100) {
		busy := func(otherWork bool, run int32) interval {
			return interval{target: target{cause: cause.CPU}, ns: 100 * us, otherWork: otherWork, computation: run}
		}
		g := chained(i+1, busy(true, 1), interval{target: target{cause: cause.Sleep}, ns: 10000 * us, otherWork: true}, busy(false, 2))
		s.Count(g.Start, g.Start+g.Latency, g.G, 1)
		s.Add(g)
	}
	if c := checkSample(t, "cpu@=50%", s); c != nil {
		t.Errorf("the check says %+v", c)
	}
}

// TestCheckEstimates: the requests that a prediction is checked by do not change the prediction.
func TestCheckEstimates(t *testing.T) {
	fastUnexposed := checkOf(t, "sleep@=gone", []requestKind{{200, 10000, 2000, 0, 0}, {100, 0, 2000, 0, 0}})
	slowUnexposed := checkOf(t, "sleep@=gone", []requestKind{{200, 10000, 2000, 0, 0}, {100, 0, 9000, 0, 0}})
	if fastUnexposed == nil || slowUnexposed == nil || fastUnexposed.Agrees == slowUnexposed.Agrees || fastUnexposed.PredictedNS != slowUnexposed.PredictedNS {
		t.Errorf("the checks are %+v and %+v", fastUnexposed, slowUnexposed)
	}
}

// TestCheckOfAQueue: the prediction without a queue is checked by requests that met no queue. The request's own service, and
// a ticker for all requests, are no queue. It fails if a request's own work counts as exposure, so that no unexposed request
// is found.
func TestCheckOfAQueue(t *testing.T) {
	for name, ownWork := range map[string]interval{
		"own turn": {target: target{cause: cause.Sleep}, ns: 5000 * us},
		"a ticker": {target: target{cause: cause.Sleep}, ns: 5000 * us, otherWork: true, endsWithTick: true},
	} {
		s := new(Sample)
		id := int64(0)
		add := func(n int, parts ...interval) {
			for range n {
				id++
				g := chained(id, parts...)
				if s.Count(g.Start, g.Start+g.Latency, g.G, 1) {
					s.Add(g)
				}
			}
		}
		add(200, interval{target: target{cause: cause.Sleep}, ns: 20000 * us, otherWork: true}, ownWork)
		add(100, ownWork)
		if c := checkSample(t, "queue@=gone", s); c == nil || c.Requests != 100 || c.MetNS != 0 || c.P50NS != 5000*us || c.Affected != 200 || !c.Agrees {
			t.Errorf("with %s: %+v, want 100 unexposed requests and agreement", name, c)
		}
	}
}

// TestSlowestAreSums: only the slowest hundredth of the requests decides whether there is a tail of chains.
func TestSlowestAreSums(t *testing.T) {
	for _, c := range []struct {
		sums [3]bool // of the requests of 1, 50 and 100 ms
		want bool
	}{{[3]bool{}, false}, {[3]bool{true, true, false}, false}, {[3]bool{false, false, true}, true}} {
		var s series
		for i, ns := range []int64{1e6, 50e6, 100e6} {
			w := &weightedGraph{&Graph{Latency: ns, isChain: c.sums[i]}, 10}
			s.requests = append(s.requests, &retimedRequest{weightedGraph: w})
			s.before = append(s.before, point{float64(ns), w.weight})
		}
		check.Equal(t, s.hasChainTail(), c.want, "sums %v", c.sums)
	}
}
