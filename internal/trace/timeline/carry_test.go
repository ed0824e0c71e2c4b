package timeline

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/refdata"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// traceOfUnchangedStates returns a trace of five generations in which goroutines keep one state over the borders:
// many of them wait at a few places with different begins, and some differ in every field.
func traceOfUnchangedStates(t *testing.T) []byte {
	t.Helper()
	b := tracetext.New(26)
	m, o, poller := b.Thread(), b.Thread(), b.ThreadWithoutP()
	m.HasRun(1)
	o.HasRun(2)
	for i := range 50 {
		b.Waiting(uint64(1000 + i))
		b.Runnable(uint64(2000 + i))
	}
	time := int64(1000)
	for gen := range 5 {
		for i := range 40 {
			g := uint64(10000 + 100*gen + i)
			m.Create(time, g, "main.child", fmt.Sprintf("main.parent:%d", i%7))
			switch i % 4 {
			case 0: // stays runnable since its creation
			case 1: // runnable since a wake
				o.Stop(time+1, "preempted", "main.two:1")
				o.Start(time+2, g)
				o.Block(time+3, fmt.Sprintf("reason %d", i%5), fmt.Sprintf("main.wait:%d", i%3))
				o.Start(time+4, 2)
				if i%8 == 1 {
					o.Unblock(time+5, g, fmt.Sprintf("main.wake:%d", i%11))
				} else {
					poller.Unblock(time+5, g)
				}
			default: // stays waiting
				o.Stop(time+1, "preempted", "main.two:1")
				o.Start(time+2, g)
				o.Block(time+3, fmt.Sprintf("reason %d", i%5), fmt.Sprintf("main.wait:%d", i%3))
				o.Start(time+4, 2)
			}
			time += 10
		}
		if gen > 0 { // wake some goroutines that wait since the generation before
			for i := 2; i < 40; i += 8 {
				m.Unblock(time, uint64(10000+100*(gen-1)+i), "main.later:1")
				time += 10
			}
		}
		b.NextGeneration(time)
	}
	return must.Have(b.Bytes())(t)
}

// TestCarry checks that the Carry of a dropped generation shows for each goroutine what the generation itself
// would show. It detects the begin of one goroutine with the stack of another, a missing goroutine, and leftovers
// of an earlier border.
func TestCarry(t *testing.T) {
	traces, err := refdata.Traces()
	must.Do(t, err)
	inputs := map[string][]byte{"bystanders": traceOfUnchangedStates(t)}
	for _, r := range traces {
		if inputs[r.Name], err = tracetext.Assemble(r.Text); err != nil {
			t.Fatal(err)
		}
	}
	spans := 0
	for name, data := range inputs {
		in := decodeAll(data, 2)
		whole := &Window{Gens: in.gens}
		win := &Window{Gens: slices.Clone(in.gens)}
		for k := 1; k < len(in.gens); k++ {
			win.DropFirst()
			must.True(t, slices.Equal(win.Gens, in.gens[k:]), "%s: after DropFirst %d generations remain", name, len(win.Gens))
			found := 0
			for _, id := range goroutines(in.gens) {
				s, ok := win.Carry().SpanOf(id)
				if !ok {
					continue
				}
				found++
				before := (&Window{Gens: in.gens[:k]}).Spans(id, in.gens[k-1].End, in.gens[k-1].End+1, nil)
				if len(before) == 0 {
					t.Errorf("%s, generation %d, goroutine %d: the generations show nothing, the carry %+v", name, k, id, s)
					continue
				}
				want := before[len(before)-1]
				want.End, want.Woken = 0, false
				if want.State != Runnable {
					want.Waker, want.WakerStack = 0, 0
				}
				check.Equal(t, s, want, "%s, generation %d, goroutine %d", name, k, id)
				if name == "bystanders" {
					got := win.Spans(id, in.gens[k].Base, math.MaxInt64, nil)
					if want := whole.Spans(id, in.gens[k].Base, math.MaxInt64, nil); !slices.Equal(got, want) {
						t.Errorf("generation %d, goroutine %d: %+v, want %+v", k, id, got, want)
					}
				}
			}
			n := 0
			win.Carry().EachSpan(func(id uint64, s Span) {
				if spanOf, ok := win.Carry().SpanOf(id); !ok || spanOf != s {
					t.Errorf("%s: goroutine %d has %+v and %+v", name, id, s, spanOf)
				}
				n++
			})
			check.True(t, n == found, "%s, generation %d: EachSpan passes %d of %d goroutines", name, k, n, found)
			if name == "bystanders" {
				if c := win.Carry(); len(c.forms) > 60 {
					t.Errorf("%d goroutines have %d forms, want at most 60", n, len(c.forms))
				}
				check.True(t, n >= 100+30*k, "generation %d: only %d goroutines have a span", k, n)
			}
			spans += n
		}
	}
	check.True(t, spans >= 1000, "only %d spans were compared", spans)
}

// TestStatusesAreSmall checks that the status of a waiting goroutine fits into the 8 bytes of a record.
func TestStatusesAreSmall(t *testing.T) {
	g := decodeAll(traceOfUnchangedStates(t), 1).gens[2]
	waits, wide := 0, 0
	for d := uint32(1); int(d)+1 < len(g.slotBase); d++ {
		for _, s := range g.slots[g.slotBase[d]:g.slotBase[d+1]] {
			if r := g.record(s.rec); r.hasTrait(repeatsState) && !r.binds() {
				waits++
				if _, ok := r.wideIndex(); ok {
					wide++
				}
				if k := tracefmt.EventType(r.kind()); k == tracefmt.EvGoStatusStack && r.stack() == 0 {
					t.Errorf("goroutine %d has no stack", g.ids.ids[d])
				}
			}
		}
	}
	check.True(t, waits >= 100 && wide == 0, "%d of %d statuses do not fit", wide, waits)
}
