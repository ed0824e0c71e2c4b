package predict

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/internal/explain/threshold"
)

// A goroutine that sleeps repeatedly at one line, and only checks something between the sleeps, polls. Something else ends
// the wait, and does so no earlier if the pauses are shorter. Only the rest of the last pause can be saved: the event came at
// some time during it, in the middle on average.
//
// The time between pauses shows that it only checks: a little computing, but no system call, no wait, and no hand-over of
// work. An attempt that calls a peer is more than a check, so a retry is no poll.

// A pauseSequence is a sequence of sleeps at one target of one goroutine, with only checks between them.
type pauseSequence struct {
	target
	pauses     int   // number of sleeps
	sleptNS    int64 // sum of the sleeps
	shortestNS int64 // length of the shortest sleep
	start, end int64 // of the first and the last sleep
	isPoll     bool  // see Model.findPolls
}

// addPauseSequences finds the pause sequences among successive intervals of one goroutine and marks their sleeps. clock is the
// start of the first interval. handedOver reports whether the goroutine handed work over in [from, to), which ends a sequence,
// as do a system call, another wait, and much computing.
func (g *Graph) addPauseSequences(intervals []interval, clock int64, handedOver func(from, to int64) bool) {
	current, lastPause := -1, -1 // index of the open sequence, and of its last sleep
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
			if current < 0 || g.pauseSequences[current].site != iv.site || float64(cpuNS) > threshold.NoticeableShare*float64(iv.ns) ||
				handedOver(g.pauseSequences[current].end, clock-iv.ns) {
				current = len(g.pauseSequences)
				g.pauseSequences = append(g.pauseSequences, pauseSequence{target: iv.target, shortestNS: iv.ns, start: clock - iv.ns})
			} else {
				intervals[lastPause].hasNextPause = true
			}
			sequence := &g.pauseSequences[current]
			sequence.pauses, sequence.sleptNS = sequence.pauses+1, sequence.sleptNS+iv.ns
			sequence.shortestNS, sequence.end = min(sequence.shortestNS, iv.ns), clock
			iv.sequence, lastPause, cpuNS = int32(current+1), i, 0
		case cause.CPU:
			cpuNS += iv.ns
		case cause.Sched, cause.SchedWake, cause.STW, cause.GCAssist, cause.GCWait, cause.Throttle:
		default:
			current = -1
		}
	}
}

// limitByPoll limits the factors of a sleep that is part of a poll. A shorter pause does not make the awaited event earlier, so
// only the rest of the last pause can be saved: half of it in the estimate, nothing to all of it in the bounds. Earlier pauses of the poll
// stay as they are; intervals of no poll keep their factors.
func (g *Graph) limitByPoll(factors variantValues, iv *interval) variantValues {
	switch {
	case iv.sequence == 0 || !g.pauseSequences[iv.sequence-1].isPoll:
		return factors
	case iv.hasNextPause:
		return unchanged
	}
	return variantValues{est: (1 + factors[est]) / 2, low: factors[low], high: 1}
}

// findPolls sets isPoll of a group's pause sequences, by target: most sequences have several pauses of similar length, and
// requests differ in the number of pauses. A fixed number would be a fixed delay.
func (m *Model) findPolls(group *group) {
	type pauseStats struct {
		perRequest                []int // number of pauses of each request
		pauses, sequences, uneven int
		isPoll                    bool
	}
	statsByTarget := map[int32]*pauseStats{}
	for i := range group.graphs {
		pausesByTarget := map[int32]int{}
		for sequence := range entry.Each(group.graphs[i].pauseSequences) {
			key := m.targetID(sequence.target)
			stats := entry.GetOrAdd(statsByTarget, key)
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
		stats.isPoll = stats.pauses >= threshold.SmallSample*stats.sequences && 2*stats.uneven < stats.sequences &&
			float64(mostFrequent) < threshold.NearlyAllShare*float64(len(perRequest))
	}
	for i := range group.graphs {
		for sequence := range entry.Each(group.graphs[i].pauseSequences) {
			sequence.isPoll = statsByTarget[m.targetID(sequence.target)].isPoll
		}
	}
}

// Pauses describes how requests of a group sleep, as means over requests.
type Pauses struct {
	Number  float64 // of pauses of each request
	EachNS  int64   // of one pause
	IsPoll  bool    // they poll for something for most of the time; then Number is that of each poll
	TotalNS int64   // of a poll: from the start of the first pause to the end of the last
	FloorNS int64   // see floorOf
}

// PausesOf returns the number and mean length of the sleeps that changes affect in a group's requests; nil if they affect none.
// If polls take at least half of the time slept, it describes the polls.
func (m *Model) PausesOf(id string, changes []Change) *Pauses {
	group := m.groups[id]
	if group == nil {
		return nil
	}
	m.Prepare()
	trial := m.compile(id, changes)
	var all, polls struct{ ns, number, sequences, totalNS float64 }
	var requests float64
	var starts, ends []int64
	for graph := range entry.Each(group.graphs) {
		sleeps := false
		for iv := range entry.Each(graph.intervals) {
			if iv.cause != cause.Sleep || !trial.isAffected(iv) {
				continue
			}
			sleeps = true
			all.ns += graph.weight * float64(iv.ns)
			all.number += graph.weight
			if iv.sequence > 0 {
				sequence := &graph.pauseSequences[iv.sequence-1]
				starts, ends = append(starts, sequence.start-graph.Start), append(ends, sequence.end-graph.Start)
			}
			if iv.sequence > 0 && graph.pauseSequences[iv.sequence-1].isPoll {
				polls.ns += graph.weight * float64(iv.ns)
				if !iv.hasNextPause {
					sequence := &graph.pauseSequences[iv.sequence-1]
					polls.sequences += graph.weight
					polls.number += graph.weight * float64(sequence.pauses)
					polls.totalNS += graph.weight * float64(sequence.end-sequence.start)
				}
			}
		}
		if sleeps {
			requests += graph.weight
		}
	}
	switch {
	case all.ns == 0:
		return nil
	case polls.ns == 0 || polls.ns < threshold.HalfShare*all.ns:
		return &Pauses{Number: all.number / requests, EachNS: int64(all.ns / all.number), FloorNS: floorOf(starts, ends)}
	}
	return &Pauses{IsPoll: true, Number: polls.number / polls.sequences, EachNS: int64(polls.ns / polls.number), TotalNS: int64(polls.totalNS / polls.sequences)}
}

// floorOf returns the time since the start of a request at which nearly all pauses end although they begin at other times: requests are held until
// then, whatever they did before. It returns 0 if there is none. starts and ends are those of the pauses, since their request's start; it sorts them.
func floorOf(starts, ends []int64) int64 {
	slices.Sort(starts)
	slices.Sort(ends)
	spread := func(times []int64) int64 { return sample.Quantile(times, 0.9) - sample.Quantile(times, 0.1) }
	floor := sample.Quantile(ends, threshold.HalfShare)
	leastSpread := max(threshold.FarFactor*float64(spread(ends)), 2*threshold.NoiseShare*float64(floor))
	if len(ends) < threshold.SmallSample || float64(spread(ends)) > threshold.MinorShare*float64(floor) || float64(spread(starts)) < leastSpread {
		return 0
	}
	return floor
}
