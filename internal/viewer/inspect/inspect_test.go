package inspect_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/whylate/whylate/internal/explain"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/internal/viewer/inspect"
	"github.com/whylate/whylate/report"
)

// explainAndOpen explains a trace with each request in full, and opens its index.
func explainAndOpen(t *testing.T, data []byte, limits inspect.Limits) (*report.Report, *inspect.Trace) {
	t.Helper()
	return explained(t, data, limits, math.MaxInt32)
}

// openIndex explains a trace without requests in full, and opens its index.
func openIndex(t *testing.T, data []byte, limits inspect.Limits) *inspect.Trace {
	t.Helper()
	_, tr := explained(t, data, limits, 0)
	return tr
}

func explained(t *testing.T, data []byte, limits inspect.Limits, slowest int) (*report.Report, *inspect.Trace) {
	t.Helper()
	x := inspect.NewIndex(limits)
	rep := must.Have(explain.Explain(context.Background(), bytes.NewReader(data), explain.Options{Slowest: slowest, Index: x}))(t)
	tr := must.Have(inspect.Open(x, bytes.NewReader(data), int64(len(data))))(t)
	return rep, tr
}

var traces = []string{"http1-long", "generations", "locks", "grpc", "tasks", "gcstress", "iterpull", "flight"}

// sharedData returns a trace of an HTTP server over several generations.
func sharedData(t *testing.T) []byte {
	sharedTrace.Do(func() { sharedTrace.data = testprog.Trace(t, "http1-long") })
	if sharedTrace.data == nil {
		t.Skip("there is no recording")
	}
	return sharedTrace.data
}

// sharedTrace is read once: with testfull.IsEnabled each reading is another run of the program.
var sharedTrace struct {
	sync.Once
	data []byte
}

// shared is the opened index of sharedData, for all tests that only query it. It keeps only one decoded
// generation: no answer may depend on that.
var shared struct {
	sync.Once
	rep *report.Report
	tr  *inspect.Trace
}

func openShared(t *testing.T) (*report.Report, *inspect.Trace) {
	t.Helper()
	data := sharedData(t) // skips the calling test if there is no recording
	s := &shared
	s.Do(func() { s.rep, s.tr = explainAndOpen(t, data, inspect.Limits{Generations: 1}) })
	must.True(t, s.tr != nil, "the first test could not open it")
	return s.rep, s.tr
}

// eachTrace runs a test in parallel for each of some recordings.
func eachTrace(t *testing.T, names []string, test func(t *testing.T, data []byte)) {
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && name == "http1-long" {
				t.Skip("takes seconds")
			}
			test(t, testprog.Trace(t, name))
		})
	}
}

// TestSameAsReport compares all answers about requests with the report: the same requests, with the same ids,
// segments, lanes and sums, whether generations are cached or decoded again.
func TestSameAsReport(t *testing.T) {
	eachTrace(t, traces, func(t *testing.T, data []byte) {
		rep, tr := explainAndOpen(t, data, inspect.Limits{})
		compareRequests(t, rep, tr, false)
		if f := tr.Facts(); f.DecodedAgain > 0 {
			t.Errorf("%d generations were decoded again unnecessarily", f.DecodedAgain)
		}
		tr = openIndex(t, data, inspect.Limits{Generations: 1})
		compareRequests(t, rep, tr, true)
		if f := tr.Facts(); f.Requests > 0 && f.DecodedAgain == 0 {
			t.Errorf("no generation was decoded again, %d are in memory", f.Decoded)
		}
	})
}

