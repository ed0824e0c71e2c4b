package timeline

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/refdata"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// addSeeds adds the reference reader's fuzz corpus, its test traces and a few built traces to a fuzz target.
func addSeeds(f *testing.F) {
	f.Helper()
	inputs := must.Have(refdata.FuzzInputs())(f)
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
		data := must.Have(b.Bytes())(f)
		f.Add(data)
	}
}

// FuzzDecode checks that no input makes the decoder panic or hang, that the results do not depend on the number of
// workers, and that all queries of the generations succeed.
func FuzzDecode(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<20 {
			return
		}
		one, three := decodeAll(data, 1), decodeAll(data, 3)
		if one.d == nil {
			must.True(t, one.err != nil && three.err != nil, "no reader and no error")
			return
		}
		must.Equal(t, firstDifference(dump(one), dump(three)), "", "the results with 3 workers differ from those with 1")
	})
}

// FuzzOracle reads an input with both readers. If the reference accepts it, our results must be equal. We accept
// more: without the global order we do not detect that events of different threads contradict each other. That is
// intended, because a report on a flawed trace is better than none.
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
			return // it has a goroutine 0, which means no goroutine to us
		}
		in := decodeAll(data, 2)
		n := ref.gens
		if len(in.gens) < n {
			// Without an end mark we may drop the last generation.
			must.True(t, tracefmt.KindOf(in.err) == tracefmt.Truncated && len(in.gens) == n-1 && in.d.reader.Minor() < 26,
				"we have %d generations (%v), the reference %d (%v)", len(in.gens), in.err, n, ref.err)
			n = len(in.gens)
			ref = accountOfReference(data, stk, n)
		}
		if n == 0 {
			return
		}
		us := accountOfOurs(in, n, stk)
		dropIncomparable(us, ref, in.gens[:n])
		if diff := differences(us, ref, stk); diff != nil {
			t.Fatalf("different from the reference reader:\n%s", strings.Join(diff, "\n"))
		}
	})
}

// dropIncomparable removes from both accounts the parts that we order by time and the reference orders by trying
// which event can be next: goroutines whose id is reused within a generation, and Ps of threads that return to C.
// If the clocks of the threads agree, both orders are equal (programs with calls from C are compared as a whole),
// but here they do not.
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

// referenceWithoutPanic runs the reference reader; ok is false if it panics, which some inputs cause.
func referenceWithoutPanic(data []byte, stk *stackNumbers) (a *account, ok bool) {
	defer func() {
		if recover() != nil {
			a, ok = nil, false
		}
	}()
	return accountOfReference(data, stk, 1<<30), true
}

// hasUnsupportedValues reports whether a trace contains something that the runtime does not write and that the two
// readers treat differently by design:
//
//   - a program counter with two different lines in one generation: the reference uses the first one for all stacks, we use each;
//   - ids of strings and stacks, numbers of Ps and sequence numbers beyond 32 bits, or times beyond 44 bits (four hours in one
//     generation): we truncate them;
//   - varints of ten bytes that overflow.
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

// numbers reads varints until the end or the first incomplete one.
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
		check.False(t, in.d == nil && !strings.Contains(fmt.Sprint(in.err), "old format"), "%s: %v", name, in.err)
	}
}
