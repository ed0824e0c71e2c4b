package moments

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

const ms = int64(1e6)

// group returns a group of 2000 requests over 10 s, each 5 ms after the one before, with a median of 1 ms.
func group() (*kept, *report.Group) {
	k := &kept{began: map[int64]int64{}}
	for i := range int64(2000) {
		k.begin(i*5*ms/scale.Slice, 1)
	}
	p50 := ms
	return k, &report.Group{ID: "g", Count: 2000, LatencyNS: report.Latency{P50: &p50}}
}

// TestMoments: of the 20 slowest, 12 begin in two stretches of some milliseconds. It would catch stretches that are missed, and
// those that are none: slow requests all over the time, or where all requests begin.
func TestMoments(t *testing.T) {
	k, g := group()
	for i := range int64(6) {
		k.add(slow{start: 2000*ms + i*2*ms, end: 2080 * ms, weight: 1})
		k.add(slow{start: 7000*ms + i*ms, end: 7100 * ms, weight: 1})
	}
	for i := range int64(8) {
		k.add(slow{start: 300*ms + i*1100*ms, end: 300*ms + i*1100*ms + 40*ms, weight: 1})
	}
	got := stretches(k, g, 10_000*ms)
	if len(got) != 2 || got[0][0].start != 2000*ms || len(got[0]) != 6 || got[1][5].start != 7005*ms {
		t.Fatalf("the stretches are %+v", got)
	}

	k, g = group()
	for i := range int64(20) {
		k.add(slow{start: i * 500 * ms, end: i*500*ms + 40*ms, weight: 1})
	}
	if got := stretches(k, g, 10_000*ms); len(got) != 0 {
		t.Errorf("of slow requests all over the time: %+v", got)
	}

	k, g = group()
	k.began = map[int64]int64{200: 1200, 500: 800} // all begin where the slow ones do
	for i := range int64(20) {
		k.add(slow{start: 2000*ms + i*ms/10, end: 2080 * ms, weight: 1})
	}
	if got := stretches(k, g, 10_000*ms); len(got) != 0 {
		t.Errorf("where all requests begin: %+v", got)
	}
}

// TestTwoOrThreeAreNoMoment: two or three slow requests that begin together meet by chance, four do not. It fails if fewer than four make a
// moment.
func TestTwoOrThreeAreNoMoment(t *testing.T) {
	for n, want := range map[int64]int{2: 0, 3: 0, 4: 5} {
		k, g := group()
		for i := range int64(20) {
			at := i/n*900*ms + i%n*ms
			k.add(slow{start: at, end: at + 40*ms, weight: 1})
		}
		if got := stretches(k, g, 10_000*ms); len(got) != want {
			t.Errorf("of twenty slow requests, %d of which begin together at a time: %d moments, want %d", n, len(got), want)
		}
	}
}

// TestApart: requests that were open at the same time were late once. It would catch requests counted one by one, one that
// ends in the middle of another taken for the end of both, and faster ones that join two moments.
func TestApart(t *testing.T) {
	k, _ := group()
	for _, r := range [][2]int64{{100, 130}, {101, 115}, {120, 131}, {132, 133}, {500, 520}, {519, 540}, {541, 560}} {
		k.add(slow{start: r[0] * ms, end: r[1] * ms, weight: 1})
	}
	for least, want := range map[int64]int{10 * ms: 3, 20 * ms: 2, ms: 4, 100 * ms: 0} {
		if got := k.apart(least); got != want {
			t.Errorf("those of %d ms and more are in %d moments, want %d", least/ms, got, want)
		}
	}
}

// TestWithin: the share of the time waited that lies in ranges is what adding up each wait's part in them says. It would
// catch waits over many grains, in one grain, and over the ends of ranges that are told wrong, and ranges counted twice.
func TestWithin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var w, other waiting
		var waits [][3]int64
		for range 1 + r.IntN(60) {
			from := r.Int64N(200 * ms)
			to := from + 1 + r.Int64N(1<<(1+r.IntN(27)))
			waits = append(waits, [3]int64{from, to, 1 + r.Int64N(3)})
			if k := &waits[len(waits)-1]; r.IntN(2) == 0 {
				w.add(k[0], k[1], k[2])
			} else {
				other.add(k[0], k[1], k[2])
			}
		}
		w.merge(&other)
		var ranges [][2]int64
		for range r.IntN(6) {
			from := r.Int64N(200) * waitNS
			ranges = append(ranges, [2]int64{from, from + (1+r.Int64N(30))*waitNS})
		}
		ranges = union(ranges)
		in, all := int64(0), int64(0)
		for _, k := range waits {
			all += (k[1] - k[0]) * k[2]
			for _, x := range ranges {
				in += max(0, min(k[1], x[1])-max(k[0], x[0])) * k[2]
			}
		}
		if got, want := w.within(ranges), float64(in)/float64(all); got < want-1e-9 || got > want+1e-9 {
			t.Fatalf("%v of %v within %v, want %v", got, waits, ranges, want)
		}
	}
}

