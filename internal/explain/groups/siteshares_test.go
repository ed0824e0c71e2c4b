package groups

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// TestSamplePool: eight samples are enough for runs without a stack, and five if all are in one function, on whatever lines.
// Five in several functions, fewer, or samples of another time are not. It fails if the event at the end of a run outranks
// all samples, and if two samples give all of a time to one function.
func TestSamplePool(t *testing.T) {
	syms := tracefmt.NewSymbols()
	frame := func(fn string, line uint32) tracefmt.FrameID {
		return syms.Stack(syms.AddStack(tracefmt.FrameText{Func: fn, File: "x.go", Line: line}))[0]
	}
	push1, push2, read := frame("sprig.mustPush", 36), frame("sprig.mustPush", 39), frame("main.read", 7)
	must.True(t, push1 != push2, "two lines are one frame")
	for _, c := range []struct {
		name    string
		samples map[tracefmt.FrameID]int64
		unseen  int64
		want    bool
	}{
		{"eight", map[tracefmt.FrameID]int64{push1: 3, push2: 3, read: 2}, 100e6, true},
		{"five of one function", map[tracefmt.FrameID]int64{push1: 3, push2: 2}, 50e6, true},
		{"seven, one in another function", map[tracefmt.FrameID]int64{push1: 3, push2: 3, read: 1}, 50e6, false},
		{"four of one function", map[tracefmt.FrameID]int64{push1: 4}, 40e6, false},
		{"five, of a second of running time", map[tracefmt.FrameID]int64{push1: 5}, 1e9, false},
		{"none", nil, 0, false},
	} {
		p := samplePool{unsampledNS: c.unseen}
		for site, n := range c.samples {
			p.add(site, n)
		}
		check.Equal(t, p.isSufficient(syms), c.want, "%s", c.name)
	}
}
