package probe

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/must"
)

const ms = time.Millisecond

func TestEstimate(t *testing.T) {
	for _, c := range []struct {
		name                   string
		t                      tick
		min, likely, max, wait time.Duration
	}{{
		name: "on time, idle",
		t:    tick{due: 10 * ms, fired: 10 * ms, procs: 2, fastInterval: 10 * ms},
	}, {
		name: "frozen before the timer was due, process idle otherwise",
		t:    tick{due: 10 * ms, fired: 40 * ms, procs: 2, fastInterval: 10 * ms},
		// Without CPU time the freeze may be as long as the whole tick.
		min: 30 * ms, likely: 40 * ms, max: 40 * ms,
	}, {
		name: "two CPUs busy all the time: the lateness is a wait for a P",
		t:    tick{due: 10 * ms, fired: 22 * ms, cpu: 44 * ms, procs: 2, usualCPUs: 2, fastInterval: 10 * ms},
		wait: 12 * ms,
	}, {
		name: "saturated, frozen from 5 ms on for 75 ms, then 3 ms of waiting for a P",
		t:    tick{due: 10 * ms, fired: 83 * ms, cpu: 16 * ms, procs: 2, usualCPUs: 2, fastInterval: 10 * ms},
		// 73 ms late; the 8 ms of CPU per P may all lie after the due time.
		min: 65 * ms, likely: 75 * ms, max: 75 * ms,
	}, {
		name: "half a CPU in use on average, frozen from 4 ms on",
		t:    tick{due: 10 * ms, fired: 54 * ms, cpu: 2 * ms, procs: 2, usualCPUs: 0.5, fastInterval: 10 * ms},
		// 4 ms of running at half a CPU explain the 2 ms of CPU time.
		min: 43 * ms, likely: 50 * ms, max: 53 * ms,
	}, {
		name: "a long tick says little about when the freeze began",
		t:    tick{due: 250 * ms, fired: 300 * ms, cpu: 0, procs: 2, usualCPUs: 1, fastInterval: 10 * ms},
		min:  50 * ms, likely: 60 * ms, max: 60 * ms,
	}, {
		name: "more CPU time than the Ps could use (C code): nothing is certain",
		t:    tick{due: 10 * ms, fired: 30 * ms, cpu: 90 * ms, procs: 2, usualCPUs: 2, fastInterval: 10 * ms},
		wait: 20 * ms,
	}, {
		name: "early timer",
		t:    tick{due: 10 * ms, fired: 9 * ms, procs: 1, fastInterval: 10 * ms},
	}} {
		s := c.t.estimate()
		if s.min != c.min || s.likely != c.likely || s.max != c.max || s.waitP != c.wait {
			t.Errorf("%s:\n got least %v likely %v most %v wait %v\nwant least %v likely %v most %v wait %v",
				c.name, s.min, s.likely, s.max, s.waitP, c.min, c.likely, c.max, c.wait)
		}
	}
}

// TestEstimateBoundsTheTruth simulates ticks with a known load, a freeze, and a wait for
// a P in which all Ps are busy. The freeze must be between min and max, and likely must
// be near it on average.
func TestEstimateBoundsTheTruth(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 1))
	var truth, likely time.Duration
	for range 20000 {
		procs := float64(1 + r.IntN(8))
		rate := procs * r.Float64()
		interval := 10 * ms
		start := time.Duration(r.Int64N(int64(interval)))
		frozen := 10*ms + time.Duration(r.Int64N(int64(80*ms)))
		var wait time.Duration
		if r.IntN(2) == 0 {
			rate = procs
			wait = time.Duration(r.Int64N(int64(10 * ms)))
		}
		cpu := rate*float64(start) + procs*float64(wait)
		x := tick{due: interval, fired: start + frozen + wait, cpu: time.Duration(cpu), procs: procs, usualCPUs: rate, fastInterval: interval}
		if x.fired < x.due {
			continue // the freeze ended before the timer was due, so it is missed
		}
		s := x.estimate()
		const rounding = 2 * time.Nanosecond
		must.True(t, frozen >= s.min-rounding && frozen <= s.max+rounding, "%+v: frozen %v outside of %+v", x, frozen, s)
		must.True(t, s.likely >= s.min && s.likely <= s.max, "%+v: %+v", x, s)
		must.True(t, s.max-s.min <= interval+rounding, "%+v: least and most are further apart than the interval: %+v", x, s)
		truth += frozen
		likely += s.likely
	}
	if off := float64(likely-truth) / float64(truth); off < -0.02 || off > 0.02 {
		t.Errorf("likely is off by %.1f %% on average", 100*off)
	}
}
