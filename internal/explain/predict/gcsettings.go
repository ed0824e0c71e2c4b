package predict

import (
	"fmt"
	"math"
	"sort"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/words"
)

// minHeap is the smallest heap goal of the runtime with GOGC=100.
const minHeap = 4 << 20

// predictGOGC predicts another GOGC, with the basis of the prediction in words; or it refuses, with a nil effect. The decisive
// ratio is headroom (goal less live heap) now to headroom then: it gives the number of cycles, while the cost of a cycle, which
// marks the live heap, stays. The goal is live + (live + stacks + globals) * GOGC/100, at least 4 MiB * GOGC/100 ("A Guide to
// the Go Garbage Collector").
func (f *Facts) predictGOGC(setting Setting, refuse refuseFunc) (change *effect, explanation string, refusal error) {
	// A collector that takes almost no time cannot take much less, whatever GOGC is now.
	if f.Cycles > 0 && f.Cycles-f.ForcedCycles < threshold.Repeats && setting.Value >= 100 && f.GCShare < threshold.NoiseShare {
		return &effect{}, fmt.Sprintf("little would change: garbage was collected %s, and it cost requests at most %.1f%% of their time", timesText(f.Cycles), 100*f.GCShare), nil
	}
	if e, note, err := f.requireCollections(refuse); e == nil {
		return e, note, err
	}
	headroom := float64(f.GoalBytes - f.LiveBytes)
	currentGOGC := 100 * headroom / float64(f.LiveBytes)
	newHeadroom := max(float64(f.LiveBytes)*setting.Value/100, minHeap*setting.Value/100-float64(f.LiveBytes))
	ratio := variantValues{est: headroom / newHeadroom, low: headroom / newHeadroom, high: headroom / newHeadroom}
	// The live heap is measured as the lowest point of the heap, which is a little more. So a GOGC near 100 is taken to be
	// exactly the default.
	if defaultHeadroom := max(float64(f.LiveBytes), minHeap-float64(f.LiveBytes)); defaultHeadroom/2 < headroom && headroom < 1.3*defaultHeadroom {
		exact := defaultHeadroom / newHeadroom
		ratio = variantValues{est: (headroom/newHeadroom + exact) / 2, low: min(headroom/newHeadroom, exact), high: max(headroom/newHeadroom, exact)}
	}
	if math.IsInf(setting.Value, 1) {
		ratio = variantValues{}
	}
	return f.cyclesEffect(ratio, fmt.Sprintf("GOGC is about %.0f, from live heap and goal; a memory limit is assumed not to bind", currentGOGC), newHeadroom+float64(f.LiveBytes), refuse)
}

