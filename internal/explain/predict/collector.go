package predict

import (
	"fmt"
	"math"
	"sort"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/output/words"
)

// minHeap is the runtime's smallest goal with GOGC=100.
const minHeap = 4 << 20

// gogc predicts another GOGC. A cycle marks the live heap, so it costs the same whatever the room
// between live heap and goal; that room decides how often a cycle runs. The goal is live + (live
// + stacks + globals) * GOGC/100, at least 4 MiB * GOGC/100 ("A Guide to the Go Garbage
// Collector").
func (f *Facts) gogc(s Setting, refuse refuser) (*effect, string, error) {
	// A collector that takes almost no time cannot take much less, whatever GOGC is now.
	if f.Cycles > 0 && f.Cycles-f.Forced < scale.Several && s.Value >= 100 && f.GCShare < scale.Speck {
		return &effect{}, fmt.Sprintf("little would change: garbage was collected %s, and it cost requests at most %.1f%% of their time", often(f.Cycles), 100*f.GCShare), nil
	}
	if e, note, err := f.collects(refuse); e == nil {
		return e, note, err
	}
	room := float64(f.GoalBytes - f.LiveBytes)
	now := 100 * room / float64(f.LiveBytes)
	then := max(float64(f.LiveBytes)*s.Value/100, minHeap*s.Value/100-float64(f.LiveBytes))
	ratio := times{est: room / then, low: room / then, high: room / then}
	// The live heap is measured by the lowest point of the heap, which is a little more. A GOGC
	// near 100 is therefore taken to be exactly the default.
	if usual := max(float64(f.LiveBytes), minHeap-float64(f.LiveBytes)); usual/2 < room && room < 1.3*usual {
		exact := usual / then
		ratio = times{est: (room/then + exact) / 2, low: min(room/then, exact), high: max(room/then, exact)}
	}
	if math.IsInf(s.Value, 1) {
		ratio = times{}
	}
	return f.cyclesTo(ratio, fmt.Sprintf("GOGC is about %.0f, from live heap and goal; a memory limit is assumed not to bind", now), then+float64(f.LiveBytes), refuse)
}

