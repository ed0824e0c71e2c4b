package timeline

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// TestRecordsThatDoNotFit compares traces with the reference reader whose times, stacks, reasons and goroutines
// have more bits than a record has for them. It detects a truncated field, and a field read from neighbouring
// bits.
func TestRecordsThatDoNotFit(t *testing.T) {
	text := func(last int64, goroutines int) string {
		b := tracetext.New(26)
		th, second := b.Thread(1), b.Thread(2)
		for i := range 100 { // more reasons and stacks than fit into a record together
			g, time := uint64(10+i), int64(1000+100*i)
			b.Waiting(g)
			second.Unblock(time, g, fmt.Sprintf("main.wake:%d", i))
		}
		second.Block(20000, "sleep", "main.other:1")
		for i := range 100 {
			g, time := uint64(10+i), int64(30000+100*i)
			second.Start(time, g)
			second.Block(time+50, fmt.Sprintf("reason %d", i), fmt.Sprintf("main.wait:%d", i))
		}
		time := int64(50000)
		for i := range goroutines {
			time += 10
			th.Create(time, uint64(1000+i), "main.child", fmt.Sprintf("main.parent:%d", i%3000))
			if i%1000 == 0 {
				second.Start(time+1, uint64(1000+i))
				second.Syscall(time+2, "main.read:1")
				second.SyscallEnd(time + 3)
				second.Destroy(time + 4)
			}
		}
		// Repeat with late times.
		for i := range 100 {
			g, time := uint64(10+i), last+int64(100*i)
			th.Unblock(time, g, "main.again:1")
			second.Start(time+1, g)
			second.Syscall(time+2, "main.read:2")
			second.SyscallEnd(time + 50)
			second.RegionBegin(time+61, g, "step", "main.region:1")
			second.Stop(time+70, "preempted", "main.loop:1")
			second.Start(time+71, g)
			second.Block(time+80, "chan receive", "main.wait:1")
		}
		return must.Have(b.Text())(t)
	}
	// mapNumbers replaces each number that follows a name by f's result.
	mapNumbers := func(s, name string, f func(n uint64) uint64) string {
		return regexp.MustCompile(`(`+name+`)([0-9]+)\b`).ReplaceAllStringFunc(s, func(m string) string {
			k := len(m)
			for m[k-1] >= '0' && m[k-1] <= '9' {
				k--
			}
			n := must.Have(strconv.ParseUint(m[k:], 10, 64))(t)
			return m[:k] + strconv.FormatUint(f(n), 10)
		})
	}
	freq := func(s, to string) string {
		return regexp.MustCompile(`Frequency freq=[0-9]+`).ReplaceAllString(s, "Frequency freq="+to)
	}
	early, late := text(1e6, 300), text(maxTick-3000, 300)
	for _, tt := range []struct {
		name, text string
		times      bool // some times do not fit
		kinds      []tracefmt.EventType
	}{
		{"many goroutines", text(1e6, 1<<(payloadBits-12)+100), false, []tracefmt.EventType{tracefmt.EvGoBlock, tracefmt.EvGoStatus}},
		{"times around the last that fits", late, true, []tracefmt.EventType{tracefmt.EvGoUnblock, tracefmt.EvGoStart}},
		{"a clock of 64 ns", freq(late, "15625000"), true, []tracefmt.EventType{tracefmt.EvGoUnblock, tracefmt.EvGoStart}},
		{"a clock of 48 ns, so units of 16", freq(early, "20833333"), false, []tracefmt.EventType{tracefmt.EvGoBlock}},
		{"a clock of no whole ns", freq(late, "700000001"), true, []tracefmt.EventType{tracefmt.EvGoUnblock, tracefmt.EvGoStart}},
		{"stacks of 26 bits", mapNumbers(early, "stack=|Stack id=", func(n uint64) uint64 {
			if n%2 == 0 {
				return n
			}
			return n + wideBit
		}), false, []tracefmt.EventType{tracefmt.EvGoBlock, tracefmt.EvGoUnblock}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			data := must.Have(tracetext.Assemble([]byte(tt.text)))(t)
			stk := newStacks()
			ref, in := accountOfReference(data, stk, 1<<30), decodeAll(data, 2)
			must.True(t, ref.err == nil && in.err == nil, "the reference: %v; we: %v", ref.err, in.err)
			if diff := differences(accountOfOurs(in, len(in.gens), stk), ref, stk); diff != nil {
				t.Errorf("different from the reference reader:\n%s", strings.Join(diff, "\n"))
			}
			g := in.gens[0]
			wide, fits, times := map[kind]int{}, map[kind]int{}, 0
			for _, s := range g.streams {
				if s.index[0] == s.index[1] {
					continue
				}
				for time, r := g.index[s.index[0]].rec, g.record(g.index[s.index[0]].rec); r.kind() != kindEnd; time, r = g.next(time) {
					if _, ok := r.wideIndex(); ok {
						wide[r.kind()]++
						if r.word>>tickShift == maxTick {
							times++
						}
					} else {
						fits[r.kind()]++
					}
				}
			}
			for _, k := range tt.kinds {
				check.True(t, wide[kind(k)] != 0 && fits[kind(k)] != 0,
					"event type %d: %d do not fit, %d do; want some of both", k, wide[kind(k)], fits[kind(k)])
			}
			check.Equal(t, times > 0, tt.times, "%d times do not fit", times)
		})
	}
}

// TestKindsFit checks that all kinds fit into the six bits of a record.
func TestKindsFit(t *testing.T) {
	check.True(t, tracefmt.EvEndOfGeneration < tracefmt.EventType(kindSwitched) && kindEnd <= kindMask,
		"event types up to %d and our kinds from %d to %d overlap or do not fit", tracefmt.EvEndOfGeneration, kindSwitched, kindEnd)
}