// timesText returns "once" or "N times".
func timesText(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// requireCollections refuses, with a nil effect, if the trace has too few unforced collections to measure their cost and the
// live heap. Otherwise the effect is empty and not nil.
func (f *Facts) requireCollections(refuse refuseFunc) (change *effect, explanation string, refusal error) {
	switch unforced := f.Cycles - f.ForcedCycles; {
	case f.Cycles == 0:
		return refuse("no garbage was collected in this trace: record longer")
	case unforced < threshold.Repeats || f.Measured < threshold.Repeats || f.LiveBytes <= 0 || f.GoalBytes <= f.LiveBytes:
		forced := ""
		if f.ForcedCycles > 0 {
			forced = fmt.Sprintf(", %s by order of the code", timesText(f.ForcedCycles))
		}
		return refuse("garbage was collected %s%s: too few to estimate the live heap and the allocation rate; record longer", timesText(f.Cycles), forced)
	}
	return new(effect), "", nil
}

// cyclesEffect returns the effect of collecting ratio times as often, and its explanation, which contains basis. goal is the
// heap's new goal in bytes; 0 or infinite if it is not to be mentioned. Forced collections stay. If a quota throttles the
// process, requests also get the CPU time that marking no longer takes. It refuses if marking would take more than half of the
// time.
func (f *Facts) cyclesEffect(ratio variantValues, basis string, goal float64, refuse refuseFunc) (change *effect, explanation string, refusal error) {
	unforced := float64(f.Cycles - f.ForcedCycles)
	unforcedShare := unforced / float64(f.Cycles)
	for v := range ratio {
		ratio[v] = 1 - unforcedShare*(1-ratio[v])
	}
	// The number of cycles in the trace is exact to about 10 %.
	ratio[low], ratio[high] = ratio[low]*0.9, ratio[high]*1.1
	if ratio[est] > 1 && float64(f.MarkNS)/float64(f.SpanNS)*ratio[high] > threshold.HalfShare {
		return refuse("garbage would be collected %.1f times as often, and marking already takes %s of the time: the trace does not show how far requests would have to help", ratio[est], words.PercentOr0(float64(f.MarkNS)/float64(f.SpanNS)))
	}
	effects := &effect{changesGC: true, cycles: ratio, assist: f.assistFactors(ratio)}
	perSecond := float64(f.Cycles) / float64(f.SpanNS) * 1e9
	note := fmt.Sprintf("%s collections a second become %s", words.Figure(perSecond), words.Figure(perSecond*ratio[est]))
	if goal > 0 && !math.IsInf(goal, 1) {
		note += fmt.Sprintf(", the heap's goal %s becomes %s", words.Binary(f.GoalBytes), words.Binary(int64(goal)))
	}
	note += ", at the same rate of allocation; " + basis
	// Requests get the part of the quota that the collector no longer uses.
	if f.Throttled && f.BusyNS > 0 {
		var demand variantValues
		for v := range demand {
			demand[v] = max(0.05, 1-float64(f.CollectorNS)/float64(f.BusyNS)*(1-ratio[v]))
		}
		effects.setFreezes(f, variantValues{est: 1 / demand[est], low: 1 / demand[low], high: 1 / demand[high]})
		note += "; requests get the CPU quota that marking takes now"
	}
	return effects, note, nil
}

// workerShare is the share of the Ps that mark workers take (runtime/mgcpacer.go).
const workerShare = 0.25

// assistFactors returns the factor by which the assists in each mark phase change if there are ratio times as many cycles.
//
// A phase must end before the headroom is used up (runtime/mgcpacer.go starts it when 70 % are, at the earliest). Let x be the
// share of marking that assists do, and u the share of the Ps that workers take. While workers do 1-x of the work, other
// goroutines have 1-u of the Ps, less the share of assists: 1 - x/(1-u) of their share in a phase without assists. The headroom
// h allows this in proportion: 1 - x'/(1-u) = (1 - x/(1-u)) * h'/h.
func (f *Facts) assistFactors(ratio variantValues) variantValues {
	out := unchanged
	markingNS := f.AssistNS + f.CollectorNS + f.IdleMarkNS
	if f.AssistNS <= 0 || markingNS <= 0 {
		return out
	}
	assistShare := min(float64(f.AssistNS)/float64(markingNS), 1-workerShare)
	for v, cycleRatio := range ratio {
		if cycleRatio >= 1 {
			continue
		}
		newShare := 0.0
		if cycleRatio > 0 {
			newShare = max(0, (1-workerShare)*(1-(1-assistShare/(1-workerShare))/cycleRatio))
		}
		out[v] = min(1, newShare/assistShare)
	}
	out[low] *= out[low]
	out[high] = math.Sqrt(out[high])
	return out
}

// waitRatioWithoutCollector estimates the factor by which waits for a P shrink if the collector uses no P. In a queue with
// random arrivals, waits are proportional to r/(1-r), where r is the utilisation of the Ps. Idle mark workers do not count:
// they run only where no goroutine waits.
func (f *Facts) waitRatioWithoutCollector() float64 {
	capacity := float64(f.Procs) * float64(f.SpanNS)
	utilisation := min(0.98, float64(f.BusyNS-f.IdleMarkNS)/max(capacity, 1))
	reduced := utilisation - float64(f.CollectorNS+f.AssistNS)/max(capacity, 1)
	if utilisation <= 0 || reduced <= 0 {
		return 0.5
	}
	return min(1, reduced/(1-reduced)/(utilisation/(1-utilisation)))
}

// MemoryLimitFor returns the GOMEMLIMIT, in bytes rounded up to whole MiB, that most likely leaves heapBytes for the heap: the
// inverse of the mean of the bounds in predictMemoryLimit.
func MemoryLimitFor(heapBytes int64) int64 {
	return int64(math.Ceil((float64(heapBytes)+5<<20)/0.865/(1<<20))) << 20
}

// predictMemoryLimit predicts another GOMEMLIMIT, with the basis of the prediction in words; or it refuses, with a nil effect.
// The part of the limit that is left for the heap is the new goal, if it is below the goal by GOGC; its headroom decides how
// often the collector runs. This part is only known within bounds, because the process also uses memory outside of the heap.
func (f *Facts) predictMemoryLimit(setting Setting, refuse refuseFunc) (change *effect, explanation string, refusal error) {
	isFull := f.FullCycles >= threshold.Repeats && f.FullCycles > f.Measured
	if e, note, err := f.requireCollections(refuse); e == nil && !isFull {
		return e, note, err
	}
	// Stacks, globals, spans, and free memory that is not returned: between 2 % and 25 % of the limit, and some MiB, in any
	// process.
	maxGoal, minGoal := setting.Value*0.98-2<<20, setting.Value*0.75-8<<20
	goal, live := float64(f.GoalBytes), float64(f.LiveBytes)
	basis := fmt.Sprintf("the limit leaves between %s and %s for the heap, depending on what else the process uses", words.Binary(int64(minGoal)), words.Binary(int64(maxGoal)))
	if isFull {
		goal, live = math.Inf(1), float64(f.FullBytes) // no collection had room
	}
	switch {
	case minGoal >= goal && goal > 1.6*live:
		return &effect{}, fmt.Sprintf("nothing would change: the heap's goal is %s, by GOGC, and stays below that limit", words.Binary(int64(goal))), nil
	case minGoal >= goal:
		return refuse("the heap's goal is only %.0f%% above the live heap; the trace does not show whether a lower limit or a small GOGC holds it there. Ask about GOGC", 100*(goal/live-1))
	case minGoal <= live*1.1:
		return refuse("the live heap is %s, so the collector would run nearly all of the time, or limit itself to half of the CPU", words.Binary(int64(live)))
	}
	if isFull {
		// A collection begins as soon as the last one ends. With room, they are as many as the allocations need.
		ratio := variantValues{est: (maxGoal+minGoal)/2 - live, low: maxGoal - live, high: minGoal - live}
		for v, room := range ratio {
			ratio[v] = min(1, float64(f.AllocatedBytes)/room/float64(f.Cycles-f.ForcedCycles))
		}
		return f.cyclesEffect(ratio, basis, 0, refuse)
	}
	headroom := goal - live
	ratio := variantValues{est: headroom / max(1, (maxGoal+minGoal)/2-live), low: headroom / max(1, maxGoal-live), high: headroom / max(1, minGoal-live)}
	for v := range ratio {
		ratio[v] = max(1, ratio[v])
	}
	return f.cyclesEffect(ratio, basis, min(goal, (maxGoal+minGoal)/2), refuse)
}

// setMarkShares sets markShare of each interval of a graph: the share of its time inside of GC mark phases.
func (f *Facts) setMarkShares(graph *Graph) {
	if f.markedNS(graph.Start, graph.Start+graph.Latency) == 0 {
		return
	}
	for i := range graph.nodes {
		node := &graph.nodes[i]
		if node.predecessor < 0 {
			continue
		}
		start := graph.Start + graph.nodes[node.predecessor].time
		for k := node.firstInterval; k < node.endInterval; k++ {
			iv := &graph.intervals[k]
			if iv.ns > 0 {
				iv.markShare = float32(float64(f.markedNS(start, start+iv.ns)) / float64(iv.ns))
			}
			start += iv.ns
		}
	}
}

// firstPhaseAfter returns the index of the first mark phase that ends after t. Phases do not overlap.
func (f *Facts) firstPhaseAfter(t int64) int {
	return sort.Search(len(f.MarkPhases), func(i int) bool { return f.MarkPhases[i][0]+f.MarkPhases[i][1] > t })
}

// markedNS returns how much of [from, to) is inside of GC mark phases, in ns.
func (f *Facts) markedNS(from, to int64) (ns int64) {
	for _, phase := range f.MarkPhases[f.firstPhaseAfter(from):] {
		if phase[0] >= to {
			break
		}
		ns += min(phase[0]+phase[1], to) - max(phase[0], from)
	}
	return ns
}

// markPhases returns how many GC mark phases overlap a request. If the trace lists only the longest phases, it is at least the
// mean number for the request's latency.
func (f *Facts) markPhases(graph *Graph) (count float64) {
	for _, phase := range f.MarkPhases[f.firstPhaseAfter(graph.Start):] {
		if phase[0] >= graph.Start+graph.Latency {
			break
		}
		count++
	}
	if !f.MarksComplete && f.SpanNS > 0 {
		count = max(count, math.Round(float64(graph.Latency)*float64(f.Cycles)/float64(f.SpanNS)))
	}
	return count
}

// isCollectorTime reports whether an interval is time that the garbage collector takes.
func (p *interval) isCollectorTime() bool {
	return p.cause == cause.GCAssist || p.cause == cause.GCWait || p.cause == cause.STW
}
