package load

import (
	"context"
	"runtime"
	"time"
)

// A Pace says how the generator waits for the next request's time.
type Pace string

const (
	// PaceSleep sleeps in the kernel, to some 60 us, where that can be had (Linux), and else as PaceTimer does.
	PaceSleep Pace = "sleep"
	// PaceSpin sleeps and then spins for the last stretch. It is for a generator with a core of its own.
	PaceSpin Pace = "spin"
	// PaceTimer uses the runtime's timers, which may be a millisecond late: its poller waits in whole milliseconds
	// (golang.org/issue/53824). It costs least, and follows the clock of a testing/synctest bubble.
	PaceTimer Pace = "timer"
)

// spinWindow is how long before its time PaceSpin stops sleeping: the kernel's sleep is hardly ever later.
const spinWindow = 300 * time.Microsecond

// maxSleep bounds one sleep that a context cannot end.
const maxSleep = 20 * time.Millisecond

// A pacer waits. Its fields are for the goroutine that waits, until that has ended.
type pacer struct {
	pace     Pace
	timer    *time.Timer
	spinTime time.Duration // time spent spinning
}

func newPacer(p Pace) *pacer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &pacer{pace: p, timer: t}
}

// waitUntil waits for a time. It returns false if ctx ends before.
func (p *pacer) waitUntil(ctx context.Context, due time.Time) bool {
	for {
		remaining := time.Until(due)
		if remaining <= 0 {
			return ctx.Err() == nil
		}
		switch {
		case p.pace == PaceSpin && remaining <= spinWindow:
			begin := time.Now()
			for time.Until(due) > 0 {
				runtime.Gosched() // the requests' goroutines go first
			}
			p.spinTime += time.Since(begin)
		case p.pace == PaceSpin && remaining <= maxSleep:
			sleepFor(remaining - spinWindow)
		case p.pace == PaceSleep && remaining <= maxSleep:
			sleepFor(remaining)
		default:
			if p.pace != PaceTimer {
				remaining -= maxSleep / 2
			}
			p.timer.Reset(remaining)
			select {
			case <-p.timer.C:
			case <-ctx.Done():
				p.timer.Stop()
				return false
			}
		}
		if ctx.Err() != nil {
			return false
		}
	}
}
