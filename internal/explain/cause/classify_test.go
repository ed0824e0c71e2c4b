package cause

import (
	"testing"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline"
)

// TestSteps: which cause each kind of step has, and which kinds have a call.
func TestSteps(t *testing.T) {
	fsync := []string{"syscall.Fsync", "os.(*File).Sync", "main.f"}
	for _, c := range []struct {
		kind  critpath.Kind
		stack []string
		cause Cause
		call  string
	}{
		{critpath.CPU, []string{"main.f"}, CPU, ""},
		{critpath.Syscall, fsync, Syscall, "syscall.Fsync"},
		{critpath.Syscall, []string{"syscall.write", "net.(*netFD).Write", "net.(*conn).Write", "main.f"}, Syscall, "net.(*netFD).Write"},
		{critpath.Sleep, []string{"time.Sleep", "main.f"}, Sleep, "time.Sleep"},
		{critpath.Network, []string{"net.(*conn).Read", "main.f"}, Network, "net.(*conn).Read"},
		{critpath.PollGap, []string{"net.(*conn).Read", "main.f"}, SchedPoll, ""},
		{critpath.Lock, []string{"sync.(*Mutex).Lock", "main.f"}, Lock, "sync.(*Mutex).Lock"},
		{critpath.Chan, []string{"runtime.chanrecv1", "main.f"}, Chan, "runtime.chanrecv1"},
		{critpath.Assist, []string{"runtime.gcAssistAlloc", "main.f"}, GCAssist, ""},
		{critpath.GCWait, []string{"runtime.gcMarkDone", "main.f"}, GCWait, "runtime.gcMarkDone"},
		{critpath.StopWorld, []string{"runtime.stopTheWorld", "main.f"}, STW, ""},
		{critpath.Unknown, nil, Unknown, ""},
	} {
		syms, stack := oneStack(c.stack)
		step := critpath.Step{Start: 10, End: 20, G: 1, Kind: c.kind, Stack: stack, FollowedWait: -1}
		segs := New(new(timeline.Window), syms).Segments([]critpath.Step{step})
		must.True(t, len(segs) == 1, "kind %d became %d segments", c.kind, len(segs))
		s := segs[0]
		check.True(t, s.Code.Cause() == c.cause && syms.String(s.Call) == c.call && s.Start == 10 && s.End == 20,
			"kind %d has cause %s in %q, from %d to %d; want %s in %q", c.kind, s.Code.Cause(), syms.String(s.Call), s.Start, s.End, c.cause, c.call)
		if fn := syms.String(syms.Frame(s.Site).Func); c.stack != nil && fn != "main.f" {
			t.Errorf("kind %d is at %q", c.kind, fn)
		}
	}
}
