package timeline

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// traceOfLongRuns returns a trace in which goroutine 1 has a few runs with very many events of all kinds, in two
// generations.
func traceOfLongRuns(t *testing.T) *decoded {
	t.Helper()
	b := tracetext.New(26)
	m, o := b.Thread(1), b.Thread()
	rnd := rand.New(rand.NewPCG(7, 8))
	time, id := int64(1000), uint64(100)
	for run := range 6 {
		for range 700 + 900*(run%2) {
			time += 100
			switch place := fmt.Sprintf("main.work:%d", 10+rnd.IntN(3+37*(run&1))); rnd.IntN(8) {
			case 0:
				m.Syscall(time, "syscall.write", place)
				m.SyscallEnd(time + 30)
			case 1:
				m.AssistBegin(time, "runtime.gcAssistAlloc", place)
				m.Create(time+10, id, "main.child", place)
				m.AssistEnd(time + 40)
				o.Start(time+50, id)
				o.Destroy(time + 60)
				id++
			case 2:
				m.StopWorld(time, "reading", "runtime.stopTheWorld", place)
				m.StartWorld(time + 20)
			default:
				m.RegionBegin(time, 0, "r", "runtime/trace.WithRegion", place)
				m.RegionEnd(time+10, 0, "r")
			}
		}
		time += 1000
		switch {
		case run == 2:
			b.NextGeneration(time)
		case run%2 == 0:
			m.Stop(time, "preempted", "main.work:1")
			m.Start(time+500, 1)
		default:
			m.Block(time, "chan receive", "main.work:2")
			o.Unblock(time+200, 1)
			m.Start(time+500, 1)
		}
		time += 600
	}
	data := must.Have(b.Bytes())(t)
	checkAgainstReference(t, data)
	return decodeAll(data, 2)
}

// TestLongRuns checks that the spans of long runs are equal for each begin of the query.
func TestLongRuns(t *testing.T) {
	in := traceOfLongRuns(t)
	for range 20 {
		checkWindows(t, in)
	}
	check.True(t, len(in.gens[0].longRuns) != 0 && len(in.gens[1].longRuns) != 0,
		"no run was entered in its middle, so the test proves nothing")
}

// TestSpansCoarse checks that spans with less detail have the same total time of each kind, without gaps.
func TestSpansCoarse(t *testing.T) {
	type timeKind struct {
		state       State
		stack       tracefmt.StackID
		assist, stw bool
	}
	in := traceOfLongRuns(t)
	win := Window{Gens: in.gens}
	rnd := rand.New(rand.NewPCG(1, 2))
	whole := win.Spans(1, BeforeTrace, math.MaxInt64, nil)
	start, end := whole[1].Start, in.gens[len(in.gens)-1].End
	shorter := 0
	for range 200 {
		from := start + rnd.Int64N(end-start)
		to := from + 1 + rnd.Int64N(end-from)
		exact, coarse := win.Spans(1, from, to, nil), win.SpansCoarse(1, from, to, nil)
		must.True(t, len(coarse) <= len(exact), "[%d, %d): %d spans instead of %d", from, to, len(coarse), len(exact))
		if len(coarse) < len(exact) {
			shorter++
		}
		check.True(t, len(coarse) <= 3000, "[%d, %d): %d spans", from, to, len(coarse))
		sums := map[timeKind]int64{}
		states := map[State]int64{}
		for _, s := range exact {
			sums[timeKind{s.State, s.Stack, s.Assist, s.InSTW}] += s.End - s.Start
			states[s.State] += s.End - s.Start
		}
		for i, s := range coarse {
			if i > 0 && s.Start != coarse[i-1].End {
				t.Fatalf("[%d, %d): a span ends at %d, the next begins at %d", from, to, coarse[i-1].End, s.Start)
			}
			states[s.State] -= s.End - s.Start
			if s.Stack != 0 {
				sums[timeKind{s.State, s.Stack, s.Assist, s.InSTW}] -= s.End - s.Start
			}
		}
		for s, d := range states {
			check.Equal(t, d, 0, "[%d, %d): ns of %v are missing", from, to, s)
		}
		for k, d := range sums {
			check.True(t, d >= 0, "[%d, %d): %d ns of %v are too much", from, to, -d, k)
		}
		if first, last := coarse[0], coarse[len(coarse)-1]; first != exact[0] || last.End != exact[len(exact)-1].End || last.State != exact[len(exact)-1].State {
			t.Errorf("[%d, %d): begins with %v instead of %v, or ends with %v instead of %v", from, to, first, exact[0], last, exact[len(exact)-1])
		}
	}
	check.True(t, shorter >= 20, "only %d of 200 queries returned fewer spans", shorter)
}