func often(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// collects refuses, with a nil effect, if the trace has too few collections to say what they
// cost.
func (f *Facts) collects(refuse refuser) (*effect, string, error) {
	switch free := f.Cycles - f.Forced; {
	case f.Cycles == 0:
		return refuse("no garbage was collected in this trace: record longer")
	case free < scale.Several || f.Measured < scale.Several || f.LiveBytes <= 0 || f.GoalBytes <= f.LiveBytes:
		forced := ""
		if f.Forced > 0 {
			forced = fmt.Sprintf(", %s by order of the code", often(f.Forced))
		}
		return refuse("garbage was collected %s%s: too few to estimate the live heap and the allocation rate; record longer", often(f.Cycles), forced)
	}
	return new(effect), "", nil
}

// cyclesTo is the effect of ratio times as many collections.
func (f *Facts) cyclesTo(ratio times, how string, heap float64, refuse refuser) (*effect, string, error) {
	free := float64(f.Cycles - f.Forced)
	part := free / float64(f.Cycles)
	for v := range ratio {
		ratio[v] = 1 - part*(1-ratio[v])
	}
	// The count of cycles in the trace is exact to about 10 %.
	ratio[low], ratio[high] = ratio[low]*0.9, ratio[high]*1.1
	if ratio[est] > 1 && float64(f.MarkNS)/float64(f.SpanNS)*ratio[high] > scale.Half {
		return refuse("garbage would be collected %.1f times as often, and marking already takes %s of the time: the trace does not show how far requests would have to help", ratio[est], words.PercentOr0(float64(f.MarkNS)/float64(f.SpanNS)))
	}
	e := &effect{gc: true, cycles: ratio, assist: f.assists(ratio)}
	perSecond := float64(f.Cycles) / float64(f.SpanNS) * 1e9
	note := fmt.Sprintf("%s collections a second become %s", words.Figure(perSecond), words.Figure(perSecond*ratio[est]))
	if heap > 0 && !math.IsInf(heap, 1) {
		note += fmt.Sprintf(", the heap's goal %s becomes %s", words.Binary(f.GoalBytes), words.Binary(int64(heap)))
	}
	note += ", at the same rate of allocation; " + how
	// What the collector no longer uses of the quota is left to requests.
	if f.Held && f.BusyNS > 0 {
		var demand times
		for v := range demand {
			demand[v] = max(0.05, 1-float64(f.CollectorNS)/float64(f.BusyNS)*(1-ratio[v]))
		}
		e.freezes(f, times{est: 1 / demand[est], low: 1 / demand[low], high: 1 / demand[high]})
		note += "; requests get the CPU quota that marking takes now"
	}
	return e, note, nil
}

// workersPart is the share of the Ps that mark workers take (runtime/mgcpacer.go).
const workersPart = 0.25

// assists returns how much of each mark phase remains to assists, compared with now, if there
// are ratio times as many cycles.
//
// A phase must end before the room is used up (runtime/mgcpacer.go starts it when 70 % are, at
// the earliest). Let x be the share of marking that assists do, and u the share of the Ps that
// workers take. While workers do 1-x of the work, other goroutines have 1-u of the Ps, less what
// assists take: 1 - x/(1-u) of what they have in a phase without assists. The room allows this in
// proportion: 1 - x'/(1-u) = (1 - x/(1-u)) * room'/room.
func (f *Facts) assists(ratio times) times {
	out := unchanged
	all := f.AssistNS + f.CollectorNS + f.IdleMarkNS
	if f.AssistNS <= 0 || all <= 0 {
		return out
	}
	x := min(float64(f.AssistNS)/float64(all), 1-workersPart)
	for v, s := range ratio {
		if s >= 1 {
			continue
		}
		then := 0.0
		if s > 0 {
			then = max(0, (1-workersPart)*(1-(1-x/(1-workersPart))/s))
		}
		out[v] = min(1, then/x)
	}
	out[low] *= out[low]
	out[high] = math.Sqrt(out[high])
	return out
}

// memory predicts another GOMEMLIMIT. A limit above the goal changes nothing. How close the goal
// can come to a limit depends on what else the process uses.
func (f *Facts) memory(s Setting, refuse refuser) (*effect, string, error) {
	if e, note, err := f.collects(refuse); e == nil {
		return e, note, err
	}
	// Stacks, globals, spans, and free memory that is not returned: between 2 % and 25 % of the
	// limit, and some MiB, in any process.
	most, least := s.Value*0.98-2<<20, s.Value*0.75-8<<20
	goal, live := float64(f.GoalBytes), float64(f.LiveBytes)
	switch {
	case least >= goal && goal > 1.6*live:
		return &effect{}, fmt.Sprintf("nothing would change: the heap's goal is %s, by GOGC, and stays below that limit", words.Binary(int64(goal))), nil
	case least >= goal:
		return refuse("the heap's goal is only %.0f%% above the live heap; the trace does not show whether a lower limit or a small GOGC holds it there. Ask about GOGC", 100*(goal/live-1))
	case least <= live*1.1:
		return refuse("the live heap is %s, so the collector would run nearly all of the time, or limit itself to half of the CPU", words.Binary(int64(live)))
	}
	room := goal - live
	ratio := times{est: room / max(1, (most+least)/2-live), low: room / max(1, most-live), high: room / max(1, least-live)}
	for v := range ratio {
		ratio[v] = max(1, ratio[v])
	}
	return f.cyclesTo(ratio, fmt.Sprintf("the limit leaves between %s and %s for the heap, depending on what else the process uses", words.Binary(int64(least)), words.Binary(int64(most))), min(goal, (most+least)/2), refuse)
}

// mark sets for each part of a graph how much of it lies in mark phases.
func (f *Facts) mark(g *Graph) {
	if f.within(g.Start, g.Start+g.Latency) == 0 {
		return
	}
	for i := range g.nodes {
		n := &g.nodes[i]
		if n.before < 0 {
			continue
		}
		at := g.Start + g.nodes[n.before].time
		for k := n.firstPart; k < n.lastPart; k++ {
			p := &g.parts[k]
			if p.ns > 0 {
				p.marked = float32(float64(f.within(at, at+p.ns)) / float64(p.ns))
			}
			at += p.ns
		}
	}
}

// first returns the index of the first mark phase that ends after t. Phases do
// not overlap.
func (f *Facts) first(t int64) int {
	return sort.Search(len(f.Marks), func(i int) bool { return f.Marks[i][0]+f.Marks[i][1] > t })
}

// within returns how much of [from, to) lies in mark phases.
func (f *Facts) within(from, to int64) (ns int64) {
	for _, m := range f.Marks[f.first(from):] {
		if m[0] >= to {
			break
		}
		ns += min(m[0]+m[1], to) - max(m[0], from)
	}
	return ns
}

// phases returns how many mark phases overlap a request.
func (f *Facts) phases(g *Graph) float64 {
	n := 0.0
	for _, m := range f.Marks[f.first(g.Start):] {
		if m[0] >= g.Start+g.Latency {
			break
		}
		n++
	}
	if !f.AllMarks && f.SpanNS > 0 {
		n = max(n, math.Round(float64(g.Latency)*float64(f.Cycles)/float64(f.SpanNS)))
	}
	return n
}

// collects reports whether a part is time that the collector takes.
func (p *part) collects() bool {
	return p.cause == cause.GCAssist || p.cause == cause.GCWait || p.cause == cause.STW
}
