package predict

import (
	"fmt"

	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/output/words"
)

// someReady is the least mean number of runnable goroutines that shows bursts, if it is also
// scale.Far times what random arrivals would give.
const someReady = 0.5

// procs predicts another GOMAXPROCS. Goroutines wait for Ps as in a queue with that many servers:
// with random arrivals by Erlang's formula (open). If the Ps are nearly always busy, a fixed
// number of goroutines wait for each other's answers, and those without a P wait (closed).
func (f *Facts) procs(s Setting, refuse refuser) (*effect, string, error) {
	n, c := s.Value, float64(f.Procs)
	busy := float64(f.BusyNS) / float64(f.SpanNS)
	switch {
	case c <= 0 || f.BusyNS <= 0:
		return refuse("the trace does not show the number of Ps")
	case n == c:
		return &effect{}, fmt.Sprintf("nothing would change: GOMAXPROCS is %d", f.Procs), nil
	case n > c && f.Held:
		return refuse("a CPU quota throttles the process; more Ps use it up sooner. Ask about quota")
	case n > c && f.CPUs > 0 && n > f.CPUs:
		return refuse("the process may run on %s; more Ps than that wait for each other in the kernel", words.CPUs(f.CPUs))
	}
	if n < c {
		if busy > scale.NearlyAll*n {
			return refuse("%.2f Ps are in use on average: with %.0f, work would queue without end, or until clients ask for less; whylate sweep measures it", busy, n)
		}
		if random := busy * erlang(c, busy); f.MeanReady > scale.Far*random && f.MeanReady > someReady {
			return refuse("%.2g goroutines wait for a P on average, many more than if work arrived at random: it arrives in bursts, which fewer Ps make longer; the trace does not show by how much: whylate sweep measures it", f.MeanReady)
		}
		more := erlang(n, busy) - erlang(c, busy)
		return &effect{procs: true, sched: unchanged, waits: times{est: more, low: 0, high: 3 * more}},
			fmt.Sprintf("%.2f of %d Ps are in use on average; requests wait for a P as if work arrived at random", busy, f.Procs), nil
	}
	open, closed := 1.0, 1.0
	if was := erlang(c, min(busy, 0.999*c)); was > 0 {
		open = erlang(n, busy) / was
	}
	if jobs := busy + f.MeanReady; jobs > c {
		closed = max(0, jobs-n) / n / ((jobs - c) / c)
	}
	e := &effect{procs: true, sched: times{est: (open + closed) / 2, low: min(open, closed), high: max(open, closed)}}
	note := fmt.Sprintf("%.2f of %d Ps are in use on average, with %.2f goroutines waiting for one", busy, f.Procs, f.MeanReady)
	if f.CPUs == 0 {
		e.sched[high] = 1
		note += "; the trace does not show whether the machine has CPUs for more"
	}
	return e, note, nil
}

// erlang is how long work waits for one of n servers, divided by how long it takes, if a of them
// are busy on average and work arrives at random (Erlang C).
func erlang(n, a float64) float64 {
	if a <= 0 || a >= n {
		return 0
	}
	b := 1.0 // Erlang B by its recursion
	for k := 1.0; k <= n; k++ {
		b = a * b / (k + a*b)
	}
	c := n * b / (n - a*(1-b))
	return c / (n - a)
}