func compareRequests(t *testing.T, rep *report.Report, tr *inspect.Trace, sampled bool) {
	t.Helper()
	ctx := context.Background()
	rows := allRowsOf(t, tr, inspect.Query{})
	byID := map[string]inspect.Row{}
	for _, r := range rows {
		byID[r.ID] = r
	}
	count := 0
	for gi := range rep.Groups {
		g := &rep.Groups[gi]
		count += g.Count + g.Open.Count
		// Decoding again for each of thousands of requests would take minutes.
		step := 1
		if sampled {
			step += len(g.Slowest) / 40
		}
		for i := 0; i < len(g.Slowest); i += step {
			want := &g.Slowest[i]
			row, ok := byID[want.ID]
			must.True(t, ok, "%s: request %s of the report is not in the index", g.Name, want.ID)
			check.True(t, row.StartNS == want.StartNS && row.LatencyNS == want.LatencyNS && row.Goroutine == want.Goroutine && row.Group == g.ID,
				"%s: row %+v, report %d %d %d", g.Name, row, want.StartNS, want.LatencyNS, want.Goroutine)
			got := must.Have(tr.Request(ctx, row.N))(t)
			if a, b := asJSON(t, got), asJSON(t, want); a != b {
				t.Fatalf("%s: opened\n%s\nreport\n%s", g.Name, a, b)
			}
		}
		page := must.Have(tr.Requests(ctx, inspect.Query{Group: g.ID}))(t)
		open := int64(0)
		for _, r := range allRowsOf(t, tr, inspect.Query{Group: g.ID, OnlyOpen: true}) {
			open += r.LatencyNS
		}
		if page.Total != g.Count+g.Open.Count || page.TotalNS-open != g.TotalNS {
			t.Errorf("%s: %d requests of %d ns in the index, %d + %d open of %d ns in the report", g.Name, page.Total, page.TotalNS-open, g.Count, g.Open.Count, g.TotalNS)
		}
		compareCauses(t, g, page, allRowsOf(t, tr, inspect.Query{Group: g.ID, OnlyOpen: true}))
	}
	check.True(t, len(rows) == count, "%d rows in the index, %d requests in the report", len(rows), count)
}

// compareCauses compares the causes of a group with those of its band of all requests.
func compareCauses(t *testing.T, g *report.Group, page *inspect.Page, open []inspect.Row) {
	t.Helper()
	want := map[string]int64{}
	for _, c := range g.Bands[0].Causes {
		want[string(c.Cause)] += c.TotalNS
	}
	if want["other"] != 0 {
		return
	}
	got := map[string]int64{}
	for _, c := range page.Causes {
		got[c.Cause] = c.NS
	}
	for _, r := range open {
		for _, c := range r.Causes {
			if got[c.Cause] -= c.NS; got[c.Cause] == 0 {
				delete(got, c.Cause)
			}
		}
	}
	check.True(t, fmt.Sprint(got) == fmt.Sprint(want), "%s: causes in the index %v, in the report %v", g.Name, got, want)
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b := must.Have(json.Marshal(v))(t)
	return string(b)
}

// allRowsOf returns all rows of a query, page by page.
func allRowsOf(t *testing.T, tr *inspect.Trace, q inspect.Query) []inspect.Row {
	t.Helper()
	var out []inspect.Row
	q.Limit = 97
	for {
		p := must.Have(tr.Requests(context.Background(), q))(t)
		out = append(out, p.Rows...)
		if len(p.Rows) == 0 || len(out) == p.Total {
			must.True(t, len(out) == p.Total, "%d rows of %d", len(out), p.Total)
			return out
		}
		q.Offset += len(p.Rows)
	}
}

