package queues

import (
	"math/rand/v2"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

// TestCallHolder: answers to calls that begin during a background job's calls come when these end. Calls of the same length to another peer hold
// up none, nor do those of a loop that meets the pauses of a peer now and then.
func TestCallHolder(t *testing.T) {
	const second = int64(1e9)
	run := func(callEvery, callNS, pauseEvery, pauseNS int64) (answers, calls []interval) {
		random := rand.New(rand.NewPCG(7, 8))
		endOf := func(start, ns int64) int64 {
			if pauseEvery > 0 && start%pauseEvery < pauseNS {
				return start - start%pauseEvery + pauseNS + ns
			}
			return start + ns
		}
		for start := int64(0); start < 5*second; start += random.Int64N(20e6) {
			answers = append(answers, interval{start, endOf(start, 200e3+random.Int64N(100e3))})
		}
		for start := callEvery / 3; start < 5*second; start += callEvery {
			calls = append(calls, interval{start, endOf(start, callNS)})
		}
		return answers, calls
	}
	held := func(answers, calls []interval) []interval {
		for i, a := range answers {
			for _, c := range calls {
				if c.start <= a.start && a.start < c.end {
					answers[i].end = c.end
				}
			}
		}
		return answers
	}
	answers, calls := run(second/2, 80e6, 0, 0)
	holder := callHolderOf(held(answers, calls), calls)
	check.Equal(t, holder.During > 50 && holder.Late == holder.During && holder.UsualNS < 300e3, true, "%+v", holder)
	for name, c := range map[string][4]int64{
		"the calls hold up none":       {second / 2, 80e6, 0, 0},
		"a peer pauses by itself":      {second / 2, 80e6, second / 3, 50e6},
		"calls meet pauses":            {20e6, 300e3, second / 2, 80e6},
		"calls are nearly always on":   {second / 2, 450e6, second / 2, 80e6},
		"calls are long in few pauses": {100e6, 200e3, second / 2, 80e6},
	} {
		check.Equal(t, callHolderOf(run(c[0], c[1], c[2], c[3])), CallHolder{}, "%s", name)
	}
}

// TestUnheldLateAnswers: an answer that takes a small part of a call's time is late for another reason, even if it takes far longer than most.
func TestUnheldLateAnswers(t *testing.T) {
	var answers, calls []interval
	for i := range int64(400) {
		a := interval{i * 10e6, i*10e6 + 200e3}
		if i%8 == 0 {
			a.end = a.start + 2e6
		}
		answers = append(answers, a)
	}
	for start := int64(500e6); start < 4e9; start += 1e9 {
		calls = append(calls, interval{start, start + 100e6})
		for i, a := range answers {
			if start <= a.start && a.start < start+100e6 {
				answers[i].end = start + 100e6
			}
		}
	}
	holder := callHolderOf(answers, calls)
	check.Equal(t, holder.Late, holder.During, "%+v", holder)
	check.True(t, holder.During >= 9*len(calls), "%+v", holder)
}
