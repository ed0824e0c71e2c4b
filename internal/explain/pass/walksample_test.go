package pass_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"sync"
	"testing"

	"github.com/whylate/whylate/internal/explain/groups"
	"github.com/whylate/whylate/internal/explain/pass"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

// busyShopTrace builds a trace with 8,000 calls of main.put and main.get in each generation. A put sleeps, sometimes
// for long. A get waits for goroutine 20, which computes for it and is late to run one time in ten.
func busyShopTrace(t *testing.T, generations int) []byte {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	return shopTraceOf(t, generations, func(m, o *tracetext.Thread, clock int64) int64 {
		for range 8000 {
			g := 1 + r.Uint64N(8)
			took := 1000 + int64(r.ExpFloat64()*20_000)
			o.Unblock(clock, g)
			m.Start(clock+1000, g)
			if g%2 == 0 {
				m.Syscall(clock+2000, "syscall.write", "main.put", "main.serve")
				m.SyscallEnd(clock + 3000)
				m.Block(clock+4000, "sleep", "time.Sleep", "main.put", "main.serve")
				clock += took
				o.Unblock(clock+4000, g)
				m.Start(clock+5000, g)
				m.Syscall(clock+6000, "syscall.write", "main.put", "main.serve")
			} else {
				m.Syscall(clock+2000, "syscall.write", "main.get", "main.serve")
				m.SyscallEnd(clock + 3000)
				m.Unblock(clock+3500, 20, "main.get", "main.serve")
				m.Block(clock+4000, "chan receive", "main.get", "main.serve")
				if r.IntN(10) == 0 {
					clock += 150_000 + r.Int64N(50_000)
				}
				m.Start(clock+5000, 20)
				clock += took
				m.Unblock(clock+6000, g, "main.work", "main.worker")
				m.Block(clock+7000, "chan receive", "main.worker")
				m.Start(clock+8000, g)
				m.Syscall(clock+9000, "syscall.write", "main.get", "main.serve")
			}
			m.SyscallEnd(clock + 10_000)
			m.Block(clock+11_000, "select", "main.serve")
			clock += 20_000
		}
		return clock
	})
}

// passCounts counts the requests that a pass adds.
type passCounts struct {
	mu                                         sync.Mutex
	weights, counted                           map[path.GroupKey]int64
	walked, notWalked, needed, neededNotWalked int64
}

func (y *passCounts) NeedsWalk(r *request.Request) bool { return r.G == 8 && r.End%7 == 0 }

func (y *passCounts) NewAdder(s *path.Stage) path.Adder { return &passCounter{y, s} }

type passCounter struct {
	*passCounts
	stage *path.Stage
}

func (y *passCounter) Add(w *path.WalkResult) {
	y.mu.Lock()
	defer y.mu.Unlock()
	k := y.stage.IDs.Group(w.Group)
	y.counted[k] += w.CountedRequests()
	if y.NeedsWalk(w.Req) {
		y.needed++
	}
	if w.Form == path.NotWalked {
		y.notWalked++
		if y.NeedsWalk(w.Req) {
			y.neededNotWalked++
		}
		return
	}
	y.walked++
	y.weights[k] += w.Weight
}

// TestPlan: a pass that walks a part of the requests counts all of them, has weights that add up to all, walks every
// request that a Chooser needs, and has the same result with any number of workers. Compared with a pass that walks
// all requests, the slowest tenth has equal results, and all requests have nearly equal results.
func TestPlan(t *testing.T) {
	data := busyShopTrace(t, 3)
	match := regexp.MustCompile(`^main\.(put|get)$`)
	hubs := map[int][]queues.Hub{}
	rows := func(workers, exactFirst int) ([]groups.Row, *passCounts, *pass.Pass) {
		g, q, counts := groups.New(), queues.New(), &passCounts{weights: map[path.GroupKey]int64{}, counted: map[path.GroupKey]int64{}}
		p := runMatching(t, data, match, pass.Options{Workers: workers, ExactFirst: exactFirst}, []pass.Sum{g, q, counts})
		sp := mergeSums(p, g, q)
		hubs[exactFirst] = q.Hubs(sp)
		list := g.Rows(sp, groups.Selection{})
		for i := range list {
			list[i].PathGroup = 0 // ids depend on the order of requests
		}
		return list, counts, p
	}
	exact, _, all := rows(2, 0)
	sampled, counts, p := rows(2, 8000)
	oneWorker, _, _ := rows(1, 8000)
	if all.NotWalked != 0 || p.Requests != all.Requests || p.NotWalked != counts.notWalked || counts.notWalked+counts.walked != p.Requests {
		t.Fatalf("all walked: %d requests, %d not walked; with a plan: %d and %d, of which %d were added, and %d walked ones", all.Requests, all.NotWalked, p.Requests, p.NotWalked, counts.notWalked, counts.walked)
	}
	// One generation is walked completely; of two others the slow requests and those that package queues needs.
	check.True(t, counts.notWalked >= p.Requests/3 && counts.neededNotWalked == 0 && counts.needed != 0,
		"%d of %d requests were not walked, among them %d of %d that a sum needs", counts.notWalked, p.Requests, counts.neededNotWalked, counts.needed)
	check.True(t, reflect.DeepEqual(counts.weights, counts.counted),
		"weights add up to %v, requests are %v", counts.weights, counts.counted)
	if a, b := text(t, sampled), text(t, oneWorker); a != b {
		difference := 0
		for difference < min(len(a), len(b)) && a[difference] == b[difference] {
			difference++
		}
		t.Errorf("two workers: ...%.200s\none: ...%.200s", a[max(difference-100, 0):], b[max(difference-100, 0):])
	}
	must.True(t, len(exact) == 2 && len(sampled) == 2, "%d groups, %d with a plan", len(exact), len(sampled))
	compareHubs(t, hubs[0], hubs[8000])
	var errors errorCheck
	for i := range exact {
		a, b := &exact[i].Group, &sampled[i].Group
		if a.Name != b.Name || a.Count != b.Count || a.TotalNS != b.TotalNS || !reflect.DeepEqual(a.LatencyNS, b.LatencyNS) || !reflect.DeepEqual(a.Histogram, b.Histogram) {
			t.Errorf("%s: latencies differ", a.Name)
		}
		for k := range a.Bands {
			compareBands(t, a.Name, &a.Bands[k], &b.Bands[k], &errors)
		}
	}
	check.True(t, errors.total >= 4 && errors.inside >= errors.total && errors.largest <= 0.003,
		"of %d shares with errors of up to %g, %d are within their error", errors.total, errors.largest, errors.inside)
}

