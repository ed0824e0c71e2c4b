package queues

import (
	"testing"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// TestUnread: what has arrived is read at once, on the goroutine that waited for it. Who closes the connection instead was told that a deadline passed.
// What was done by a system call that shows no stack is not known.
func TestUnread(t *testing.T) {
	all := tracefmt.NewSymbols()
	stack := func(fn string) tracefmt.StackID {
		return all.AddStack(tracefmt.FrameText{Func: "syscall.syscall"}, tracefmt.FrameText{Func: fn}, tracefmt.FrameText{Func: "main.ask"})
	}
	read, closed, file := stack("net.(*netFD).Read"), stack("net.(*netFD).Close"), stack("os.(*File).Write")
	syms := all.Snapshot()
	p := &part{stage: path.New(&timeline.Window{}, &syms, path.Options{})}
	call := func(g uint64, stack tracefmt.StackID) critpath.Step {
		return critpath.Step{Kind: critpath.Syscall, G: g, Stack: stack}
	}
	wait, run := critpath.Step{Kind: critpath.Network, G: 7}, critpath.Step{Kind: critpath.CPU, G: 7}
	for name, c := range map[string]struct {
		steps []critpath.Step
		want  bool
	}{
		"read":                   {[]critpath.Step{wait, run, call(7, read), call(7, closed)}, false},
		"closed":                 {[]critpath.Step{wait, run, call(7, closed)}, true},
		"another goroutine":      {[]critpath.Step{wait, run, call(8, closed)}, false},
		"another goroutine read": {[]critpath.Step{wait, call(8, read), run, call(7, closed)}, true},
		"no stack":               {[]critpath.Step{wait, run, call(7, 0), call(7, closed)}, false},
		"a file":                 {[]critpath.Step{wait, run, call(7, file), call(7, closed)}, false},
		"waits again":            {[]critpath.Step{wait, run, wait, run, call(7, closed)}, false},
	} {
		if got := unread(p, c.steps); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
