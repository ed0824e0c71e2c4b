package moments

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

const ms = int64(1e6)

// testGroup returns a group of 2000 requests over 10 s, one every 5 ms, with a median of 1 ms.
func testGroup() (*groupRecord, *report.Group) {
	k := newGroupRecord()
	for i := range int64(2000) {
		k.countBegin(i*5*ms/threshold.TimeSliceNS, 1)
	}
	p50 := ms
	return k, &report.Group{ID: "g", Count: 2000, LatencyNS: report.Latency{P50: &p50}}
}

// TestMoments: of the 20 slowest requests, 12 begin in two intervals of some milliseconds. It fails if such intervals
// are missed, or if moments are found where slow requests are spread over the trace, or where requests of any latency
// begin.
func TestMoments(t *testing.T) {
	k, g := testGroup()
	for i := range int64(6) {
		k.slowest.Add(slowRequest{start: 2000*ms + i*2*ms, end: 2080 * ms, weight: 1})
		k.slowest.Add(slowRequest{start: 7000*ms + i*ms, end: 7100 * ms, weight: 1})
	}
	for i := range int64(8) {
		k.slowest.Add(slowRequest{start: 300*ms + i*1100*ms, end: 300*ms + i*1100*ms + 40*ms, weight: 1})
	}
	got, _ := slowClusters(k, g, 10_000*ms)
	must.True(t, len(got) == 2 && got[0][0].start == 2000*ms && len(got[0]) == 6 && got[1][5].start == 7005*ms, "the clusters are %+v", got)

	k, g = testGroup()
	for i := range int64(20) {
		k.slowest.Add(slowRequest{start: i * 500 * ms, end: i*500*ms + 40*ms, weight: 1})
	}
	if got, _ := slowClusters(k, g, 10_000*ms); len(got) != 0 {
		t.Errorf("slow requests that are spread over the trace: %+v", got)
	}

	k, g = testGroup()
	k.beganByInterval = map[int64]int64{200: 1200, 500: 800} // all requests begin where the slow ones do
	for i := range int64(20) {
		k.slowest.Add(slowRequest{start: 2000*ms + i*ms/10, end: 2080 * ms, weight: 1})
	}
	if got, _ := slowClusters(k, g, 10_000*ms); len(got) != 0 {
		t.Errorf("where all requests begin: %+v", got)
	}
}

// TestTwoOrThreeAreNoMoment: two or three slow requests may begin together by chance, four do not. It fails if fewer
// than four are a moment.
func TestTwoOrThreeAreNoMoment(t *testing.T) {
	for n, want := range map[int64]int{2: 0, 3: 0, 4: 5} {
		k, g := testGroup()
		for i := range int64(20) {
			start := i/n*900*ms + i%n*ms
			k.slowest.Add(slowRequest{start: start, end: start + 40*ms, weight: 1})
		}
		if got, _ := slowClusters(k, g, 10_000*ms); len(got) != want {
			t.Errorf("twenty slow requests, of which %d begin together each time: %d moments, want %d", n, len(got), want)
		}
	}
}

// TestCountOpenIntervals: requests that are open at the same time share one interval. It fails if requests are
// counted one by one, if one that ends within another ends the interval, or if faster requests join two intervals.
func TestCountOpenIntervals(t *testing.T) {
	k, _ := testGroup()
	for _, r := range [][2]int64{{100, 130}, {101, 115}, {120, 131}, {132, 133}, {500, 520}, {519, 540}, {541, 560}} {
		k.slowest.Add(slowRequest{start: r[0] * ms, end: r[1] * ms, weight: 1})
	}
	for minLatency, want := range map[int64]int{10 * ms: 3, 20 * ms: 2, ms: 4, 100 * ms: 0} {
		if got := k.countOpenIntervals(minLatency); got != want {
			t.Errorf("requests of at least %d ms are in %d intervals, want %d", minLatency/ms, got, want)
		}
	}
}

// TestShareWithin: the share of the waited time within ranges equals the sum of each wait's overlap. It fails for
// errors with waits over many bins, within one bin, or across the ends of ranges, and for ranges that are counted
// twice.
func TestShareWithin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var w, second waitHistogram
		var waits [][3]int64
		for range 1 + r.IntN(60) {
			from := r.Int64N(200 * ms)
			to := from + 1 + r.Int64N(1<<(1+r.IntN(27)))
			waits = append(waits, [3]int64{from, to, 1 + r.Int64N(3)})
			if k := &waits[len(waits)-1]; r.IntN(2) == 0 {
				w.add(k[0], k[1], k[2])
			} else {
				second.add(k[0], k[1], k[2])
			}
		}
		w.merge(&second)
		var ranges [][2]int64
		for range r.IntN(6) {
			from := r.Int64N(200) * binNS
			ranges = append(ranges, [2]int64{from, from + (1+r.Int64N(30))*binNS})
		}
		ranges = mergeRanges(ranges)
		in, all := int64(0), int64(0)
		for _, k := range waits {
			all += (k[1] - k[0]) * k[2]
			for _, x := range ranges {
				in += max(0, min(k[1], x[1])-max(k[0], x[0])) * k[2]
			}
		}
		if got, want := w.shareWithin(ranges), float64(in)/float64(all); got < want-1e-9 || got > want+1e-9 {
			t.Fatalf("%v of %v within %v, want %v", got, waits, ranges, want)
		}
	}
}

