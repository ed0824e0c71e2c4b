package freeze

import (
	"math/rand/v2"
	"testing"

	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

const ms = int64(1e6)

const ownQuota, noQuota, unknownQuota = report.ThrottleOwn, report.ThrottleNone, report.ThrottleUnknown

type verdicts = []report.ThrottleVerdict

// A workload is a process of a few threads, each with a goroutine that computes.
type workload struct {
	threads int
	length  int64
	// runLength returns how long a thread runs until its next event. Then it is preempted or, if yields is set, calls
	// runtime.Gosched.
	runLength func(*rand.Rand) int64
	yields    bool
	// holds returns the intervals, in order of time, in which no thread runs. lag returns how long after one a
	// thread's next event follows.
	holds func(*rand.Rand) [][2]int64
	lag   func(*rand.Rand) int64
	// borders are the times at which generations end, after all earlier events.
	borders []int64
}

// trace writes the events of the workload in order of time.
func (w *workload) trace(t *testing.T, seed uint64) []byte {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 77))
	b := tracetext.New(26)
	var threads []*tracetext.Thread
	next := make([]int64, w.threads)
	for i := range w.threads {
		th := b.Thread()
		th.ProcsChange(0, w.threads)
		th.HasRun(uint64(i + 1))
		threads = append(threads, th)
		next[i] = 1000 + w.runLength(rnd)
	}
	var held [][2]int64
	if w.holds != nil {
		held = w.holds(rnd)
	}
	borders := w.borders
	stop := func(th *tracetext.Thread, time int64) {
		g := th.Running()
		if w.yields {
			th.Stop(time, "runtime.Gosched", "runtime.Gosched", "main.work")
		} else {
			th.Stop(time, "preempted", "main.work")
		}
		th.Start(time+200, g)
	}
	for {
		i := 0
		for k, time := range next {
			if time < next[i] {
				i = k
			}
		}
		time := next[i]
		for len(held) > 0 && time > held[0][1] {
			held = held[1:]
		}
		if len(held) > 0 && time > held[0][0] {
			next[i] = held[0][1] + w.lag(rnd)
			continue
		}
		if time > w.length {
			break
		}
		if len(borders) > 0 && time >= borders[0] {
			b.NextGeneration(time)
			borders = borders[1:]
		}
		stop(threads[i], time)
		next[i] = time + 1000 + w.runLength(rnd)
	}
	return must.Have(b.Bytes())(t)
}

// detect runs a Detector over a trace.
func detect(t testing.TB, data []byte) (*Detector, Verdict) {
	t.Helper()
	d := &Detector{}
	timelinetest.ForEachGen(t, data, 2, d.Add)
	return d, d.Verdict()
}

// uniform returns uniformly distributed times.
func uniform(low, high int64) func(*rand.Rand) int64 {
	return func(r *rand.Rand) int64 { return low + r.Int64N(high-low+1) }
}

// monitorTurns returns run lengths of code that computes: sysmon checks every 10 ms, and preempts the code at the
// first or second check.
func monitorTurns(r *rand.Rand) int64 { return 10_060_000*(1+r.Int64N(2)) + r.Int64N(60_000) }

// quotaHolds stops threads when a period's quota is used up, which varies by vary, until the end of the period, in
// the given share of all periods.
func quotaHolds(length, period, run, vary int64, share float64) func(*rand.Rand) [][2]int64 {
	return func(r *rand.Rand) (out [][2]int64) {
		phase := r.Int64N(period)
		for periodStart := phase; periodStart+period < length; periodStart += period {
			if used := run + r.Int64N(2*vary+1) - vary; used < period && r.Float64() < share {
				out = append(out, [2]int64{periodStart + used, periodStart + period})
			}
		}
		return out
	}
}

// randomHolds stops threads at random times.
func randomHolds(length, meanApart, shortest, longest int64) func(*rand.Rand) [][2]int64 {
	return func(r *rand.Rand) (out [][2]int64) {
		for clock := r.Int64N(meanApart); clock < length; {
			d := shortest + r.Int64N(longest-shortest+1)
			out = append(out, [2]int64{clock, clock + d})
			clock += d + 1 + r.Int64N(2*meanApart)
		}
		return out
	}
}

// mergeHolds returns the union of two kinds of holds.
func mergeHolds(a, b func(*rand.Rand) [][2]int64) func(*rand.Rand) [][2]int64 {
	return func(r *rand.Rand) (out [][2]int64) {
		x, y := a(r), b(r)
		for len(x) > 0 || len(y) > 0 {
			if len(y) == 0 || len(x) > 0 && x[0][0] < y[0][0] {
				out, x = append(out, x[0]), x[1:]
			} else {
				out, y = append(out, y[0]), y[1:]
			}
		}
		merged := out[:0]
		for _, s := range out {
			if n := len(merged); n > 0 && s[0] <= merged[n-1][1] {
				merged[n-1][1] = max(merged[n-1][1], s[1])
				continue
			}
			merged = append(merged, s)
		}
		return merged
	}
}