// TestTooManyWaits: waits all over a very long trace are not kept, and nothing is said of them. It would catch memory that
// grows with the trace, and a share of what is left.
func TestTooManyWaits(t *testing.T) {
	var w, other waiting
	for i := range int64(maxPages + 1) {
		at := i * pageLen * waitNS
		w.add(at, at+ms, 1)
		if i == 5 {
			other.add(at, at+ms, 1)
		}
	}
	if w.pages != nil || w.within([][2]int64{{0, 1 << 50}}) != 0 {
		t.Error("more pages than may be are kept, or spoken of")
	}
	if other.merge(&w); other.within([][2]int64{{0, 1 << 50}}) != 0 {
		t.Error("merged with too many, those that are left speak for all")
	}
}

// TestTell: a collection that covers the stretch is told, one that goes on for most of the time is not; a herd is told with how
// many it is, and only where it runs.
func TestTell(t *testing.T) {
	list := []report.Moment{{StartNS: 2000 * ms, EndNS: 2010 * ms, UntilNS: 2080 * ms, Slow: 6}, {StartNS: 7000 * ms, EndNS: 7005 * ms, UntilNS: 7100 * ms, Slow: 6}}
	series := &report.Series{GC: [][2]int64{{1995 * ms, 60 * ms}}, STW: [][2]int64{{0, 9000 * ms}}}
	Tell(list, series, []process.Flock{{Start: "main.tick", FromNS: 6999 * ms, ToNS: 7040 * ms, N: 10_000}}, 10_000*ms)
	if w := list[0].With; len(w) != 1 || w[0].Kind != report.MomentGC || w[0].Text != "garbage was collected for 55.0ms of it" {
		t.Errorf("beside the first: %+v", w)
	}
	if w := list[1].With; len(w) != 1 || w[0].Kind != report.MomentHerd || w[0].Count != 10_000 {
		t.Errorf("beside the second: %+v", w)
	}
}

// TestKeepsTheSlowest: of more requests than are kept, exactly the slowest are, whatever the order in which they come; also when
// those of several workers are put together. A heap that sifts to the wrong child fails.
func TestKeepsTheSlowest(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	all := make([]slow, 3*keep)
	for i := range all {
		start := int64(i) * 10
		all[i] = slow{start: start, end: start + int64(rnd.IntN(500)), g: uint64(i), weight: 1}
	}
	want := slices.SortedFunc(slices.Values(all), slowerFirst)[:keep]
	for range 5 {
		rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		var parts [2]kept
		for i, r := range all {
			parts[i%2].add(r)
		}
		var k kept
		for i := range parts {
			for _, r := range parts[i].slow {
				k.add(r)
			}
		}
		if k.cut(); !slices.Equal(k.slow, want) {
			t.Fatal("not the slowest are kept")
		}
	}
}

// TestWhereRequestsBegin: requests are counted in the stretch of time in which they began, in whichever order they come and however
// many each stands for; where there are too many stretches nothing is counted any more. It fails if they are counted with the next:
// by that a burst of requests would be told as a moment in which they were slow.
func TestWhereRequestsBegin(t *testing.T) {
	k := &kept{began: make(map[int64]int64)}
	for _, r := range [][2]int64{{3, 1}, {3, 1}, {0, 1}, {5, 10}, {3, 1}, {5, 1}, {6, 2}, {6, 2}} {
		k.begin(r[0], r[1])
	}
	k.settle()
	k.settle() // a second time nothing is left
	if want := map[int64]int64{0: 1, 3: 3, 5: 11, 6: 4}; !maps.Equal(k.began, want) {
		t.Errorf("began %v, want %v", k.began, want)
	}
	for i := range int64(maxBegan + 1) {
		k.begin(i, 1)
	}
	k.settle()
	if k.begin(7, 1); !k.over || k.began != nil {
		t.Errorf("%d stretches are kept", len(k.began))
	}
}

// TestNoMomentOfAShortTrace: what is a moment of ten seconds is none of three, whatever the trace's clock says at its beginning. It
// fails if the clock is taken for the length, by which all that is slow for a while would be a moment.
func TestNoMomentOfAShortTrace(t *testing.T) {
	const clock = 3_600_000 * ms
	k, g := group()
	g.Role = report.RoleRequests
	for i := range int64(20) { // over 171 ms
		at := clock + 1000*ms + i*9*ms
		k.add(slow{start: at, end: at + 40*ms, weight: 1})
	}
	if got := stretches(k, g, 10_000*ms); len(got) != 1 {
		t.Fatalf("of ten seconds: %+v", got)
	}
	sum := New()
	sum.all.groups = []*kept{k}
	syms := tracefmt.NewSymbols().Snapshot()
	ids := path.New(&timeline.Window{}, &syms, path.Options{}).IDs
	if got := sum.Find(0, g, ids, &spell.Speller{Syms: &syms, Start: clock, End: clock + 3000*ms}); len(got) != 0 {
		t.Errorf("of three seconds: %+v", got)
	}
}