// TestTooManyWaits: waits over a very long trace are dropped, and the share is 0. It fails if memory grows with the
// trace, or if remaining waits produce a share.
func TestTooManyWaits(t *testing.T) {
	var w, small waitHistogram
	for i := range int64(maxPages + 1) {
		start := i * binsPerPage * binNS
		w.add(start, start+ms, 1)
		if i == 5 {
			small.add(start, start+ms, 1)
		}
	}
	check.True(t, w.pages == nil && w.shareWithin([][2]int64{{0, 1 << 50}}) == 0, "too many pages are stored, or used")
	if small.merge(&w); small.shareWithin([][2]int64{{0, 1 << 50}}) != 0 {
		t.Error("after a merge with an overflown histogram, the remaining waits have a share")
	}
}

// TestAddEvents: a collection that covers a moment is added, a stop of the world that covers most of the trace is
// not. A herd is added with its size, and only where it runs.
func TestAddEvents(t *testing.T) {
	list := []report.Moment{{StartNS: 2000 * ms, EndNS: 2010 * ms, UntilNS: 2080 * ms, Slow: 6}, {StartNS: 7000 * ms, EndNS: 7005 * ms, UntilNS: 7100 * ms, Slow: 6}}
	series := &report.Series{GC: [][2]int64{{1995 * ms, 60 * ms}}, STW: [][2]int64{{0, 9000 * ms}}}
	AddEvents(list, series, []process.HerdWakeup{{Start: "main.tick", FromNS: 6999 * ms, ToNS: 7040 * ms, Goroutines: 10_000}}, 10_000*ms)
	if w := list[0].With; len(w) != 1 || w[0].Kind != report.MomentGC || w[0].Text != "garbage was collected for 55.0ms of it" {
		t.Errorf("events of the first moment: %+v", w)
	}
	if w := list[1].With; len(w) != 1 || w[0].Kind != report.MomentHerd || w[0].Count != 10_000 {
		t.Errorf("events of the second moment: %+v", w)
	}
}

// TestWhereRequestsBegin: requests are counted in the interval in which they began, in any order and with any weight.
// If there are too many intervals, nothing is counted. It fails if requests are counted in the next interval: then a
// burst of requests would seem to be a moment in which they were slow.
func TestWhereRequestsBegin(t *testing.T) {
	k := newGroupRecord()
	for _, r := range [][2]int64{{3, 1}, {3, 1}, {0, 1}, {5, 10}, {3, 1}, {5, 1}, {6, 2}, {6, 2}} {
		k.countBegin(r[0], r[1])
	}
	k.flushBegins()
	k.flushBegins() // must add nothing
	if want := map[int64]int64{0: 1, 3: 3, 5: 11, 6: 4}; !maps.Equal(k.beganByInterval, want) {
		t.Errorf("began %v, want %v", k.beganByInterval, want)
	}
	for i := range int64(maxIntervals + 1) {
		k.countBegin(i, 1)
	}
	k.flushBegins()
	k.countBegin(7, 1)
	check.True(t, k.hasOverflowed && k.beganByInterval == nil, "%d intervals are stored", len(k.beganByInterval))
}

// TestNoMomentOfAShortTrace: the same cluster is a moment in a trace of ten seconds, but not in one of three,
// whatever the trace's clock shows at the beginning. It fails if the clock is used as the length of the trace.
func TestNoMomentOfAShortTrace(t *testing.T) {
	const clock = 3_600_000 * ms
	k, g := testGroup()
	g.Role = report.RoleRequests
	for i := range int64(20) { // over 171 ms
		start := clock + 1000*ms + i*9*ms
		k.slowest.Add(slowRequest{start: start, end: start + 40*ms, weight: 1})
	}
	if got, _ := slowClusters(k, g, 10_000*ms); len(got) != 1 {
		t.Fatalf("in ten seconds: %+v", got)
	}
	sum := New()
	sum.merged.groups = []*groupRecord{k}
	syms := tracefmt.NewSymbols().Snapshot()
	ids := path.New(&timeline.Window{}, &syms, path.Options{}).IDs
	if got := sum.Find(0, g, ids, &spell.Speller{Syms: &syms, Start: clock, End: clock + 3000*ms}); len(got) != 0 {
		t.Errorf("in three seconds: %+v", got)
	}
}
