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
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

// busyShop is a trace with 8,000 calls of main.put and main.get in each generation. A put sleeps, for long now and then; a
// get waits for goroutine 20, which computes for it and is late to run one time in ten.
func busyShop(t *testing.T, generations int) []byte {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	return shopOf(t, generations, func(m, o *tracetext.Thread, at int64) int64 {
		for range 8000 {
			g := 1 + r.Uint64N(8)
			took := 1000 + int64(r.ExpFloat64()*20_000)
			o.Unblock(at, g)
			m.Start(at+1000, g)
			if g%2 == 0 {
				m.Syscall(at+2000, "syscall.write", "main.put", "main.serve")
				m.SyscallEnd(at + 3000)
				m.Block(at+4000, "sleep", "time.Sleep", "main.put", "main.serve")
				at += took
				o.Unblock(at+4000, g)
				m.Start(at+5000, g)
				m.Syscall(at+6000, "syscall.write", "main.put", "main.serve")
			} else {
				m.Syscall(at+2000, "syscall.write", "main.get", "main.serve")
				m.SyscallEnd(at + 3000)
				m.Unblock(at+3500, 20, "main.get", "main.serve")
				m.Block(at+4000, "chan receive", "main.get", "main.serve")
				if r.IntN(10) == 0 {
					at += 150_000 + r.Int64N(50_000)
				}
				m.Start(at+5000, 20)
				at += took
				m.Unblock(at+6000, g, "main.work", "main.worker")
				m.Block(at+7000, "chan receive", "main.worker")
				m.Start(at+8000, g)
				m.Syscall(at+9000, "syscall.write", "main.get", "main.serve")
			}
			m.SyscallEnd(at + 10_000)
			m.Block(at+11_000, "select", "main.serve")
			at += 20_000
		}
		return at
	})
}

// tally counts what a pass gives.
type tally struct {
	mu                              sync.Mutex
	weights, counted                map[path.GroupKey]int64
	walked, glanced, needed, lacked int64
}

func (y *tally) NeedsWalk(r *request.Request) bool { return r.G == 8 && r.End%7 == 0 }

func (y *tally) NewAdder(s *path.Stage) path.Adder { return &tallying{y, s} }

type tallying struct {
	*tally
	stage *path.Stage
}

func (y *tallying) Add(w *path.WalkResult) {
	y.mu.Lock()
	defer y.mu.Unlock()
	k := y.stage.IDs.Group(w.Group)
	y.counted[k] += w.CountedRequests()
	if y.NeedsWalk(w.Req) {
		y.needed++
	}
	if w.Form == path.NotWalked {
		y.glanced++
		if y.NeedsWalk(w.Req) {
			y.lacked++
		}
		return
	}
	y.walked++
	y.weights[k] += w.Weight
}

// TestPlan: a pass that walks a part of the requests counts them all, gives weights that add up to all, walks what a sum
// needs, comes to the same result with any number of workers, and says of the slowest tenth exactly, and of all requests
// nearly, what a pass says that walks them all.
func TestPlan(t *testing.T) {
	data := busyShop(t, 3)
	match := regexp.MustCompile(`^main\.(put|get)$`)
	hubs := map[int][]queues.Hub{}
	rows := func(workers, exactFirst int) ([]groups.Row, *tally, *pass.Pass) {
		g, q, y := groups.New(), queues.New(), &tally{weights: map[path.GroupKey]int64{}, counted: map[path.GroupKey]int64{}}
		p := runMatching(t, data, match, pass.Options{Workers: workers, ExactFirst: exactFirst}, []pass.Sum{g, q, y})
		sp := merge(p, g, q)
		hubs[exactFirst] = q.Hubs(sp)
		list := g.Rows(sp, groups.Selection{})
		for i := range list {
			list[i].Of = 0 // numbers are by who came first
		}
		return list, y, p
	}
	exact, _, all := rows(2, 0)
	some, y, p := rows(2, 8000)
	other, _, _ := rows(1, 8000)
	if all.Glanced != 0 || p.Requests != all.Requests || p.Glanced != y.glanced || y.glanced+y.walked != p.Requests {
		t.Fatalf("%d requests, %d of them glanced at, where all are walked; else %d and %d, of which %d came and %d more were walked", all.Requests, all.Glanced, p.Requests, p.Glanced, y.glanced, y.walked)
	}
	// A generation is walked whole, of two others the slice that queues need and what is slow.
	if y.glanced < p.Requests/3 || y.lacked > 0 || y.needed == 0 {
		t.Errorf("%d of %d requests were not walked, among them %d of %d that a sum needs", y.glanced, p.Requests, y.lacked, y.needed)
	}
	if !reflect.DeepEqual(y.weights, y.counted) {
		t.Errorf("weights add up to %v, requests are %v", y.weights, y.counted)
	}
	if a, b := text(t, some), text(t, other); a != b {
		at := 0
		for at < min(len(a), len(b)) && a[at] == b[at] {
			at++
		}
		t.Errorf("two workers: ...%.200s\none: ...%.200s", a[max(at-100, 0):], b[max(at-100, 0):])
	}
	if len(exact) != 2 || len(some) != 2 {
		t.Fatalf("%d groups, %d in part", len(exact), len(some))
	}
	compareHubs(t, hubs[0], hubs[8000])
	var told within
	for i := range exact {
		a, b := &exact[i].Group, &some[i].Group
		if a.Name != b.Name || a.Count != b.Count || a.TotalNS != b.TotalNS || !reflect.DeepEqual(a.LatencyNS, b.LatencyNS) || !reflect.DeepEqual(a.Histogram, b.Histogram) {
			t.Errorf("%s: latencies differ", a.Name)
		}
		for k := range a.Bands {
			compareBands(t, a.Name, &a.Bands[k], &b.Bands[k], &told)
		}
	}
	if told.of < 4 || told.in < told.of || told.most > 0.003 {
		t.Errorf("of %d shares that may be off by up to %g, %d are not off by more than they say", told.of, told.most, told.in)
	}
}

