package timeline

import (
	"bytes"
	"errors"
	"io"
	"math"
	"slices"
	"testing"

	"golang.org/x/exp/trace"

	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/internal/trace/tracefmt/refdata"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// loadsBySpans adds up the same from every goroutine's spans.
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

// checkLoads compares each step with the sum over the goroutines' spans, which
// are put together in another way.
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
			continue // a goroutine whose pieces have no sure order has no one sum either
		}
		want, ok := loadsBySpans(g, end, step)
		if !ok {
			continue // times that run backwards have no one sum
		}
		if len(got) != len(want) {
			t.Fatalf("generation %d: %d steps, want %d", i, len(got), len(want))
		}
		for k := range got {
			n++
			if got[k] != want[k] {
				t.Errorf("generation %d, step %d: %+v, the spans say %+v", i, k, got[k], want[k])
				return n
			}
		}
	}
	return n
}

// loadOfReference adds up the states that the reference reader tells.
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
		if err != nil {
			t.Fatal(err)
		}
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
			current[g] = state{to, first} // so since the trace began
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
			if in.err != nil {
				t.Fatal(in.err)
			}
			for _, step := range []int64{10e6, 1e6, 7777} {
				if checkLoads(t, in.gens, step) == 0 && name != "generations" {
					t.Errorf("with steps of %d ns, nothing could be compared", step)
				}
			}
			if name == "generations" {
				// Generations that follow each other so fast overlap by a good part of
				// their length; the reference moves the events of the later one.
				return
			}
			// The reference moves times so that no two are alike, by 90 us at most.
			got, want := loadOfOurs(in.gens), loadOfReference(t, data)
			for _, c := range []struct {
				name      string
				got, want int64
			}{{"running", got.Running, want.Running}, {"ready to run", got.Runnable, want.Runnable}, {"in system calls", got.Syscall, want.Syscall}} {
				if d := math.Abs(float64(c.got - c.want)); d > 0.01*float64(c.want)+2e6 {
					t.Errorf("%s: %d ns, the reference reader says %d", c.name, c.got, c.want)
				}
			}
			if got.Running == 0 {
				t.Error("nothing ran")
			}
		})
	}
}

// TestLoadsUntil asks for the same ends from moves that were counted once, with a list of the last ones, and from moves that
// were counted for that end.
func TestLoadsUntil(t *testing.T) {
	n := 0
	for _, name := range []string{"http1", "gcstress", "filesyscall", "generations"} {
		in := decodeAll(testprog.Trace(t, name), 2)
		if in.err != nil {
			t.Fatal(in.err)
		}
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
	if n == 0 {
		t.Error("nothing was compared")
	}
}

// TestLoadsOfReferenceTraces goes over the traces of Go's own tests, of every
// version.
func TestLoadsOfReferenceTraces(t *testing.T) {
	traces := must.Have(refdata.Traces())(t)
	n := 0
	for _, tr := range traces {
		data := must.Have(tracetext.Assemble(tr.Text))(t)
		if in := decodeAll(data, 2); in.err == nil && tr.FailurePattern == "" {
			n += checkLoads(t, in.gens, 1e4)
		}
	}
	if n == 0 {
		t.Error("nothing was compared")
	}
}

// TestLoadsAreBounded asks about times that no trace has.
func TestLoadsAreBounded(t *testing.T) {
	g := &Gen{Base: 5}
	list, step := g.Loads(1<<62, 10e6)
	if len(list) > maxLoads+1 || step < 1<<40 {
		t.Errorf("%d steps of %d ns", len(list), step)
	}
	if list, _ := g.Loads(5, 10e6); list != nil {
		t.Errorf("no time has %d steps", len(list))
	}
}
