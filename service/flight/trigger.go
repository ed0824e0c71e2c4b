package flight

import (
	"fmt"
	"time"

	"github.com/whylate/whylate/service/internal/quantity"
	"github.com/whylate/whylate/service/mark"
	"github.com/whylate/whylate/service/probe"
)

// A Kind is the kind of trigger that led to a recording.
type Kind string

// The kinds of trigger.
const (
	KindSlow       Kind = "slow"       // a request took longer than Options.Slow
	KindUnusual    Kind = "unusual"    // a request took much longer than its route usually does
	KindMany       Kind = "many"       // a large share of requests was slow
	KindFreeze     Kind = "freeze"     // the kernel did not run the process
	KindLatency    Kind = "latency"    // goroutines waited long for a P
	KindGoroutines Kind = "goroutines" // the process has too many goroutines
	KindGC         Kind = "gc"         // garbage collection took a large share of the CPU time
	KindAsked      Kind = "asked"      // Capture, a POST or a signal requested it
)

// Kinds returns all kinds of trigger.
func Kinds() []Kind {
	return []Kind{KindSlow, KindUnusual, KindMany, KindFreeze, KindLatency, KindGoroutines, KindGC, KindAsked}
}

// A Trigger is the reason for a recording.
type Trigger struct {
	Kind Kind   `json:"kind"`
	Text string `json:"text"` // for the reader of a report
	// Route, Status and TookNS, its duration, are set if the trigger was a request.
	Route  string    `json:"route,omitempty"`
	Status string    `json:"status,omitempty"`
	TookNS int64     `json:"took_ns,omitempty"`
	At     time.Time `json:"at"` // when it ended
}

// requestEnded compares a marked request with the limits. It runs on the request's goroutine.
func (r *Recorder) requestEnded(e mark.Ended) {
	r.noteError(r.guard.Do("flight: judging a request", func() { r.judgeRequest(e) }))
}

// judgeRequest counts a finished request in its route, and fires if it took longer than Options.Slow (slow) or than its route's limit (unusual).
func (r *Recorder) judgeRequest(e mark.Ended) {
	slow := r.opts.Slow > 0 && e.Took > r.opts.Slow
	unusual := false
	limit := r.opts.Slow
	if r.opts.Factor > 0 {
		if route := r.routes.getOrCreate(e.Name); route != nil {
			if unusual = route.add(e.Took); unusual && !slow {
				limit = time.Duration(route.limit.Load())
			}
		}
	}
	if !slow && !unusual && r.opts.Share == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.markedRequests++
	if !slow && !unusual {
		return
	}
	r.slowRequests++
	kind := KindSlow
	if !slow {
		kind = KindUnusual
	}
	end := e.Began.Add(e.Took)
	if e.Began.IsZero() {
		end = time.Now()
	}
	r.fire(moment{kind: kind, end: end, took: e.Took, name: e.Name, status: e.Status, limit: limit})
}

// OnFreeze keeps a recording of a freeze of at least Options.Freeze. Set it as
// probe.Options.OnFreeze.
func (r *Recorder) OnFreeze(f probe.Freeze) {
	if r == nil || f.Likely < r.opts.Freeze {
		return
	}
	text := fmt.Sprintf("the kernel did not run the process for about %v", f.Likely.Round(time.Millisecond))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fire(moment{kind: KindFreeze, end: time.Now(), took: f.Likely, text: text})
}

// judgeSecond compares one second's requests and metrics with the bounds in Options, fires for each that is exceeded, and starts the next second's
// counts of requests, with r.mu held.
func (r *Recorder) judgeSecond(metrics metricsReading) {
	const minSlow = 10 // fewer slow requests do not trigger, whatever their share
	now, o := time.Now(), &r.opts
	if o.Share > 0 && r.slowRequests >= minSlow && float64(r.slowRequests) >= o.Share*float64(r.markedRequests) {
		r.fire(moment{kind: KindMany, end: now, text: fmt.Sprintf("%d of %d requests in one second were slow", r.slowRequests, r.markedRequests)})
	}
	r.markedRequests, r.slowRequests = 0, 0
	if o.Latency > 0 && metrics.schedLatency > o.Latency {
		r.fire(moment{kind: KindLatency, end: now, took: metrics.schedLatency, text: fmt.Sprintf("one in a hundred goroutines waited at least %v for a P, longer than %v", metrics.schedLatency, o.Latency)})
	}
	if o.Goroutines > 0 && metrics.goroutines > uint64(o.Goroutines) {
		r.fire(moment{kind: KindGoroutines, end: now, text: fmt.Sprintf("the process has %d goroutines, more than %d", metrics.goroutines, o.Goroutines)})
	}
	if o.GC > 0 && metrics.gcShare > o.GC {
		r.fire(moment{kind: KindGC, end: now, text: fmt.Sprintf("garbage collection took %s of the CPU time, more than %s", quantity.Percent(metrics.gcShare), quantity.Percent(o.GC))})
	}
}

// fire adds a trigger to the plan, or counts it as missed if nothing is recorded, the limits per hour or day are reached, or the plan does not take
// it, with r.mu held.
func (r *Recorder) fire(m moment) {
	r.state.Triggers[m.kind]++
	waited, due := len(r.plan.waiting) > 0, r.plan.tailStart
	if !r.state.Recording || !waited && !r.checkLimits(m.kind, m.end) || !r.plan.add(m, m.end) {
		r.countMissed(map[Kind]uint64{m.kind: 1})
		return
	}
	if !waited || r.plan.tailStart != due {
		select {
		case r.planChanged <- struct{}{}:
		default:
		}
	}
}

// checkLimits refills the hour's and the day's bucket and reports whether both allow another
// recording, with r.mu held. Half of both is reserved for requests: if other processes on
// the machine freeze this one all day, slow requests must still get recordings.
func (r *Recorder) checkLimits(k Kind, now time.Time) bool {
	useReserve := classOf[k] == classRequests
	hour, day := r.hourBucket.checkToken(now, useReserve), r.dayBucket.checkToken(now, useReserve)
	return hour && day
}

// countMissed counts triggers that no recording holds, with r.mu held.
func (r *Recorder) countMissed(counts map[Kind]uint64) {
	for k, n := range counts {
		r.missedSinceLast[k] += n
		r.state.Missed[k] += n
	}
}