// TestStrips compares the content of lanes with the timelines: at each zoom, the time in each state is that of the
// spans, cut at the tile.
func TestStrips(t *testing.T) {
	eachTrace(t, traces[:3], func(t *testing.T, data []byte) {
		win, _ := timelinetest.DecodeWindow(t, data)
		rep, tr := explainAndOpen(t, data, inspect.Limits{Generations: 1})
		start, d := win.Start(), rep.Input.DurationNS
		gs, _, err := tr.Goroutines(context.Background(), inspect.GoroutineQuery{Limit: 40, Sort: "pieces", Descending: true})
		must.Do(t, err)
		lanes := make([]inspect.Lane, 0, 48)
		for p := range rep.Input.GOMAXPROCS {
			lanes = append(lanes, inspect.Lane{Kind: inspect.ProcLane, ID: uint64(p)})
		}
		for _, g := range gs {
			lanes = append(lanes, inspect.Lane{ID: g.ID})
		}
		for _, z := range []struct {
			from, to int64
			buckets  int
		}{{0, d, 100}, {0, d, 4096}, {d / 3, d/3 + d/10, 700}, {d / 2, d/2 + d/1000 + 1, 50}, {d / 2, d/2 + 100, 50}, {d - d/20, d + 1e9, 64}, {d / 4, d / 2, 3}} {
			got := must.Have(tr.Strips(context.Background(), inspect.Tile{From: z.from, To: z.to, Buckets: z.buckets, Lanes: lanes}))(t)
			to := min(z.to, d)
			must.True(t, len(got.Strips) == len(lanes), "%d strips for %d lanes", len(got.Strips), len(lanes))
			for i, s := range got.Strips {
				sum := stripTimes(&s, z.from, to)
				if s.Lane.Kind == inspect.ProcLane {
					want := int64(0)
					win.EachRun(start+z.from, start+to, func(r timeline.Run) {
						if r.P == uint32(s.Lane.ID) {
							want += r.To - r.From
						}
					})
					checkNear(t, fmt.Sprintf("%v P%d", z, s.Lane.ID), sum[timeline.Running], want, z.buckets, s.Sums != nil)
					continue
				}
				want := spanTimes(win, lanes[i].ID, start+z.from, start+to)
				for st := range want {
					checkNear(t, fmt.Sprintf("%v G%d state %d", z, s.Lane.ID, st), sum[st], want[st], z.buckets, s.Sums != nil)
				}
			}
		}
	})
}

// checkNear compares times; where a tile's border cuts a cell of a sum, the cell's
// time is taken as spread evenly.
func checkNear(t *testing.T, name string, got, want int64, buckets int, summed bool) {
	t.Helper()
	slack := int64(0)
	if summed {
		slack = 2<<20 + int64(buckets)*64
	}
	check.True(t, got >= want-slack && got <= want+slack, "%s: %d ns, by the timelines %d", name, got, want)
}

func stripTimes(s *inspect.Strip, from, to int64) (out [timeline.NotAlive]int64) {
	if s.Sums != nil {
		for st, b := range s.Sums {
			for _, ns := range b {
				out[st] += ns
			}
		}
	}
	for _, p := range s.Pieces {
		out[p.State] += min(p.To, to) - max(p.From, from)
	}
	return out
}

func spanTimes(win *timeline.Window, g uint64, from, to int64) (out [timeline.NotAlive]int64) {
	for _, s := range win.Spans(g, from, to, nil) {
		if s.State != timeline.Unknown && s.State != timeline.NotAlive {
			out[s.State] += max(0, min(s.End, to)-max(s.Start, from))
		}
	}
	return out
}

// TestRunTimes compares the running times of goroutines with the timelines, for the whole trace and for a part,
// and the pages of a list with the list.
func TestRunTimes(t *testing.T) {
	eachTrace(t, traces[:3], func(t *testing.T, data []byte) {
		win, _ := timelinetest.DecodeWindow(t, data)
		rep, tr := explainAndOpen(t, data, inspect.Limits{})
		ctx, start, d := context.Background(), win.Start(), rep.Input.DurationNS
		for _, z := range [][2]int64{{0, 0}, {0, d}, {d / 3, d / 2}} {
			to := z[1]
			to = cmp.Or(to, d)
			want := map[uint64]int64{}
			win.EachRun(start+z[0], start+to, func(r timeline.Run) { want[r.G] += r.To - r.From })
			q := inspect.GoroutineQuery{Sort: "run", Descending: true, From: z[0], To: z[1], Limit: 7}
			var list []inspect.Goroutine
			for {
				q.Offset = len(list)
				page, total, err := tr.Goroutines(ctx, q)
				must.Do(t, err)
				if list = append(list, page...); len(page) == 0 {
					check.True(t, len(list) == total, "%v: pages hold %d of %d goroutines", z, len(list), total)
					break
				}
			}
			for i, g := range list {
				check.True(t, g.RunNS == want[g.ID], "%v: goroutine %d ran for %d ns, by the timelines %d", z, g.ID, g.RunNS, want[g.ID])
				delete(want, g.ID)
				if i > 0 && (list[i-1].RunNS < g.RunNS || list[i-1].RunNS == g.RunNS && list[i-1].ID > g.ID) {
					t.Errorf("%v: goroutine %d follows %d", z, g.ID, list[i-1].ID)
				}
			}
			for id, ns := range want {
				check.True(t, ns == 0, "%v: goroutine %d ran for %d ns and is not listed", z, id, ns)
			}
		}
	})
}

