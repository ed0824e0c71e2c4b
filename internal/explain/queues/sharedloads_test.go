package queues

import (
	"testing"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// TestSharedLoads: a request comes every 10. Every 1000, one makes a call of 55, and so do those that come during it, as when a shared result has
// expired. If they queue for most of it, only that one calls, requests for other things pass, calls come together while as many others pass, or all requests call,
// it is not the same that the calls ask for.
func TestSharedLoads(t *testing.T) {
	symbols := tracefmt.NewSymbols()
	stack := symbols.AddStack(tracefmt.FrameText{Func: "main.load", File: "/s/main.go", Line: 58})
	syms := symbols.Snapshot()
	for name, c := range map[string]struct {
		calls func(offset int64) bool // offset is the time since the first call of 1000
		extra int                     // calls that come together with the first
		ns    int64                   // of the answer
		want  bool
	}{
		"expired":         {func(offset int64) bool { return offset < 50 }, 0, 50, true},
		"all queue":       {func(offset int64) bool { return offset < 50 }, 0, 20, false},
		"one call":        {func(offset int64) bool { return offset == 0 }, 0, 50, false},
		"others pass":     {func(offset int64) bool { return offset == 0 || offset == 30 }, 0, 50, false},
		"together":        {func(offset int64) bool { return offset == 0 }, 5, 50, false},
		"all calls":       {func(int64) bool { return true }, 0, 50, false},
		"often, by turns": {func(offset int64) bool { return offset%50 == 0 }, 0, 50, false},
	} {
		sum := New()
		p := sum.NewAdder(path.New(&timeline.Window{}, &syms, path.Options{})).(*workerSum)
		add := func(start int64, calls bool) {
			r := &request.Request{Kind: request.HTTP1, G: uint64(start), Start: start, End: start + 1}
			if p.servedStarts = append(p.servedStarts, start); calls {
				r.End = start + 55
				p.callScratch = []requestCalls{{stack: stack, peerCallSum: peerCallSum{PeerCalls: PeerCalls{Calls: 1, AnswerNS: c.ns}}}}
				p.addCallCounts(&path.WalkResult{Req: r, Weight: 1}, []critpath.FollowedWait{{}})
			}
		}
		for start := int64(0); start < 5000; start += 10 {
			add(start, c.calls(start%1000))
			for i := range c.extra * int((1000-start%1000)/1000) {
				add(start+1+int64(i), true)
			}
		}
		sum.Merge([]path.Translation{{Groups: []path.GroupID{0}}})
		got := sum.SharedLoads(&spell.Speller{Syms: &syms})
		check.True(t, (len(got) == 1) == c.want && (!c.want || got[0] == SharedLoad{File: got[0].File, Line: 58, Loads: 5, Callers: 20, Passers: 5}), "%s: %+v", name, got)
	}
}
