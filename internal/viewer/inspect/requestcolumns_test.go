package inspect

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestRequestColumns compares the columns with the added requests, over several chunks, before and after rows are
// removed. It detects a row with the causes of another, a wrong largest cause if the causes do not add up to the
// latency, and a generation or pieces that do not move with their row.
func TestRequestColumns(t *testing.T) {
	type row struct {
		start, latency int64
		g              uint64
		group, gen     int32
		kind           request.Kind
		open, cut      bool
		causes         map[cause.Code]int64
		pieceEnds      []path.PieceEnd
	}
	rnd := rand.New(rand.NewPCG(9, 10))
	var settled cause.Settlement
	for code := range settled {
		settled[code] = cause.Cause(code % int(cause.Limit))
	}
	var c requestColumns
	c.init()
	c.settlement = &settled
	var want []row
	time := int64(1) << 47
	for i := range 5*chunkRows + 33 {
		time += rnd.Int64N(1 << rnd.IntN(33))
		w := row{
			start: time, latency: rnd.Int64N(1 << (1 + rnd.IntN(40))), g: rnd.Uint64() >> rnd.IntN(64), group: rnd.Int32N(100), gen: int32(i / 3000),
			kind: request.Kind(rnd.IntN(4)), open: rnd.IntN(9) == 0, cut: rnd.IntN(9) == 0, causes: make(map[cause.Code]int64),
		}
		remainder := w.latency
		var times []keyTime
		add := func(code cause.Code, ns int64) {
			if ns > 0 {
				times = addTime(times, timeKey(code)+codeLimit*timeKey(rnd.IntN(3)), ns)
				w.causes[code] += ns
			}
		}
		for range rnd.IntN(6) {
			ns := rnd.Int64N(remainder + 1)
			code := cause.Code(rnd.IntN(int(cause.Count)))
			if rnd.IntN(3) == 0 {
				code = cause.Pending(cause.Cause(code), 3)
			}
			add(code, ns)
			remainder -= ns
		}
		if rnd.IntN(4) > 0 { // otherwise the causes do not add up to the latency
			add(cause.Code(rnd.IntN(int(cause.Count))), remainder)
		}
		if rnd.IntN(500) == 0 {
			w.pieceEnds = []path.PieceEnd{{Time: w.start + 1, G: w.g}, {Time: w.start + 2, G: w.g + 1}}
		}
		r := request.Request{Kind: w.kind, Open: w.open, CutAtStart: w.cut}
		c.add(&addedRequest{group: groupRef(w.group), kind: w.kind, start: w.start, end: w.start + w.latency, g: w.g, detail: appendDetail(nil, &r, w.latency, times), pieceEnds: w.pieceEnds}, int(w.gen))
		want = append(want, w)
	}
	check := func() {
		t.Helper()
		must.True(t, c.rows() == len(want), "%d rows, should be %d", c.rows(), len(want))
		for k, w := range want {
			i := int32(k)
			got := row{
				start: c.start(i), latency: c.latency(i), g: c.goroutine(i), group: c.group(i), gen: c.gen(i), kind: c.kind(i),
				open: c.flags(i)&flagOpen != 0, cut: c.flags(i)&flagCut != 0,
			}
			if got.start != w.start || got.latency != w.latency || got.g != w.g || got.group != w.group || got.gen != w.gen || got.kind != w.kind || got.open != w.open || got.cut != w.cut {
				t.Fatalf("row %d is %+v, should be %+v", k, got, w)
			}
			must.True(t, slices.Equal(c.pieceEnds[i], w.pieceEnds),
				"row %d has the pieces %v, should have %v", k, c.pieceEnds[i], w.pieceEnds)
			sums := make(map[cause.Cause]int64)
			for code, ns := range w.causes {
				sums[settled[code]] += ns
			}
			gotCauses := make(map[cause.Cause]int64)
			c.eachCauseTime(i, func(k cause.Cause, ns int64) { gotCauses[k] += ns })
			maps.DeleteFunc(gotCauses, func(_ cause.Cause, ns int64) bool { return ns == 0 })
			must.True(t, maps.Equal(gotCauses, sums), "row %d: causes %v, should be %v of %d", k, gotCauses, sums, w.latency)
		}
	}
	check()
	remaining := want[:0:0]
	for i, w := range want {
		if i%3 != 1 && i/1000 != 7 {
			remaining = append(remaining, w)
		}
	}
	c.filter(func(i int32) bool { return i%3 != 1 && i/1000 != 7 })
	want = remaining
	check()
	c.filter(func(int32) bool { return true })
	check()
}