// TestSearch searches for functions whose goroutines and requests are known.
func TestSearch(t *testing.T) {
	data := testprog.Trace(t, "locks")
	win, syms := timelinetest.DecodeWindow(t, data)
	tr := openIndex(t, data, inspect.Limits{})
	ctx := context.Background()
	fns, total := tr.Functions("MUTEX).lock", 5)
	must.True(t, len(fns) != 0 && total >= len(fns) && strings.Contains(strings.ToLower(fns[0].Name), "mutex).lock"), "functions: %v of %d", fns, total)
	// Find all goroutines that ever wait, run or call with such a stack.
	const text = "sync.(*Mutex).Lock"
	want := map[uint64]bool{}
	for _, g := range win.Gens {
		g.Goroutines(func(id uint64) {
			for _, s := range win.Spans(id, win.Start()-1, g.End+1, nil) {
				if s.Origin == timeline.OriginCreated {
					continue
				}
				for _, f := range syms.Stack(s.Stack) {
					if strings.Contains(syms.String(syms.Frame(f).Func), text) {
						want[id] = true
					}
				}
			}
		})
	}
	got, n, err := tr.Goroutines(ctx, inspect.GoroutineQuery{Function: text, OnStack: true, Limit: inspect.MaxRows})
	must.Do(t, err)
	check.True(t, n >= len(want) && len(want) != 0, "%d goroutines show %s, at least %d do", n, text, len(want))
	for _, g := range got {
		delete(want, g.ID)
	}
	if n <= inspect.MaxRows && len(want) > 0 {
		t.Errorf("not found: %v", want)
	}
	if _, n, err := tr.Goroutines(ctx, inspect.GoroutineQuery{Function: "no such function", OnStack: true}); err != nil || n != 0 {
		t.Errorf("%d goroutines show an unknown function, %v", n, err)
	}
}

// TestRequestsShowing compares the search for requests by function with their segments: a request is found if the
// site of one of its segments, or of a wait on its path, is in the function.
func TestRequestsShowing(t *testing.T) {
	rep, tr := openShared(t)
	want, fn := map[string]bool{}, ""
	for _, g := range rep.Groups {
		for _, r := range g.Slowest {
			for _, s := range r.Segments {
				if s.Site != nil && fn == "" && strings.HasPrefix(s.Site.Func, "main.") {
					fn = s.Site.Func
				}
			}
		}
	}
	must.True(t, fn != "", "no segment has a site in package main")
	for _, g := range rep.Groups {
		for _, r := range g.Slowest {
			for _, s := range r.Segments {
				if s.Site != nil && strings.Contains(s.Site.Func, fn) {
					want[r.ID] = true
				}
			}
		}
	}
	got := map[string]bool{}
	for _, r := range allRowsOf(t, tr, inspect.Query{Function: fn}) {
		got[r.ID] = true
	}
	for id := range want {
		must.True(t, got[id], "a request with a segment in %s is not found", fn)
	}
	if p, err := tr.Requests(context.Background(), inspect.Query{}); err != nil || len(got) == 0 || len(got) > p.Total {
		t.Errorf("%d found, %v", len(got), err)
	}
	if rows := allRowsOf(t, tr, inspect.Query{Function: "no such function"}); len(rows) != 0 {
		t.Errorf("%d requests show an unknown function", len(rows))
	}
}

