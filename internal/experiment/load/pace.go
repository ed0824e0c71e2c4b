package load

import (
	"context"
	"runtime"
	"time"
)

// A Pace is the method by which the generator waits for the start of the next request.
type Pace string

const (
	// PaceSleep sleeps in the kernel, exact to about 60 us, on Linux; elsewhere it is PaceTimer.
	PaceSleep Pace = "sleep"
	// PaceSpin sleeps and then spins for the rest. It is for a generator with a dedicated core.
	PaceSpin Pace = "spin"
	// PaceTimer uses the runtime's timers, which may be a millisecond late, because the runtime's
	// poller waits in whole milliseconds (golang.org/issue/53824). It costs least, and follows the
	// clock of a testing/synctest bubble.
	PaceTimer Pace = "timer"
)

// spinWindow is how long before the due time PaceSpin stops sleeping: the kernel's sleep is rarely
// later than that.
const spinWindow = 300 * time.Microsecond

// maxSleep bounds a sleep in the kernel, because a context cannot end it.
const maxSleep = 20 * time.Millisecond

// A pacer waits for due times. Only the waiting goroutine uses its fields.
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

// waitUntil waits for a time, in the way of the pace, which may keep a CPU busy. It returns false if ctx has ended.
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
				runtime.Gosched() // let the requests' goroutines run
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
