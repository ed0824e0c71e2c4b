package timeline

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// checkWindows checks that the spans of a part of a goroutine's life are that part of all spans.
func checkWindows(t *testing.T, in *decoded) {
	t.Helper()
	if len(in.gens) == 0 {
		return
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	win := Window{Gens: in.gens}
	var full, part []Span
	for _, id := range goroutines(in.gens) {
		full = win.Spans(id, BeforeTrace, math.MaxInt64, full[:0])
		checkLife(t, id, full)
		if !inOrder(full) {
			continue // without an order of times there is no search; see TestOracleReferenceTraces
		}
		tries := 4
		if len(full) > 50 {
			tries = 40
		}
		for range tries {
			s := full[rnd.IntN(len(full))]
			from := max(s.Start, win.Start()-1)
			if !inRange(s.End) || rnd.IntN(2) == 0 {
				from += rnd.Int64N(200) - 100
			} else if s.End > from {
				from += rnd.Int64N(s.End - from)
			}
			to := from + 1 + rnd.Int64N(1<<rnd.IntN(32))
			part = win.Spans(id, from, to, part[:0])
			if !checkPart(t, id, from, to, full, part) {
				return
			}
		}
	}
}

func inRange(t int64) bool { return t != BeforeTrace && t != math.MaxInt64 }

func inOrder(spans []Span) bool {
	for i := 1; i < len(spans); i++ {
		if spans[i].Start < spans[i-1].Start || spans[i].Start < spans[i-1].End {
			return false
		}
	}
	return true
}

// checkLife checks that a goroutine's spans follow each other without a gap, with transitions that exist.
func checkLife(t *testing.T, id uint64, spans []Span) {
	t.Helper()
	allowed := map[[2]State]bool{
		{Running, Running}: true, {Running, Runnable}: true, {Running, Waiting}: true, {Running, Syscall}: true, {Running, NotAlive}: true,
		{Runnable, Running}: true, {Waiting, Runnable}: true, {Waiting, Running}: true,
		{Syscall, Running}: true, {Syscall, Runnable}: true, {Syscall, NotAlive}: true, {NotAlive, Syscall}: true,
	}
	for i := 1; i < len(spans); i++ {
		a, b := spans[i-1], spans[i]
		if !allowed[[2]State{a.State, b.State}] {
			t.Errorf("goroutine %d: %v follows %v at %d", id, b.State, a.State, b.Start)
			return
		}
		if a.End != max(b.Start, a.Start) {
			t.Errorf("goroutine %d: a span ends at %d and the next begins at %d", id, a.End, b.Start)
			return
		}
		if a.State == Waiting && !a.Woken {
			t.Errorf("goroutine %d: the wait has no wake at %d", id, a.End)
			return
		}
	}
}

func checkPart(t *testing.T, id uint64, from, to int64, full, part []Span) bool {
	t.Helper()
	var want []Span
	for _, s := range full {
		if s.End > from && s.Start < to {
			want = append(want, s)
		}
	}
	equal := len(part) == len(want)
	for i := 0; equal && i < len(want); i++ {
		got := part[i]
		if want[i].End == math.MaxInt64 {
			got.End = math.MaxInt64 // continues after the window
		}
		equal = got == want[i]
	}
	check.True(t, equal, "goroutine %d: spans in [%d, %d):\n%v\nwant\n%v", id, from, to, part, want)
	return equal
}

// checkSliding checks that a window of two generations, moved along the trace, shows the same spans of them as the
// whole trace.
func checkSliding(t *testing.T, in *decoded) {
	t.Helper()
	var full, part []Span
	for k := 0; k+1 < len(in.gens); k++ {
		small, whole := Window{Gens: in.gens[k : k+2]}, Window{Gens: in.gens[:k+2]}
		for _, id := range goroutines(small.Gens) {
			part = small.Spans(id, BeforeTrace, math.MaxInt64, part[:0])
			full = whole.Spans(id, BeforeTrace, math.MaxInt64, full[:0])
			must.True(t, len(part) <= len(full),
				"goroutine %d: %d spans in generations %d and %d, %d up to there", id, len(part), k, k+1, len(full))
			fullEnd := full[len(full)-len(part):]
			for i := range part {
				got, want := part[i], fullEnd[i]
				if i == 0 && got.Origin == OriginStatus {
					// Its begin is before the window, and so are the fields that come with the
					// begin. If the state has several parts, only the last one is visible.
					if got.State == Runnable {
						got.Waker = want.Waker // repeats the wait before, which is not visible
					}
					must.True(t, got.State == want.State && got.End == want.End && got.Waker == want.Waker && got.Woken == want.Woken,
						"goroutine %d from generation %d: begins with %v, want %v", id, k, got, want)
					continue
				}
				must.False(t, i == 0 && got.Origin != OriginCreated, "goroutine %d from generation %d: begins with %v", id, k, got)
				if i == 1 {
					// A runnable span repeats these fields of the wait before it.
					got.Stack, got.Reason = want.Stack, want.Reason
				}
				if got.State == Running && got.Stack == 0 && got.Assist {
					got.Stack = want.Stack // the assist began before the window
				}
				must.Equal(t, got, want, "goroutine %d from generation %d, span %d", id, k, i)
			}
		}
	}
}

// TestFirstGoroutineCrossesBorders checks that the goroutine with the first dense number of a generation is joined
// over the border like any other, also in a query that begins in the middle of the generation before.
func TestFirstGoroutineCrossesBorders(t *testing.T) {
	b := tracetext.New(26)
	m := b.Thread(1)
	time := int64(1000)
	for gen := range 3 {
		if gen > 0 {
			b.NextGeneration(time)
			time += 100
		}
		for range 20 {
			m.Stop(time, "preempted", "main.work")
			m.Start(time+50, 1)
			time += 100
		}
	}
	m.Stop(time, "preempted", "main.work")
	data := must.Have(b.Bytes())(t)
	in := decodeAll(data, 1)
	must.True(t, in.err == nil && len(in.gens) == 3, "%d generations: %v", len(in.gens), in.err)
	win := Window{Gens: in.gens}
	from, to := in.gens[1].Base-500, in.gens[2].Base-500
	for _, s := range win.Spans(1, from, to, nil) {
		check.True(t, s.End-s.Start <= 300, "%v from %d to %d: the events of the next generation are missing", s.State, s.Start, s.End)
	}
}

// TestWakeAtGenerationEnd checks that EachWoken finds a wake that is the last event of a generation, at the time at which the next
// one begins.
func TestWakeAtGenerationEnd(t *testing.T) {
	b := tracetext.New(26)
	m := b.Thread(1)
	b.Waiting(2)
	m.Unblock(1000, 2, "main.work")
	b.NextGeneration(1000)
	m.Stop(2000, "preempted", "main.work")
	in := decodeAll(must.Have(b.Bytes())(t), 1)
	must.True(t, in.err == nil && len(in.gens) == 2, "%d generations: %v", len(in.gens), in.err)
	win := Window{Gens: in.gens}
	at := tracetext.Origin + int64(1000)
	var woken []uint64
	win.EachWoken(1, at, at+1, func(id uint64, _ tracefmt.StackID) bool {
		woken = append(woken, id)
		return true
	})
	check.Equal(t, fmt.Sprint(woken), "[2]", "woken")
}

// TestChildren checks the goroutines that another one created in an interval over several generations, in order,
// and that f gets no more than it wants: a query for a few of a server's million goroutines must not pass all.
func TestChildren(t *testing.T) {
	b := tracetext.New(26)
	m := b.Thread(1)
	time := int64(1000)
	const perGen, gens = 3, 3
	for gen := range gens {
		if gen > 0 {
			b.NextGeneration(time)
			time += 100
		}
		for i := range perGen {
			m.Create(time, uint64(10+gen*perGen+i), "main.child", "main.work")
			if i == 1 { // the others are created in one run
				m.Stop(time+10, "preempted", "main.work")
				m.Start(time+20, 1)
			}
			time += 100
		}
	}
	m.Stop(time, "preempted", "main.work")
	data := must.Have(b.Bytes())(t)
	in := decodeAll(data, 1)
	must.True(t, in.err == nil && len(in.gens) == gens, "%d generations: %v", len(in.gens), in.err)
	win := Window{Gens: in.gens}
	second := tracetext.Origin + int64(1100) // time of the second creation
	for _, c := range []struct {
		from, to int64
		limit    int
		want     []uint64
	}{
		{0, math.MaxInt64, 100, []uint64{10, 11, 12, 13, 14, 15, 16, 17, 18}},
		{second, math.MaxInt64, 4, []uint64{11, 12, 13, 14}},
		{second, second + 100, 100, []uint64{11}}, // to is exclusive
		{second + 1, second + 101, 100, []uint64{12}},
		{0, math.MaxInt64, 1, []uint64{10}},
		{0, math.MaxInt64, 3, []uint64{10, 11, 12}}, // none of the next generation
	} {
		var got []uint64
		win.Children(1, c.from, c.to, func(child Birth) bool {
			got = append(got, child.G)
			return len(got) < c.limit
		})
		check.True(t, slices.Equal(got, c.want), "at most %d from %d to %d: %d, want %d", c.limit, c.from, c.to, got, c.want)
	}
}

// TestOneAssist checks a mark assist that lasts over many waits: a query from its middle shows it too, although no
// other assist happened, and so does the next generation. It fails if that time counts as the goroutine's own
// work.
func TestOneAssist(t *testing.T) {
	b := tracetext.New(26)
	m, n := b.Thread(), b.ThreadWithoutP()
	m.HasRun(1)
	time := int64(1000)
	waits := func(k int) {
		for range k {
			m.Block(time, "sleep", "time.Sleep", "main.work")
			n.Unblock(time+10, 1)
			m.Start(time+20, 1)
			time += 100
		}
	}
	waits(10)
	m.AssistBegin(time, "runtime.gcAssistAlloc", "main.work")
	begin := time
	waits(20)
	b.NextGeneration(time)
	n.AssistActive(time, 1)
	waits(20)
	end := time
	m.AssistEnd(time)
	waits(20)
	data := must.Have(b.Bytes())(t)
	in := decodeAll(data, 1)
	must.True(t, in.err == nil && len(in.gens) == 2, "%d generations: %v", len(in.gens), in.err)
	win := Window{Gens: in.gens}
	for from := int64(1500); from < time; from += 100 {
		for _, s := range win.Spans(1, from+30+tracetext.Origin, from+60+tracetext.Origin, nil) {
			check.False(t, s.State == Running && s.Assist != (begin <= from && from < end),
				"at %d: assist %v; it began at %d and ended at %d", from+30, s.Assist, begin, end)
		}
	}
}