// An errorCheck counts shares that have a sampling error, and those that are within it.
type errorCheck struct {
	inside, total int
	largest       float64
}

// compareHubs compares late runs: their numbers must be similar, and the latest run must be the same.
func compareHubs(t *testing.T, exact, sampled []queues.Hub) {
	t.Helper()
	must.True(t, len(exact) == 1 && len(sampled) == 1, "late goroutines: %v, and %v if all are walked", sampled, exact)
	a, b := exact[0], sampled[0]
	for _, n := range [][2]int64{{a.LateRuns, b.LateRuns}, {a.DelayedRequests, b.DelayedRequests}, {a.LateNS, b.LateNS}, {a.DelayNS, b.DelayNS}} {
		if math.Abs(float64(n[1]-n[0])) > 0.1*float64(n[0]) {
			t.Errorf("late runs: %+v, and %+v if all are walked", b, a)
			break
		}
	}
	check.True(t, a.MaxNS == b.MaxNS, "the latest run was late by %d, by %d if all are walked", b.MaxNS, a.MaxNS)
}

func compareBands(t *testing.T, name string, exact, sampled *report.Band, errors *errorCheck) {
	t.Helper()
	check.True(t, exact.Count == sampled.Count, "%s %s: %d requests of %d", name, exact.Band, sampled.Count, exact.Count)
	tolerance := 0.02
	if exact.FromNS >= 60e3 { // the slowest tenth
		tolerance = 0
	}
	for _, c := range exact.Causes {
		share, off := 0.0, 0.0
		for _, o := range sampled.Causes {
			if o.Cause == c.Cause && reflect.DeepEqual(o.Site, c.Site) {
				share, off = o.Share, o.ShareError
			}
		}
		switch difference := math.Abs(share - c.Share); {
		case off == 0 && difference > 1e-4 && tolerance == 0:
			t.Errorf("%s %s: the share of %s is wrong but has no error", name, exact.Band, c.Cause)
		case off > 0:
			errors.total++
			errors.largest = max(errors.largest, off)
			if difference <= off {
				errors.inside++
			}
		}
		check.True(t, math.Abs(share-c.Share) <= tolerance,
			"%s %s: %s has %.4f, and %.4f if all are walked", name, exact.Band, c.Cause, share, c.Share)
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	out := must.Have(json.Marshal(v))(t)
	return string(out)
}

// TestPlanSlowGeneration: all requests of the slowest tenth are walked, even if one generation has half of them.
func TestPlanSlowGeneration(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	gen := 0
	data := shopTraceOf(t, 4, func(m, o *tracetext.Thread, clock int64) int64 {
		n, meanNS := 8000, 20e3
		if gen++; gen == 4 {
			n, meanNS = 1500, 400e3
		}
		for range n {
			g := 1 + r.Uint64N(8)
			o.Unblock(clock, g)
			m.Start(clock+1000, g)
			m.Syscall(clock+2000, "syscall.write", "main.put", "main.serve")
			m.SyscallEnd(clock + 3000)
			m.Block(clock+4000, "sleep", "time.Sleep", "main.put", "main.serve")
			clock += 1000 + int64(r.ExpFloat64()*meanNS)
			o.Unblock(clock+4000, g)
			m.Start(clock+5000, g)
			m.Syscall(clock+6000, "syscall.write", "main.put", "main.serve")
			m.SyscallEnd(clock + 10_000)
			m.Block(clock+11_000, "select", "main.serve")
			clock += 20_000
		}
		return clock
	})
	l := &latencyRecorder{}
	p := run(t, data, pass.Options{Workers: 1, ExactFirst: 4000}, []pass.Sum{l})
	slices.Sort(l.all)
	p90 := l.all[len(l.all)*90/100]
	missed := 0
	for _, ns := range l.notWalked {
		if ns >= p90 {
			missed++
		}
	}
	check.True(t, missed == 0, "of %d requests of at least %d ns, %d were not walked", len(l.all)/10, p90, missed)
	check.True(t, p.NotWalked >= p.Requests/2, "%d of %d requests were not walked", p.NotWalked, p.Requests)
}

// TestPlanRareRequests: rare requests are all walked, because a sample would estimate their time badly: those of a
// group with few requests in the trace, even if it has many in one generation, and those that overlap a mark phase.
// If the collector marks most of the time, a sample is walked.
func TestPlanRareRequests(t *testing.T) {
	r, gen := rand.New(rand.NewPCG(5, 6)), 0
	data := shopTraceOf(t, 4, func(m, o *tracetext.Thread, clock int64) int64 {
		gen++
		for i := range 8000 {
			g, fn := 1+r.Uint64N(8), "main.put"
			if i%20 == 7 {
				fn = "main.get" // 400 in a generation
			}
			o.Unblock(clock, g)
			m.Start(clock+1000, g)
			m.Syscall(clock+2000, "syscall.write", fn, "main.serve")
			m.SyscallEnd(clock + 3000)
			m.Block(clock+4000, "sleep", "time.Sleep", fn, "main.serve")
			if i%50 == 0 || gen == 4 && i%4 != 0 {
				o.GCBegin(clock+4500, "runtime.gcStart")
				o.GCEnd(clock + 4700)
			}
			clock += 5000
			if i%50 != 0 {
				clock += 3000 + r.Int64N(10_000) // so latencies differ, except for those with marking
			}
			o.Unblock(clock, g)
			m.Start(clock+1000, g)
			m.Syscall(clock+2000, "syscall.write", fn, "main.serve")
			m.SyscallEnd(clock + 3000)
			m.Block(clock+4000, "select", "main.serve")
			clock += 20_000
		}
		return clock
	})
	l, marks, counts := &latencyRecorder{}, markRecorder{}, &passCounts{weights: map[path.GroupKey]int64{}, counted: map[path.GroupKey]int64{}}
	p := runMatching(t, data, regexp.MustCompile(`^main\.(put|get)$`), pass.Options{Workers: 1, ExactFirst: 4000}, []pass.Sum{l, counts}, &marks)
	must.True(t, p.Requests == 32_000 && p.NotWalked >= p.Requests/3, "%d of %d requests were not walked", p.NotWalked, p.Requests)
	check.True(t, reflect.DeepEqual(counts.weights, counts.counted),
		"weights add up to %v, requests are %v", counts.weights, counts.counted)
	gets, notWalkedByGeneration := 0, [5]int{}
	for _, w := range l.requests {
		if w.name == "main.get" {
			gets++
		}
		k := sort.Search(len(marks.phasesNS), func(k int) bool { return marks.phasesNS[k][1] > w.start })
		if k < len(marks.phasesNS) && marks.phasesNS[k][0] < w.end {
			notWalkedByGeneration[w.gen]++
		}
	}
	if gets > 0 || notWalkedByGeneration[2] > 0 || notWalkedByGeneration[3] > 0 || notWalkedByGeneration[4] < 3000 {
		t.Errorf("not walked: %d of the small group, and, by generation, %d that overlap a mark phase; want none except in the last generation", gets, notWalkedByGeneration)
	}
}

// A markRecorder records the mark phases of the collector.
type markRecorder struct {
	phases   timeline.MarkPhases
	phasesNS [][2]int64
}

func (m *markRecorder) AddGeneration(g *timeline.Gen, _ *tracefmt.Symbols, _ bool) {
	m.phases.Add(g, func(from, to int64) { m.phasesNS = append(m.phasesNS, [2]int64{from, to}) })
}

// A latencyRecorder records the latencies of all requests and of those that were not walked. It needs a single
// worker.
type latencyRecorder struct {
	all, notWalked []int64
	requests       []unwalkedRequest
	gen            int
	stage          *path.Stage
}

// An unwalkedRequest is a request that was not walked.
type unwalkedRequest struct {
	start, end int64
	gen        int
	name       string // of its group
}

func (l *latencyRecorder) BeginGeneration(request.Batch) { l.gen++ }

func (l *latencyRecorder) NewAdder(s *path.Stage) path.Adder {
	l.stage = s
	return l
}

func (l *latencyRecorder) Add(w *path.WalkResult) {
	for range w.CountedRequests() {
		l.all = append(l.all, w.Latency())
	}
	if w.Form == path.NotWalked {
		l.notWalked = append(l.notWalked, w.Latency())
		l.requests = append(l.requests, unwalkedRequest{w.Req.Start, w.Req.End, l.gen, l.stage.Syms.String(l.stage.IDs.Group(w.Group).Name)})
	}
}
