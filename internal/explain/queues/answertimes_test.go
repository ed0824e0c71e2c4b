package queues

import (
	"math/rand/v2"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

// randomStarts returns times at random distances of 20 ms on average.
func randomStarts(random *rand.Rand) (starts []int64) {
	for start := int64(0); len(starts) < 200; starts = append(starts, start) {
		start += int64(random.ExpFloat64() * 20e6)
	}
	return starts
}

// TestSerialAnswers: calls that a peer answers one at a time are recognized, those of a peer with two workers and of one that answers all at once are not.
func TestSerialAnswers(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	starts := randomStarts(random)
	serial := serialAnswersOf(queueAtOneServer(starts, 12e6))
	check.True(t, serial.CallsAtOnce >= 2 && serial.ServiceNS == 12e6 && serial.QueuedNS > 18e6, "one at a time: %+v", serial)
	var parallel, twoWorkers []interval
	free := [2]int64{}
	for i, start := range starts {
		parallel = append(parallel, interval{start, start + 20e6})
		free[i%2] = max(free[i%2], start) + 25e6
		twoWorkers = append(twoWorkers, interval{start, free[i%2]})
	}
	check.Equal(t, serialAnswersOf(parallel), SerialAnswers{}, "20 ms each, however many there are")
	check.Equal(t, serialAnswersOf(twoWorkers), SerialAnswers{}, "two workers")
	check.Equal(t, serialAnswersOf(queueAtOneServer(starts, 1e6)), SerialAnswers{}, "hardly any call waits")
}

// TestTickPeriod: answers that come with the ticks of a peer are recognized; those that take as long at random, and requests that come at
// intervals themselves, are not.
func TestTickPeriod(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var ticked, uneven, regular []interval
	for i, start := range randomStarts(random) {
		const period = 150e6
		ready := start + 10e6
		ticked = append(ticked, interval{start, (ready/period+1)*period + random.Int64N(3e6)})
		uneven = append(uneven, interval{start, ready + random.Int64N(period)})
		regular = append(regular, interval{int64(i) * period, int64(i)*period + 100e6})
	}
	period := tickPeriodOf(ticked)
	check.True(t, period > 149e6 && period < 151e6, "ticks of 150 ms: period %d", period)
	check.Equal(t, tickPeriodOf(uneven), 0, "as long, at random")
	check.Equal(t, tickPeriodOf(regular), 0, "requests at intervals")
	check.Equal(t, tickPeriodOf(ticked[:10]), 0, "too few")
}
