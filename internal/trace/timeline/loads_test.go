package timeline

import (
	"bytes"
	"errors"
	"io"
	"math"
	"slices"
	"testing"

	"golang.org/x/exp/trace"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/internal/trace/tracefmt/refdata"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// loadsBySpans computes the loads from the spans of all goroutines; false if their times are not ordered.
func loadsBySpans(g *Gen, end, step int64) ([]Load, bool) {
	win, lead := Window{Gens: []*Gen{g}}, g.Base%step
	out := make([]Load, (end-g.Base+lead+step-1)/step)
	for _, id := range goroutines(win.Gens) {
		spans := win.Spans(id, BeforeTrace, math.MaxInt64, nil)
		if !inOrder(spans) {
			return nil, false
		}
		for _, s := range spans {
			for from, end := max(s.Start, g.Base), min(s.End, end); from < end; {
				k := from/step - g.Base/step
				to := min((from/step+1)*step, end)
				switch s.State {
				case Running:
					out[k].Running += to - from
				case Runnable:
					out[k].Runnable += to - from
				case Syscall:
					out[k].Syscall += to - from
				}
				from = to
			}
		}
	}
	return out, true
}

// checkLoads compares each step with the sum over the goroutines' spans, which other code builds. It returns the
// number of compared steps.
func checkLoads(t *testing.T, gens []*Gen, step int64) int {
	t.Helper()
	n := 0
	for i, g := range gens {
		end := g.End
		if i+1 < len(gens) {
			end = gens[i+1].Base
		}
		got, used := g.Loads(end, step)
		if used != step || len(g.irregular) > 0 {
			continue // without a reliable order of pieces there is no unique sum
		}
		want, ok := loadsBySpans(g, end, step)
		if !ok {
			continue // with times that go backwards there is no unique sum
		}
		must.Equal(t, len(got), len(want), "generation %d: steps", i)
		for k := range got {
			n++
			if got[k] != want[k] {
				t.Errorf("generation %d, step %d: %+v, by the spans %+v", i, k, got[k], want[k])
				return n
			}
		}
	}
	return n
}

// loadOfReference sums the states that the reference reader reports.
func loadOfReference(t *testing.T, data []byte) (sum Load) {
	t.Helper()
	rd := must.Have(trace.NewReader(bytes.NewReader(data)))(t)
	type state struct {
		s     trace.GoState
		start trace.Time
	}
	current := map[trace.GoID]state{}
	var first, last trace.Time
	end := func(st state, t trace.Time) {
		switch d := int64(t - max(st.start, first)); st.s {
		case trace.GoRunning:
			sum.Running += d
		case trace.GoRunnable:
			sum.Runnable += d
		case trace.GoSyscall:
			sum.Syscall += d
		}
	}
	for {
		ev, err := rd.ReadEvent()
		if errors.Is(err, io.EOF) {
			break
		}
		must.Do(t, err)
		if first == 0 {
			first = ev.Time()
		}
		last = ev.Time()
		if ev.Kind() != trace.EventStateTransition || ev.StateTransition().Resource.Kind != trace.ResourceGoroutine {
			continue
		}
		tr := ev.StateTransition()
		from, to := tr.Goroutine()
		g := tr.Resource.Goroutine()
		if from == trace.GoUndetermined {
			current[g] = state{to, first} // the state began before the trace
			continue
		}
		end(current[g], last)
		current[g] = state{to, last}
	}
	for _, st := range current {
		end(st, last)
	}
	return sum
}

func loadOfOurs(gens []*Gen) (sum Load) {
	for i, g := range gens {
		end := g.End
		if i+1 < len(gens) {
			end = gens[i+1].Base
		}
		list, _ := g.Loads(end, 10e6)
		for _, l := range list {
			sum.Running += l.Running
			sum.Runnable += l.Runnable
			sum.Syscall += l.Syscall
		}
	}
	return sum
}

func TestLoads(t *testing.T) {
	for _, name := range []string{"http1", "gcstress", "filesyscall", "iterpull", "generations", "locks", "idle"} {
		t.Run(name, func(t *testing.T) {
			data := testprog.Trace(t, name)
			in := decodeAll(data, 2)
			must.Do(t, in.err)
			for _, step := range []int64{10e6, 1e6, 7777} {
				check.False(t, checkLoads(t, in.gens, step) == 0 && name != "generations",
					"with steps of %d ns, nothing could be compared", step)
			}
			if name == "generations" {
				// These generations are so short that they overlap by a large part of their
				// length; the reference moves the events of the later one.
				return
			}
			// The reference moves times by up to 90 us so that all differ.
			got, want := loadOfOurs(in.gens), loadOfReference(t, data)
			for _, c := range []struct {
				name      string
				got, want int64
			}{{"running", got.Running, want.Running}, {"ready to run", got.Runnable, want.Runnable}, {"in system calls", got.Syscall, want.Syscall}} {
				check.True(t, math.Abs(float64(c.got-c.want)) <= 0.01*float64(c.want)+2e6,
					"%s: %d ns, by the reference reader %d", c.name, c.got, c.want)
			}
			check.True(t, got.Running != 0, "no goroutine ran")
		})
	}
}

// TestLoadsUntil compares loads from moves that were counted once, with a list of the last ones, with loads from
// moves that were counted for the requested end.
func TestLoadsUntil(t *testing.T) {
	n := 0
	for _, name := range []string{"http1", "gcstress", "filesyscall", "generations"} {
		in := decodeAll(testprog.Trace(t, name), 2)
		must.Do(t, in.err)
		for i, g := range in.gens {
			for _, before := range []int64{-7e6, 0, 1, 3e6, listedTail - 1, listedTail, listedTail + 1, listedTail + 1e6, listedTail + 5*fineStep, g.End - g.Base - 1} {
				end := g.End - before
				if end <= g.Base {
					continue
				}
				for _, step := range []int64{fineStep, 5 * fineStep} {
					got, used := g.Loads(end, step)
					var m moveCounts
					m.count(g, step, end-g.Base, 0)
					if want := m.loads(g.Base, end, step); used != step || !slices.Equal(got, want) {
						t.Errorf("%s, generation %d, until %d ns before its end, step %d: %v, counted for that end %v", name, i, before, step, got, want)
					}
					n++
				}
			}
		}
	}
	check.True(t, n != 0, "nothing was compared")
}

// TestLoadsOfReferenceTraces compares the loads of the traces of Go's own tests, of each version.
func TestLoadsOfReferenceTraces(t *testing.T) {
	traces := must.Have(refdata.Traces())(t)
	n := 0
	for _, tr := range traces {
		data := must.Have(tracetext.Assemble(tr.Text))(t)
		if in := decodeAll(data, 2); in.err == nil && tr.FailurePattern == "" {
			n += checkLoads(t, in.gens, 1e4)
		}
	}
	check.True(t, n != 0, "nothing was compared")
}

// TestLoadsAreBounded requests times that no trace has.
func TestLoadsAreBounded(t *testing.T) {
	g := &Gen{Base: 5}
	list, step := g.Loads(1<<62, 10e6)
	check.True(t, len(list) <= maxLoads+1 && step >= 1<<40, "%d steps of %d ns", len(list), step)
	if list, _ := g.Loads(5, 10e6); list != nil {
		t.Errorf("an empty interval has %d steps", len(list))
	}
}
