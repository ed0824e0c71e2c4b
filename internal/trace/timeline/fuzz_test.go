package timeline

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/refdata"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// addSeeds gives a fuzz target the reference reader's own corpus and traces.
func addSeeds(f *testing.F) {
	f.Helper()
	inputs, err := refdata.FuzzInputs()
	if err != nil {
		f.Fatal(err)
	}
	for _, data := range inputs {
		f.Add(data)
	}
	for _, minor := range []int{22, 23, 25, 26} {
		b := tracetext.New(minor)
		t0, t1, monitor := b.Thread(), b.Thread(), b.ThreadWithoutP()
		t0.HasRun(1)
		t0.Create(10, 2, "main.worker", "main.main")
		t1.Start(20, 2)
		t1.Block(30, "sync", "sync.(*Mutex).Lock", "main.worker")
		t0.Unblock(40, 2, "sync.(*Mutex).Unlock", "main.main")
		t1.Start(50, 2)
		t1.Syscall(60, "syscall.write")
		monitor.Steal(70, t1)
		t1.SyscallEndBlocked(80)
		b.NextGeneration(100)
		t0.AssistBegin(110, "runtime.gcAssistAlloc")
		t0.AssistEnd(120)
		t0.Stop(130, "preempted", "main.main")
		t0.Start(140, 2)
		t0.Destroy(150)
		data, err := b.Bytes()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
}

// FuzzDecode checks that no input makes the decoder panic, hang or give
// results that depend on the number of workers, and that all that can be asked
// of the generations can be answered.
func FuzzDecode(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<20 {
			return
		}
		one, three := decodeAll(data, 1), decodeAll(data, 3)
		if one.d == nil {
			if one.err == nil || three.err == nil {
				t.Fatal("no reader and no error")
			}
			return
		}
		if diff := firstDifference(dump(one), dump(three)); diff != "" {
			t.Fatalf("with 3 workers it is not what it is with 1: %s", diff)
		}
	})
}

// FuzzOracle runs both readers. What the reference accepts, we must read the
// same way. We accept more: without the global order we do not notice that
// events of different threads contradict each other, and we do not want to;
// a report on a trace with a flaw is better than none.
func FuzzOracle(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		// The reference also reads old traces, and headers with odd white space.
		header := func(minor int) bool { return strings.HasPrefix(string(data), string(tracetext.Header(minor))) }
		if len(data) > 1<<20 || !slices.ContainsFunc([]int{22, 23, 25, 26}, header) {
			return
		}
		stk := newStacks()
		ref, ok := referenceWithoutPanic(data, stk)
		if !ok || ref.gens == 0 || hasUnsupportedValues(data) {
			return
		}
		if ref.gs[0] != nil {
			return // a goroutine 0: for us that is none
		}
		in := decodeAll(data, 2)
		n := ref.gens
		if len(in.gens) < n {
			// Where nothing marks the end of the last generation, we may drop it.
			if tracefmt.KindOf(in.err) != tracefmt.Truncated || len(in.gens) != n-1 || in.d.reader.Minor() >= 26 {
				t.Fatalf("we have %d generations (%v), the reference %d (%v)", len(in.gens), in.err, n, ref.err)
			}
			n = len(in.gens)
			ref = accountOfReference(data, stk, n)
		}
		if n == 0 {
			return
		}
		us := accountOfOurs(in, n, stk)
		dropIncomparable(us, ref, in.gens[:n])
		if diff := differences(us, ref, stk); diff != nil {
			t.Fatalf("not as the reference reader says:\n%s", strings.Join(diff, "\n"))
		}
	})
}

// dropIncomparable takes out of both accounts what we order by time and the reference
// by trying what could be next. Where the clocks of threads agree that is the
// same (the programs with calls from C are compared whole); here they do not:
// goroutines whose id comes back within a generation, and Ps of threads that
// go back to C.
func dropIncomparable(us, ref *account, gens []*Gen) {
	for id, list := range us.gs {
		if list[0].transition == "?->unknown" { // a status that the runtime does not write
			delete(us.gs, id)
			delete(ref.gs, id)
		}
	}
	for _, g := range gens {
		for _, d := range g.irregular {
			delete(us.gs, g.ids.ids[d])
			delete(ref.gs, g.ids.ids[d])
		}
		if slices.ContainsFunc(g.ProcEvents, func(e ProcEvent) bool {
			return e.Change == ProcAbandoned || e.Change == ProcStatusAbandoned
		}) {
			us.ps, ref.ps = nil, nil
		}
		for _, e := range g.ProcEvents {
			if e.Change == procStatus || e.Change > ProcStatusAbandoned { // a status that the runtime does not write
				delete(us.ps, uint64(e.P))
				delete(ref.ps, uint64(e.P))
			}
		}
	}
}

// referenceWithoutPanic runs the reference reader, which some inputs make panic.
func referenceWithoutPanic(data []byte, stk *stackNumbers) (a *account, ok bool) {
	defer func() {
		if recover() != nil {
			a, ok = nil, false
		}
	}()
	return accountOfReference(data, stk, 1<<30), true
}

// hasUnsupportedValues reports whether a trace holds something that the runtime does not
// write and on which the two readers differ by design:
//
//   - a program counter with two different lines in one generation: the
//     reference takes the first for all stacks, we keep each;
//   - ids of strings and stacks, numbers of Ps and sequence numbers beyond 32
//     bits, or times beyond 44 bits (four hours of one generation): we cut
//     them off;
//   - numbers of ten bytes that overflow.
func hasUnsupportedValues(data []byte) bool {
	chunks, err := tracetext.Split(data)
	if err != nil {
		return true
	}
	type key struct{ gen, pc uint64 }
	lines := make(map[key][3]uint64)
	for _, c := range chunks {
		if c.Time > 1<<40 {
			return true
		}
		body := data[c.Data:c.End]
		if len(body) == 0 || c.Type != tracefmt.EvEventBatch {
			continue
		}
		switch tracefmt.EventType(body[0]) {
		case tracefmt.EvStacks:
			args := numbers(body[1:])
			for i := 1; i < len(args); {
				n := args[min(i+1, len(args)-1)]
				i += 2
				for ; n > 0 && i+4 <= len(args); n-- {
					k, v := key{c.Gen, args[i]}, [3]uint64(args[i+1:i+4])
					if old, ok := lines[k]; ok && old != v {
						return true
					}
					lines[k] = v
					i += 4
				}
				i++ // the next entry's type
			}
		}
		if slices.ContainsFunc(numbers(body), func(v uint64) bool { return v > 1<<31 && v != tracefmt.NoM }) {
			return true
		}
	}
	return false
}

// numbers reads varints as far as there are any.
func numbers(b []byte) (out []uint64) {
	for len(b) > 0 {
		var v uint64
		n, shift := 0, 0
		for n < len(b) && b[n] >= 0x80 {
			v |= uint64(b[n]&0x7f) << min(shift, 63)
			shift += 7
			n++
		}
		if n == len(b) {
			return out
		}
		v |= uint64(b[n]) << min(shift, 63)
		out = append(out, v)
		b = b[n+1:]
	}
	return out
}

func TestSeedsAreRead(t *testing.T) {
	seeds := must.Have(refdata.Seeds())(t)
	for name, data := range seeds {
		in := decodeAll(data, 2)
		if in.d == nil && !strings.Contains(fmt.Sprint(in.err), "old format") {
			t.Errorf("%s: %v", name, in.err)
		}
	}
}