// TestOrder checks filters and orders, row by row.
func TestOrder(t *testing.T) {
	_, tr := openShared(t)
	allRows := allRowsOf(t, tr, inspect.Query{})
	share := func(r inspect.Row, cause string) int64 {
		for _, c := range r.Causes {
			if c.Cause == cause {
				return c.NS
			}
		}
		return 0
	}
	keys := map[string]func(r inspect.Row) int64{
		"time": func(r inspect.Row) int64 { return r.StartNS }, "latency": func(r inspect.Row) int64 { return r.LatencyNS },
		"goroutine": func(r inspect.Row) int64 { return int64(r.Goroutine) }, "sched": func(r inspect.Row) int64 { return share(r, "sched") },
	}
	for order, key := range keys {
		for _, desc := range []bool{false, true} {
			rows := allRowsOf(t, tr, inspect.Query{Sort: order, Descending: desc})
			check.True(t, len(rows) == len(allRows), "by %s there are %d rows, want %d", order, len(rows), len(allRows))
			for i := 1; i < len(rows); i++ {
				if a, b := key(rows[i-1]), key(rows[i]); desc && a < b || !desc && a > b {
					t.Fatalf("by %s, descending %v: %d before %d", order, desc, a, b)
				}
			}
		}
	}
	mid := allRows[len(allRows)/2]
	filters := []struct {
		q    inspect.Query
		keep func(r inspect.Row) bool
	}{
		{inspect.Query{Min: mid.LatencyNS}, func(r inspect.Row) bool { return r.LatencyNS >= mid.LatencyNS }},
		{inspect.Query{Max: mid.LatencyNS, From: mid.StartNS}, func(r inspect.Row) bool { return r.LatencyNS <= mid.LatencyNS && r.StartNS >= mid.StartNS }},
		{inspect.Query{To: mid.StartNS, Goroutine: mid.Goroutine}, func(r inspect.Row) bool { return r.StartNS < mid.StartNS && r.Goroutine == mid.Goroutine }},
		{inspect.Query{Cause: "cpu", MinShare: 0.5}, func(r inspect.Row) bool {
			return share(r, "cpu") > 0 && float64(share(r, "cpu")) >= 0.5*float64(r.LatencyNS)
		}},
	}
	for _, f := range filters {
		want := 0
		for _, r := range allRows {
			if f.keep(r) {
				want++
			}
		}
		got := allRowsOf(t, tr, f.q)
		check.True(t, len(got) == want, "%+v: %d rows, want %d", f.q, len(got), want)
		for _, r := range got {
			check.True(t, f.keep(r), "%+v: %+v", f.q, r)
		}
	}
	for _, q := range []inspect.Query{{Group: "x"}, {Cause: "x"}, {Sort: "x"}} {
		if _, err := tr.Requests(context.Background(), q); err == nil {
			t.Errorf("%+v: no error", q)
		}
	}
	position, before, after, err := tr.Position(context.Background(), inspect.Query{Sort: "latency", Descending: true}, mid.N)
	must.True(t, err == nil && position >= 0, "position %d, %v", position, err)
	rows := allRowsOf(t, tr, inspect.Query{Sort: "latency", Descending: true})
	if rows[position].N != mid.N || position > 0 && rows[position-1].N != before || position+1 < len(rows) && rows[position+1].N != after {
		t.Errorf("position %d between %d and %d differs from the rows", position, before, after)
	}
	if n, ok := tr.Find(mid.ID); !ok || n != mid.N {
		t.Errorf("found %d %v by id, want %d", n, ok, mid.N)
	}
}

