package process

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/report"
)

// maxPoints bounds every list of a report's series.
const maxPoints = 500

// A series collects values of the runtime over time (heap, Ps, goroutine states), in memory that does not grow with the trace.
type series struct {
	heap, goal, procs points
	gc, stw           longestIntervals
	idle              points // ns with at least one idle P, by step
	idleNS, spanNS    int64  // over the whole trace
	// Goroutine time by state and step. A generation is added when the next one begins, because it ends there.
	running, runnable, syscall points
	previous                   *timeline.Gen
}

// idleStep is the shortest step in ns. Longer traces have longer steps.
const idleStep = 10e6

// add adds the heap sizes and GOMAXPROCS of a generation, and the states of goroutines in the generation before.
func (s *series) add(g *timeline.Gen) {
	for _, h := range g.Heap {
		p := &s.heap
		if h.Goal {
			p = &s.goal
		}
		p.add(h.Time, int64(min(h.Bytes, 1<<62)), larger)
	}
	for _, p := range g.Procs {
		if n := len(s.procs.list); n == 0 || s.procs.list[n-1][1] != int64(p.N) {
			s.procs.add(p.Time, int64(p.N), larger)
		}
	}
	if s.previous != nil {
		end := g.Base
		if g.Num != s.previous.Num+1 {
			end = s.previous.End // the time between the two is unknown
		}
		s.addStates(s.previous, end)
	}
	s.previous = g
	g.CountMoves()
}

// addStates adds, step by step, the time of goroutine states and of idle Ps in a generation up to end. end may be before the
// generation's own last event, which on a busy machine may be hundreds of milliseconds later: the runtime then writes the
// status of goroutines without events.
//
// Steps are at least as long as those of earlier generations, and their number is bounded: a damaged trace of a few bytes can
// claim a generation of years, and one of 4 kB took 17 s in steps of 10 ms.
func (s *series) addStates(g *timeline.Gen, end int64) {
	wanted := max(s.idle.step, idleStep)
	for (end-g.Base)/wanted > 8*maxPoints {
		wanted *= 2
	}
	for from := g.Base; from < end; {
		to := min(from-from%wanted+wanted, end)
		idle := g.IdleTime(from, to)
		s.idle.add(from, idle, add)
		s.idleNS += idle
		from = to
	}
	s.spanNS += max(0, end-g.Base)
	s.idle.step = max(s.idle.step, wanted)
	loads, step := g.Loads(end, wanted)
	from := g.Base
	for _, l := range loads {
		s.running.add(from, l.Running, add)
		s.runnable.add(from, l.Runnable, add)
		s.syscall.add(from, l.Syscall, add)
		from += step - from%step
	}
}

// report returns the report's series (heap, goal, GOMAXPROCS, idle Ps, goroutine states), with times relative to start, for a
// trace that ends at end.
func (s *series) report(start, end int64) *report.Series {
	if s.previous != nil {
		s.addStates(s.previous, end)
		s.previous = nil
	}
	r := &report.Series{
		HeapBytes: s.heap.report(start), GoalBytes: s.goal.report(start), GOMAXPROCS: s.procs.report(start), GC: s.gc.report(start), STW: s.stw.report(start),
	}
	r.StepNS = commonStep(&s.idle, &s.running, &s.runnable, &s.syscall)
	r.PsIdle = s.idle.means(start, end, r.StepNS, 1e6)
	for i := range r.PsIdle {
		r.PsIdle[i][1] = min(1e6, r.PsIdle[i][1])
	}
	r.Running, r.Runnable, r.Syscall = s.running.means(start, end, r.StepNS, 1e3), s.runnable.means(start, end, r.StepNS, 1e3), s.syscall.means(start, end, r.StepNS, 1e3)
	return r
}

// commonStep returns the smallest step, in ns, for which no list has more than maxPoints points.
func commonStep(lists ...*points) int64 {
	step := int64(idleStep)
	for _, p := range lists {
		step = max(step, p.step)
	}
	for _, p := range lists {
		// Two generations may share a step.
		for len(thin(p.list, step, add)) > maxPoints {
			step *= 2
		}
	}
	return step
}

// means converts sums of ns by step to mean values, as [ns since start, value]: the share of the step's part within start and
// end, multiplied by scale.
func (p *points) means(start, end, step int64, scale float64) [][2]int64 {
	out := [][2]int64{}
	for _, x := range thin(p.list, step, add) {
		from := max(x[0]-x[0]%step, start)
		if width := min(x[0]-x[0]%step+step, end) - from; width > 0 {
			out = append(out, [2]int64{from - start, int64(scale * float64(x[1]) / float64(width))})
		}
	}
	return out
}

// points are values over time, as [time, value]. If there are too many, the points of each step are combined.
type points struct {
	list [][2]int64
	step int64 // step of the last thinning, in ns; 0: none
}

func larger(a, b int64) int64 { return max(a, b) }
func add(a, b int64) int64    { return a + b }

// add appends a value at time t. If the list gets much too long, the points of each step are combined by combine.
func (p *points) add(t, v int64, combine func(a, b int64) int64) {
	p.list = append(p.list, [2]int64{t, v})
	// Thinning only when the list is much too long keeps the cost of a point constant.
	for len(p.list) > 8*maxPoints {
		p.step = max(2*p.step, 2*idleStep)
		p.list = thin(p.list, p.step, combine)
	}
}

// report returns at most maxPoints points, relative to start, the largest of each step.
func (p *points) report(start int64) [][2]int64 {
	list, step := p.list, max(p.step, idleStep)
	for len(list) > maxPoints {
		list = thin(list, step, larger)
		step *= 2
	}
	out := make([][2]int64, 0, len(list))
	for _, x := range list {
		out = append(out, [2]int64{max(0, x[0]-start), x[1]})
	}
	return out
}

// thin combines the values of each step to one point, at the time of the step's first point.
func thin(list [][2]int64, step int64, combine func(a, b int64) int64) [][2]int64 {
	out := make([][2]int64, 0, len(list)/2+1)
	for _, x := range list {
		if n := len(out); n > 0 && out[n-1][0]/step == x[0]/step {
			out[n-1][1] = combine(out[n-1][1], x[1])
			continue
		}
		out = append(out, x)
	}
	return out
}

// longestIntervals stores the longest intervals, as [start, length].
type longestIntervals struct{ list [][2]int64 }

// add adds an interval; the shortest ones are dropped when there are too many.
func (s *longestIntervals) add(start, length int64) {
	s.list = append(s.list, [2]int64{start, length})
	if len(s.list) > 4*maxPoints {
		s.keepLongest()
	}
}

// keepLongest drops all but the maxPoints longest intervals.
func (s *longestIntervals) keepLongest() {
	slices.SortFunc(s.list, func(a, b [2]int64) int { return cmp.Or(cmp.Compare(b[1], a[1]), cmp.Compare(a[0], b[0])) })
	s.list = s.list[:min(len(s.list), maxPoints)]
}

// report returns the stored intervals in order of time, relative to start.
func (s *longestIntervals) report(start int64) [][2]int64 {
	s.keepLongest()
	out := make([][2]int64, 0, len(s.list))
	for _, x := range s.list {
		from := max(x[0], start)
		out = append(out, [2]int64{from - start, max(0, x[0]+x[1]-from)})
	}
	slices.SortFunc(out, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	return out
}
