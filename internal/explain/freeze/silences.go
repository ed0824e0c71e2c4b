package freeze

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/trace/timeline"
)

// A silence is an interval in which no thread wrote an event. If goroutines are recorded as running, either they ran
// without an event, or their threads did not run.
type silence struct {
	Interval
	// Running is how many threads ran a goroutine throughout the silence. Resumed is how many of these wrote an event
	// within resumeNS after it, Prompt how many within promptNS. Stopped is how many of the resumed threads stopped
	// their goroutine by that event.
	Running, Resumed, Prompt, Stopped int
	// InScheduler and InSyscall are the numbers of other threads that held a P throughout the silence, in the scheduler or in a
	// system call. Neither lasts long: a thread that finds nothing to run releases its P before it sleeps, and sysmon, which
	// checks every 10 ms as long as a P is held, takes the P from a system call. Only threads are counted that wrote an event,
	// or whose P was stolen, within resumeNS after the silence.
	InScheduler, InSyscall int

	// hasReadyGoroutine reports that a goroutine was ready throughout the silence while no goroutine ran: its thread
	// was woken, which takes microseconds, and did not run. Like a stuck thread, that is no evidence of a clock.
	hasReadyGoroutine bool
	class             Class
	startShift        int64 // how much later than Start a freeze probably began, in ns
}

// resumeNS is how soon after a silence a thread must write an event to count as resumed: after a freeze all threads
// are runnable at once, but share the CPUs. promptNS is the time in which sysmon preempts all running threads. It is
// far shorter than the kernel's time slices.
const (
	resumeNS = 10e6
	promptNS = 300e3
)

// silencesOf returns the intervals of a generation, longer than minNS, in which no thread wrote an event, in order of time.
// previousEnd is the end of the generation before, at which a silence may begin; 0: there is none.
func silencesOf(g *timeline.Gen, previousEnd, minNS int64) []silence {
	previousEnd = cmp.Or(previousEnd, g.Base)
	var gaps []timeline.Gap // of all threads, one after the other
	type threadGaps struct {
		m  uint64
		to int // index in gaps
	}
	var parts []threadGaps
	var silent []timeline.Gap
	for m, list := range g.Gaps(previousEnd, minNS) {
		if len(parts) == 0 {
			silent = slices.Clone(list)
		} else {
			silent = intersect(silent, list, minNS)
		}
		if len(silent) == 0 {
			return nil
		}
		gaps = append(gaps, list...)
		parts = append(parts, threadGaps{m, len(gaps)})
	}
	silent = cutAtOtherEvents(g, silent, minNS)
	if len(silent) == 0 {
		return nil
	}
	out := make([]silence, 0, len(silent))
	for _, s := range silent {
		out = append(out, silence{Interval: Interval{s.From, s.To}})
	}
	holds := procHoldsOf(g, minNS)
	from := 0
	for _, thread := range parts {
		k := 0
		for _, p := range gaps[from:thread.to] {
			for k < len(out) && out[k].End <= p.From {
				k++
			}
			for j := k; j < len(out) && out[j].Start < p.To; j++ {
				s := &out[j]
				if !p.Running {
					holds.countThread(s, thread.m, &p)
					continue
				}
				s.Running++
				if p.Ended && p.To-s.End <= promptNS {
					s.Prompt++
				}
				if p.Ended && p.To-s.End <= resumeNS {
					s.Resumed++
					if p.Stopped {
						s.Stopped++
					}
				}
			}
		}
		from = thread.to
	}
	return out
}

// intersect returns the intersections, longer than minNS, of two sorted lists of gaps.
func intersect(a, b []timeline.Gap, minNS int64) []timeline.Gap {
	out := a[:0:0]
	for i, j := 0, 0; i < len(a) && j < len(b); {
		if from, to := max(a[i].From, b[j].From), min(a[i].To, b[j].To); to-from > minNS {
			out = append(out, timeline.Gap{From: from, To: to})
		}
		if a[i].To < b[j].To {
			i++
		} else {
			j++
		}
	}
	return out
}

// cutAtOtherEvents divides silences at events outside of the threads' streams (changes of Ps, heap sizes, labels, CPU samples),
// and drops parts of at most minNS.
func cutAtOtherEvents(g *timeline.Gen, silent []timeline.Gap, minNS int64) []timeline.Gap {
	var cuts []int64
	addCut := func(t int64) {
		k, _ := slices.BinarySearchFunc(silent, t, func(s timeline.Gap, t int64) int { return cmp.Compare(s.To, t) })
		if k < len(silent) && silent[k].From < t && t < silent[k].To {
			cuts = append(cuts, t)
		}
	}
	for _, e := range g.ProcEvents {
		addCut(e.Time)
	}
	for i := range g.Heap {
		addCut(g.Heap[i].Time)
	}
	for i := range g.Labels {
		addCut(g.Labels[i].Time)
	}
	for i := range g.Samples {
		addCut(g.Samples[i].Time)
	}
	if len(cuts) == 0 {
		return silent
	}
	slices.Sort(cuts)
	out := silent[:0:0]
	for _, s := range silent {
		k, _ := slices.BinarySearch(cuts, s.From)
		for ; k < len(cuts) && cuts[k] < s.To; k++ {
			if cuts[k]-s.From > minNS {
				out = append(out, timeline.Gap{From: s.From, To: cuts[k]})
			}
			s.From = cuts[k]
		}
		if s.To-s.From > minNS {
			out = append(out, s)
		}
	}
	return out
}
