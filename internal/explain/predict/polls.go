package predict

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/scale"
)

// Who sleeps at one line repeatedly, and only looks at something between,
// polls: what ends the wait comes from elsewhere, and comes no earlier if the
// pauses are shorter. Only the last pause, in which it came, can be won.
//
// The time between pauses shows that they are looks: nothing but a little
// computing, no system call, no wait, and nobody who is given anything. An attempt that asks somebody is more than that, and so
// a retry is no poll.

// A row is sleeps at one place, one after the other, with only looks between.
type pauseSequence struct {
	target
	pauses     int   // sleeps
	sleptNS    int64 // by all of them
	shortestNS int64 // of them
	start, end int64 // of the first and the last one
	isPoll     bool  // see Model.polls
}

// addPauseSequences marks the rows among parts that follow each other from a time on, of
// a goroutine of which gave reports whether it gave anybody anything in [from, to).
func (g *Graph) addPauseSequences(intervals []interval, clock int64, handedOver func(from, to int64) bool) {
	current, lastPause := -1, -1 // the row that goes on, and its last sleep
	var cpuNS int64
	for i := range intervals {
		iv := &intervals[i]
		clock += iv.ns
		switch iv.cause {
		case cause.Sleep:
			if iv.endsWithTick {
				current = -1
				continue
			}
			if current < 0 || g.pauseSequences[current].site != iv.site || float64(cpuNS) > scale.Some*float64(iv.ns) || handedOver(g.pauseSequences[current].end, clock-iv.ns) {
				current = len(g.pauseSequences)
				g.pauseSequences = append(g.pauseSequences, pauseSequence{target: iv.target, shortestNS: iv.ns, start: clock - iv.ns})
			} else {
				intervals[lastPause].hasNextPause = true
			}
			sequence := &g.pauseSequences[current]
			sequence.pauses, sequence.sleptNS, sequence.shortestNS, sequence.end = sequence.pauses+1, sequence.sleptNS+iv.ns, min(sequence.shortestNS, iv.ns), clock
			iv.sequence, lastPause, cpuNS = int32(current+1), i, 0
		case cause.CPU:
			cpuNS += iv.ns
		case cause.Sched, cause.SchedWake, cause.STW, cause.GCAssist, cause.GCWait, cause.Throttle:
		default:
			current = -1
		}
	}
}

// isUnaffectedPause reports whether another event than the end of a sleep decides how long
// the request slept there.
func (g *Graph) isUnaffectedPause(iv *interval) bool {
	return iv.hasNextPause && g.pauseSequences[iv.sequence-1].isPoll
}

// findPolls decides which rows of a group are polls.
func (m *Model) findPolls(g *group) {
	type pauseStats struct {
		perRequest                []int // of each request
		pauses, sequences, uneven int
		isPoll                    bool
	}
	statsByTarget := map[int32]*pauseStats{}
	for i := range g.graphs {
		pausesByTarget := map[int32]int{}
		for k := range g.graphs[i].pauseSequences {
			sequence := &g.graphs[i].pauseSequences[k]
			key := m.idOf(sequence.target)
			stats := entry.In(statsByTarget, key)
			pausesByTarget[key] += sequence.pauses
			stats.pauses += sequence.pauses
			stats.sequences++
			if sequence.sleptNS > 2*int64(sequence.pauses)*sequence.shortestNS {
				stats.uneven++
			}
		}
		for key, n := range pausesByTarget {
			statsByTarget[key].perRequest = append(statsByTarget[key].perRequest, n)
		}
	}
	for _, stats := range statsByTarget {
		perRequest := stats.perRequest
		slices.Sort(perRequest)
		mostFrequent := 0
		for first, i := 0, 0; i < len(perRequest); i++ {
			if perRequest[i] != perRequest[first] {
				first = i
			}
			mostFrequent = max(mostFrequent, i+1-first)
		}
		stats.isPoll = stats.pauses >= scale.Few*stats.sequences && float64(mostFrequent) < scale.NearlyAll*float64(len(perRequest)) && 2*stats.uneven < stats.sequences
	}
	for i := range g.graphs {
		for k := range g.graphs[i].pauseSequences {
			sequence := &g.graphs[i].pauseSequences[k]
			sequence.isPoll = statsByTarget[m.idOf(sequence.target)].isPoll
		}
	}
}

// A Poll is how requests of a group wait for something that comes from
// elsewhere, on average.
type Poll struct {
	Pauses  float64
	PauseNS int64 // of one
	TotalNS int64 // from the first pause to what came
}

// PollOf returns how requests of a group poll at the sleeps that changes are
// about; nil if they do not, or if most of that time is something else.
func (m *Model) PollOf(id string, changes []Change) *Poll {
	g := m.groups[id]
	if g == nil {
		return nil
	}
	m.prepare()
	trial := m.compile(changes)
	var sleepNS, pollNS, sequences, pauses, totalNS float64
	for i := range g.graphs {
		graph := &g.graphs[i]
		for k := range graph.intervals {
			iv := &graph.intervals[k]
			if iv.cause != cause.Sleep || !trial.isChanged(iv) {
				continue
			}
			sleepNS += graph.weight * float64(iv.ns)
			if iv.sequence > 0 && graph.pauseSequences[iv.sequence-1].isPoll {
				pollNS += graph.weight * float64(iv.ns)
				if !iv.hasNextPause {
					sequence := &graph.pauseSequences[iv.sequence-1]
					sequences += graph.weight
					pauses += graph.weight * float64(sequence.pauses)
					totalNS += graph.weight * float64(sequence.end-sequence.start)
				}
			}
		}
	}
	if pollNS == 0 || pollNS < scale.Half*sleepNS {
		return nil
	}
	return &Poll{Pauses: pauses / sequences, PauseNS: int64(pollNS / pauses), TotalNS: int64(totalNS / sequences)}
}
