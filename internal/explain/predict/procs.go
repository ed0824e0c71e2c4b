package predict

import (
	"fmt"

	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/words"
)

// minBurstReady is the least mean number of runnable goroutines that shows bursts, if it is also threshold.FarFactor times that of
// random arrivals.
const minBurstReady = 0.5

// predictProcs predicts another GOMAXPROCS, with the basis of the prediction in words; or it refuses, with a nil effect. It
// takes the waits of goroutines for Ps for those in a queue with that many servers. Two models bound it: random arrivals (Erlang
// C), and, if the Ps are nearly always busy, a fixed number of goroutines that share the Ps.
func (f *Facts) predictProcs(setting Setting, refuse refuseFunc) (change *effect, explanation string, refusal error) {
	newProcs, procs := setting.Value, float64(f.Procs)
	busy := float64(f.BusyNS) / float64(f.SpanNS)
	switch {
	case procs <= 0 || f.BusyNS <= 0:
		return refuse("the trace does not show the number of Ps")
	case newProcs == procs:
		return &effect{}, fmt.Sprintf("nothing would change: GOMAXPROCS is %d", f.Procs), nil
	case newProcs > procs && f.Throttled:
		return refuse("a CPU quota throttles the process; more Ps use it up sooner. Ask about quota")
	case newProcs > procs && f.CPUs > 0 && newProcs > f.CPUs:
		return refuse("the process may run on %s; more Ps than that wait for each other in the kernel", words.CPUs(f.CPUs))
	}
	if newProcs < procs {
		if busy > threshold.NearlyAllShare*newProcs {
			return refuse("%.2f Ps are in use on average: with %.0f, work would queue without end, or until clients ask for less; whylate sweep measures it", busy, newProcs)
		}
		if random := busy * erlangWait(procs, busy); f.MeanReady > threshold.FarFactor*random && f.MeanReady > minBurstReady {
			return refuse("%.2g goroutines wait for a P on average, many more than if work arrived at random: it arrives in bursts, which fewer Ps make longer; the trace does not show by how much: whylate sweep measures it", f.MeanReady)
		}
		extraWait := erlangWait(newProcs, busy) - erlangWait(procs, busy)
		return &effect{changesProcs: true, sched: unchanged, waitPerRunNS: variantValues{est: extraWait, low: 0, high: 3 * extraWait}},
			fmt.Sprintf("%.2f of %d Ps are in use on average; requests wait for a P as if work arrived at random", busy, f.Procs), nil
	}
	open, closed := 1.0, 1.0
	if currentWait := erlangWait(procs, min(busy, 0.999*procs)); currentWait > 0 {
		open = erlangWait(newProcs, busy) / currentWait
	}
	if jobs := busy + f.MeanReady; jobs > procs {
		closed = max(0, jobs-newProcs) / newProcs / ((jobs - procs) / procs)
	}
	e := &effect{changesProcs: true, sched: variantValues{est: (open + closed) / 2, low: min(open, closed), high: max(open, closed)}}
	note := fmt.Sprintf("%.2f of %d Ps are in use on average, with %.2f goroutines waiting for one", busy, f.Procs, f.MeanReady)
	if f.CPUs == 0 {
		e.sched[high] = 1
		note += "; the trace does not show whether the machine has CPUs for more"
	}
	return e, note, nil
}

// erlangWait returns the mean wait in a queue with random arrivals (M/M/c, Erlang C), as a multiple of the service time. busy
// is the mean number of busy servers. It is 0 if the load is 0 or too high for the servers.
func erlangWait(servers, busy float64) float64 {
	if busy <= 0 || busy >= servers {
		return 0
	}
	blocking := 1.0 // Erlang B by its recursion
	for k := 1.0; k <= servers; k++ {
		blocking = busy * blocking / (k + busy*blocking)
	}
	c := servers * blocking / (servers - busy*(1-blocking))
	return c / (servers - busy)
}