// TestLimits checks that an index observes its limits and keeps the slowest requests.
func TestLimits(t *testing.T) {
	_, whole := openShared(t)
	allRows := allRowsOf(t, whole, inspect.Query{Sort: "latency", Descending: true})
	const limit = 200
	must.True(t, len(allRows) >= 2*limit, "only %d requests", len(allRows))
	limited := openIndex(t, sharedData(t), inspect.Limits{Requests: limit, Goroutines: 10})
	f := limited.Facts()
	check.True(t, f.Requests <= limit && f.Requests >= limit/4 && f.RequestsSeen == len(allRows) && f.Goroutines == 10 && f.AtLeastNS != 0, "%+v", f)
	for i, r := range allRowsOf(t, limited, inspect.Query{Sort: "latency", Descending: true}) {
		must.True(t, r.LatencyNS == allRows[i].LatencyNS, "row %d has %d ns, the %d slowest have %d", i, r.LatencyNS, i, allRows[i].LatencyNS)
		if _, err := limited.Request(context.Background(), r.N); err != nil && i < 5 {
			t.Error(err)
		}
	}
}

// TestConcurrentQueries makes many queries concurrently, for the race detector.
func TestConcurrentQueries(t *testing.T) {
	rep, tr := openShared(t)
	ctx := context.Background()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for k := range 2 {
				n := (i*31 + k*7) % tr.Facts().Requests
				if _, err := tr.Request(ctx, n); err != nil {
					t.Error(err)
				}
				from := rep.Input.DurationNS / 7 * int64(k)
				if _, err := tr.Strips(ctx, inspect.Tile{From: from, To: from + 1e8, Buckets: 300, Lanes: []inspect.Lane{{ID: uint64(i + 1)}, {Kind: inspect.ProcLane, ID: 0}}}); err != nil {
					t.Error(err)
				}
				if _, err := tr.Requests(ctx, inspect.Query{Function: fmt.Sprint("main.", string(rune('a'+i))), Limit: 3}); err != nil {
					t.Error(err)
				}
				if _, _, err := tr.Goroutines(ctx, inspect.GoroutineQuery{Function: "http", OnStack: true, Limit: 3}); err != nil {
					t.Error(err)
				}
				if _, err := tr.MomentAt(ctx, inspect.Lane{Kind: inspect.ProcLane, ID: uint64(k)}, from); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	// A cancelled query ends with an error.
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := tr.Requests(cancelled, inspect.Query{Function: "quite another"}); err == nil {
		t.Error("a cancelled search returned no error")
	}
}

// TestTileDecodesFewGenerations checks that a tile of a millisecond decodes its generation and its neighbours
// only. It detects a tile that decodes a whole window, which is hidden as long as all generations are in memory.
func TestTileDecodesFewGenerations(t *testing.T) {
	b := tracetext.New(26)
	m := b.Thread(1)
	time, ends := int64(1000), []int64{}
	for range 24 {
		for range 50 {
			m.RegionBegin(time, 0, "order", "runtime/trace.WithRegion", "main.work:7")
			m.RegionEnd(time+1e6, 0, "order")
			time += 20e6
		}
		b.NextGeneration(time)
		ends = append(ends, time)
		time += 1000
	}
	m.Block(time, "chan receive", "main.work:9")
	data := must.Have(b.Bytes())(t)
	tr := openIndex(t, data, inspect.Limits{Generations: 1})
	for _, k := range []int{8, 12, 16} {
		from := (ends[k] + ends[k+1]) / 2
		before := tr.Facts().DecodedAgain
		out := must.Have(tr.Strips(context.Background(), inspect.Tile{From: from, To: from + 1e6, Buckets: 512, Lanes: []inspect.Lane{{ID: 1}}}))(t)
		check.True(t, len(out.Strips[0].Pieces) != 0, "generation %d: the tile is empty", k+1)
		if n := tr.Facts().DecodedAgain - before; n > 3 {
			t.Errorf("generation %d: %d generations were decoded for a tile of 1 ms", k+1, n)
		}
	}
}

// TestEmptyTiles checks that an invalid tile is an error, and that a tile outside the trace has lanes without
// pieces. It fails if either reads a generation, or divides by a width of 0.
// TestMomentOfLongWait: wherever a wait over several generations is clicked, its start, end and waker are those of the whole wait.
func TestMomentOfLongWait(t *testing.T) {
	b := tracetext.New(26)
	waiter, waker := b.Thread(1), b.Thread(2)
	waiter.Block(2000, "chan receive", "main.wait:9")
	times := []int64{3000}
	for range 4 {
		last := times[len(times)-1]
		b.NextGeneration(last + 1e9)
		times = append(times, last+1e9+1000)
	}
	end := times[len(times)-1] + 400e6
	waker.Unblock(end, 1, "main.send:30")
	waiter.Start(end+1000, 1)
	waiter.Block(end+2000, "chan receive", "main.wait:9")
	tr := openIndex(t, must.Have(b.Bytes())(t), inspect.Limits{Generations: 1})
	base := int64(-1)
	for _, at := range append(times, end-1e6) {
		m := must.Have(tr.MomentAt(t.Context(), inspect.Lane{ID: 1}, at-times[0]+5000))(t)
		must.True(t, m != nil && m.Waker == 2 && m.State == "waiting", "at %d: %+v, want a wait that G2 ends", at, m)
		if base < 0 {
			base = m.StartNS
		}
		check.True(t, m.StartNS == base && m.EndNS-m.StartNS == end-2000,
			"at %d: a wait of %d ns from %d, want %d ns from %d", at, m.EndNS-m.StartNS, m.StartNS, end-2000, base)
	}
}

// TestGroupsOfGoroutines: a goroutine has the group of the requests that ended on it.
func TestGroupsOfGoroutines(t *testing.T) {
	_, tr := openShared(t)
	groups := map[uint64]map[string]bool{}
	for _, row := range allRowsOf(t, tr, inspect.Query{}) {
		if groups[row.Goroutine] == nil {
			groups[row.Goroutine] = map[string]bool{}
		}
		groups[row.Goroutine][row.Group] = true
	}
	list, _, err := tr.Goroutines(t.Context(), inspect.GoroutineQuery{Limit: 1 << 20})
	if err != nil || len(list) == 0 || len(groups) == 0 {
		t.Fatal(len(list), len(groups), err)
	}
	for _, g := range list {
		if want := groups[g.ID]; g.Mixed != (len(want) > 1) || (g.Group != "") != (len(want) > 0) || g.Group != "" && !want[g.Group] {
			t.Errorf("goroutine %d has group %q, several: %t; its requests are of %v", g.ID, g.Group, g.Mixed, want)
		}
	}
}

func TestEmptyTiles(t *testing.T) {
	data := testprog.Trace(t, "locks")
	rep, tr := explainAndOpen(t, data, inspect.Limits{Generations: 1})
	ctx, end := context.Background(), rep.Input.DurationNS
	for _, tile := range []inspect.Tile{
		{From: 0, To: 10, Buckets: 5, Lanes: make([]inspect.Lane, inspect.MaxLanes+1)},
		{From: 0, To: 10},
		{From: 0, To: 10, Buckets: inspect.MaxBuckets + 1},
		{From: 10, To: 10, Buckets: 5},
	} {
		if got, err := tr.Strips(ctx, tile); err == nil {
			t.Errorf("%d lanes from %d to %d in %d buckets: %+v", len(tile.Lanes), tile.From, tile.To, tile.Buckets, got)
		}
	}
	before := tr.Facts().DecodedAgain
	got := must.Have(tr.Strips(ctx, inspect.Tile{From: end + 10, To: end + 20, Buckets: 5, Lanes: []inspect.Lane{{ID: 1}, {Kind: inspect.ProcLane}}}))(t)
	if len(got.Strips) != 2 || got.Strips[0].Lane.ID != 1 || len(got.Strips[0].Pieces) > 0 || got.Strips[1].Lane.Kind != inspect.ProcLane || got.Strips[1].Sums != nil {
		t.Errorf("after the trace: %+v", got)
	}
	if decoded := tr.Facts().DecodedAgain - before; decoded > 0 {
		t.Errorf("%d generations were decoded for it", decoded)
	}
}
