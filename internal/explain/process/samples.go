package process

import (
	"strings"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// count adds n CPU samples with one stack to what the thread was doing.
func (s *Samples) count(syms *tracefmt.Symbols, id tracefmt.StackID, n int64) {
	s.All += n
	sched, gc, tracing := false, false, false
	for _, f := range syms.Stack(id) {
		switch fn := syms.String(syms.Frame(f).Func); {
		case !strings.HasPrefix(fn, "runtime."):
		case schedulers[fn]:
			sched = true
		case strings.HasPrefix(fn, "runtime.gcBgMarkWorker"), strings.HasPrefix(fn, "runtime.gcAssistAlloc"), fn == "runtime.gcDrain",
			fn == "runtime.bgsweep", fn == "runtime.gcStart", fn == "runtime.(*sweepLocked).sweep":
			gc = true
		case strings.HasPrefix(fn, "runtime.trace"), strings.HasPrefix(fn, "runtime.(*trace"), strings.HasPrefix(fn, "runtime.unsafeTrace"):
			tracing = true
		}
	}
	// Tracing inside the scheduler counts as tracing, and scheduling inside a mark worker as scheduling.
	switch {
	case tracing:
		s.Tracing += n
	case sched:
		s.Scheduler += n
	case gc:
		s.GC += n
	}
}

// schedulers are the functions of runtime/proc.go (Go 1.22 to 1.26) in which a thread searches for work, switches to
// another goroutine, parks, or wakes another thread; and the system call that parks and wakes threads.
var schedulers = map[string]bool{
	"runtime.schedule": true, "runtime.findRunnable": true, "runtime.findrunnable": true, "runtime.stealWork": true, "runtime.runqgrab": true,
	"runtime.park_m": true, "runtime.goschedImpl": true, "runtime.gosched_m": true, "runtime.gopreempt_m": true, "runtime.goexit0": true,
	"runtime.wakep": true, "runtime.startm": true, "runtime.stopm": true, "runtime.mPark": true, "runtime.handoffp": true, "runtime.resetspinning": true,
	"runtime.exitsyscall0": true, "runtime.sysmon": true, "runtime.injectglist": true, "runtime.futex": true, "runtime.mcall": true,
}
