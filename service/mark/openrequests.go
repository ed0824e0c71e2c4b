package mark

import (
	"sync/atomic"
	"time"
)

// While there is a watcher, open requests are counted by their begin: in steps of an
// eighth of a second, in a ring of half a minute. A new step replaces the one half a
// minute older, whose count is lost. So a stream of several hours is counted for half a
// minute and costs nothing afterwards.
const (
	openStep     = 125 * time.Millisecond
	openRingSize = 256
)

// Each of openCounts has the number of its lap around the ring in its upper half, and the
// number of open requests that began in its step in its lower half.
type openCounts [openRingSize]atomic.Uint64

var (
	openRequests openCounts
	ringOrigin   = time.Now()
)

// stepIndex returns the step of a time, counted from ringOrigin.
func stepIndex(t time.Time) int64 { return int64(t.Sub(ringOrigin) / openStep) }

// slot returns the counter of a step and its lap, shifted to the upper half.
func (o *openCounts) slot(step int64) (count *atomic.Uint64, lap uint64) {
	return &o[uint64(step)%openRingSize], uint64(step) / openRingSize << 32
}

// begin counts an open request that began at t, in the step of t; a count that the same slot of the ring has from an earlier lap is lost. It may be
// called concurrently.
func (o *openCounts) begin(t time.Time) {
	count, lap := o.slot(stepIndex(t))
	for {
		v := count.Load()
		next := lap | 1
		if v>>32<<32 == lap {
			next = v + 1
		}
		if count.CompareAndSwap(v, next) {
			return
		}
	}
}

// end removes a request that began at the given time from the count of its step, unless a
// later lap has replaced that count. It may be called concurrently.
func (o *openCounts) end(began time.Time) {
	count, lap := o.slot(stepIndex(began))
	for {
		v := count.Load()
		if v>>32<<32 != lap || v == lap {
			return // the step was replaced
		}
		if count.CompareAndSwap(v, v-1) {
			return
		}
	}
}

// count returns the number of open requests that began in the steps from that of from to that of to, as far as the ring reaches
// back.
func (o *openCounts) count(from, to time.Time) (n int) {
	first, last := stepIndex(from), stepIndex(to)
	for step := max(first, last-openRingSize+1); step <= last; step++ {
		count, lap := o.slot(step)
		if v := count.Load(); v>>32<<32 == lap {
			n += int(uint32(v))
		}
	}
	return n
}

// Open returns how many of the requests that began between two times are still
// running. It counts those that began in the last half minute while there was a
// watcher (Watch), in steps of 125 ms.
func Open(from, to time.Time) int { return openRequests.count(from, to) }
