package groups

import (
	"testing"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// TestSamplePool: eight samples speak for runs that show no stack, and five where all are in one function, at whatever lines;
// not five that disagree, not fewer, and not those of another time. It would catch a bracket that outranks all samples there
// are, and a function that has all of a time because of two.
func TestSamplePool(t *testing.T) {
	syms := tracefmt.NewSymbols()
	frame := func(fn string, line uint32) tracefmt.FrameID {
		return syms.Stack(syms.AddStack(tracefmt.FrameText{Func: fn, File: "x.go", Line: line}))[0]
	}
	push1, push2, read := frame("sprig.mustPush", 36), frame("sprig.mustPush", 39), frame("main.read", 7)
	if push1 == push2 {
		t.Fatal("two lines are one frame")
	}
	for _, c := range []struct {
		name    string
		samples map[tracefmt.FrameID]int64
		unseen  int64
		want    bool
	}{
		{"eight", map[tracefmt.FrameID]int64{push1: 3, push2: 3, read: 2}, 100e6, true},
		{"five of one function", map[tracefmt.FrameID]int64{push1: 3, push2: 2}, 50e6, true},
		{"seven, one of them elsewhere", map[tracefmt.FrameID]int64{push1: 3, push2: 3, read: 1}, 50e6, false},
		{"four of one function", map[tracefmt.FrameID]int64{push1: 4}, 40e6, false},
		{"five, of a second of running time", map[tracefmt.FrameID]int64{push1: 5}, 1e9, false},
		{"none", nil, 0, false},
	} {
		p := samplePool{unsampledNS: c.unseen}
		for site, n := range c.samples {
			p.add(site, n)
		}
		if got := p.isSufficient(syms); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