// within counts shares that may be off, and those that are not off by more than they say.
type within struct {
	in, of int
	most   float64
}

// compareHubs holds late runs: about as many, and the latest of all.
func compareHubs(t *testing.T, exact, some []queues.Hub) {
	t.Helper()
	if len(exact) != 1 || len(some) != 1 {
		t.Fatalf("late goroutines: %v, and %v where all are walked", some, exact)
	}
	a, b := exact[0], some[0]
	for _, n := range [][2]int64{{a.LateRuns, b.LateRuns}, {a.DelayedRequests, b.DelayedRequests}, {a.LateNS, b.LateNS}, {a.DelayNS, b.DelayNS}} {
		if math.Abs(float64(n[1]-n[0])) > 0.1*float64(n[0]) {
			t.Errorf("late runs: %+v, and %+v where all are walked", b, a)
			break
		}
	}
	if a.MaxNS != b.MaxNS {
		t.Errorf("the latest run was late by %d, by %d where all are walked", b.MaxNS, a.MaxNS)
	}
}

func compareBands(t *testing.T, name string, exact, some *report.Band, told *within) {
	t.Helper()
	if exact.Count != some.Count {
		t.Errorf("%s %s: %d requests of %d", name, exact.Band, some.Count, exact.Count)
	}
	near := 0.02
	if exact.FromNS >= 60e3 { // the slowest tenth
		near = 0
	}
	for _, c := range exact.Causes {
		share, off := 0.0, 0.0
		for _, o := range some.Causes {
			if o.Cause == c.Cause && reflect.DeepEqual(o.Site, c.Site) {
				share, off = o.Share, o.ShareError
			}
		}
		switch is := math.Abs(share - c.Share); {
		case off == 0 && is > 1e-4 && near == 0:
			t.Errorf("%s %s: the share of %s is said to be exact", name, exact.Band, c.Cause)
		case off > 0:
			told.of++
			told.most = max(told.most, off)
			if is <= off {
				told.in++
			}
		}
		if math.Abs(share-c.Share) > near {
			t.Errorf("%s %s: %s has %.4f, and %.4f where all are walked", name, exact.Band, c.Cause, share, c.Share)
		}
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	out := must.Have(json.Marshal(v))(t)
	return string(out)
}

// TestPlanSlowGeneration: the slowest tenth of all requests is walked one and all, also where half of it lies in one
// generation, most of which it is.
func TestPlanSlowGeneration(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	gen := 0
	data := shopOf(t, 4, func(m, o *tracetext.Thread, at int64) int64 {
		n, mean := 8000, 20e3
		if gen++; gen == 4 {
			n, mean = 1500, 400e3
		}
		for range n {
			g := 1 + r.Uint64N(8)
			o.Unblock(at, g)
			m.Start(at+1000, g)
			m.Syscall(at+2000, "syscall.write", "main.put", "main.serve")
			m.SyscallEnd(at + 3000)
			m.Block(at+4000, "sleep", "time.Sleep", "main.put", "main.serve")
			at += 1000 + int64(r.ExpFloat64()*mean)
			o.Unblock(at+4000, g)
			m.Start(at+5000, g)
			m.Syscall(at+6000, "syscall.write", "main.put", "main.serve")
			m.SyscallEnd(at + 10_000)
			m.Block(at+11_000, "select", "main.serve")
			at += 20_000
		}
		return at
	})
	l := &latencies{}
	p := run(t, data, pass.Options{Workers: 1, ExactFirst: 4000}, []pass.Sum{l})
	slices.Sort(l.all)
	p90 := l.all[len(l.all)*90/100]
	missed := 0
	for _, ns := range l.glanced {
		if ns >= p90 {
			missed++
		}
	}
	if missed > 0 {
		t.Errorf("of %d requests that take %d ns and more, %d were not walked", len(l.all)/10, p90, missed)
	}
	if p.Glanced < p.Requests/2 {
		t.Errorf("%d of %d requests were not walked", p.Glanced, p.Requests)
	}
}

// TestPlanFew: what few requests meet is walked one and all, since a part of them would not show how much time it has: a
// group that has few in all, though many in a generation; requests during which the collector marked. Where it marks most of
// the time, a part of them does.
func TestPlanFew(t *testing.T) {
	r, gen := rand.New(rand.NewPCG(5, 6)), 0
	data := shopOf(t, 4, func(m, o *tracetext.Thread, at int64) int64 {
		gen++
		for i := range 8000 {
			g, fn := 1+r.Uint64N(8), "main.put"
			if i%20 == 7 {
				fn = "main.get" // 400 in a generation
			}
			o.Unblock(at, g)
			m.Start(at+1000, g)
			m.Syscall(at+2000, "syscall.write", fn, "main.serve")
			m.SyscallEnd(at + 3000)
			m.Block(at+4000, "sleep", "time.Sleep", fn, "main.serve")
			if i%50 == 0 || gen == 4 && i%4 != 0 {
				o.GCBegin(at+4500, "runtime.gcStart")
				o.GCEnd(at + 4700)
			}
			at += 5000
			if i%50 != 0 {
				at += 3000 + r.Int64N(10_000) // those by which the collector is known are alone in their latency
			}
			o.Unblock(at, g)
			m.Start(at+1000, g)
			m.Syscall(at+2000, "syscall.write", fn, "main.serve")
			m.SyscallEnd(at + 3000)
			m.Block(at+4000, "select", "main.serve")
			at += 20_000
		}
		return at
	})
	l, marks, y := &latencies{}, marking{}, &tally{weights: map[path.GroupKey]int64{}, counted: map[path.GroupKey]int64{}}
	p := runMatching(t, data, regexp.MustCompile(`^main\.(put|get)$`), pass.Options{Workers: 1, ExactFirst: 4000}, []pass.Sum{l, y}, &marks)
	if p.Requests != 32_000 || p.Glanced < p.Requests/3 {
		t.Fatalf("%d of %d requests were not walked", p.Glanced, p.Requests)
	}
	if !reflect.DeepEqual(y.weights, y.counted) {
		t.Errorf("weights add up to %v, requests are %v", y.weights, y.counted)
	}
	gets, met := 0, [5]int{}
	for _, w := range l.seen {
		if w.name == "main.get" {
			gets++
		}
		k := sort.Search(len(marks.at), func(k int) bool { return marks.at[k][1] > w.start })
		if k < len(marks.at) && marks.at[k][0] < w.end {
			met[w.gen]++
		}
	}
	if gets > 0 || met[2] > 0 || met[3] > 0 || met[4] < 3000 {
		t.Errorf("not walked: %d of the small group; requests during which the collector marked, by generation: %d, want none but in the last", gets, met)
	}
}

// marking takes note of when the collector marked.
type marking struct {
	phases timeline.MarkPhases
	at     [][2]int64
}

func (m *marking) AddGeneration(g *timeline.Gen, _ *tracefmt.Symbols, _ bool) {
	m.phases.Each(g, func(from, to int64) { m.at = append(m.at, [2]int64{from, to}) })
}

// latencies takes note of how long requests took, all and those that were not walked. It is for one worker.
type latencies struct {
	all, glanced []int64
	seen         []glancedAt
	gen          int
	stage        *path.Stage
}

// A glancedAt is a request that was not walked.
type glancedAt struct {
	start, end int64
	gen        int
	name       string // of its group
}

func (l *latencies) BeginGeneration([]request.Request) { l.gen++ }

func (l *latencies) NewAdder(s *path.Stage) path.Adder {
	l.stage = s
	return l
}

func (l *latencies) Add(w *path.WalkResult) {
	for range w.CountedRequests() {
		l.all = append(l.all, w.Latency())
	}
	if w.Form == path.NotWalked {
		l.glanced = append(l.glanced, w.Latency())
		l.seen = append(l.seen, glancedAt{w.Req.Start, w.Req.End, l.gen, l.stage.Syms.String(l.stage.IDs.Group(w.Group).Name)})
	}
}
