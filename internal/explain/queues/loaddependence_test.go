package queues

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

// queueAtOneServer returns the times of calls to a peer that answers one after the other, each in serviceNS. They begin at starts.
func queueAtOneServer(starts []int64, serviceNS int64) (out []interval) {
	free := int64(0)
	for _, start := range starts {
		free = max(free, start) + serviceNS
		out = append(out, interval{start, free})
	}
	return out
}

// TestLoadDependence: answers to calls that queue in the peer depend on the number of calls; those during a pause of the peer, or of a
// peer that answers all at once, do not, however many there are.
func TestLoadDependence(t *testing.T) {
	var burst, steady []int64
	for i := range int64(40) {
		burst = append(burst, 1e9*(i/20)+1e6*(i%20))
		steady = append(steady, 1e9+50e6*i)
	}
	if c := loadDependenceOf(queueAtOneServer(burst, 10e6)); c.CallsAtOnce < 10 || c.LoadedNS < 100e6 || c.UnloadedNS > 50e6 {
		t.Errorf("two bursts of 20 calls, answered one after the other: %+v", c)
	}
	check.Equal(t, loadDependenceOf(queueAtOneServer(steady, 10e6)), (LoadDependence{}), "one call after the other")
	check.Equal(t, loadDependenceOf(queueAtOneServer(burst[:10], 10e6)), (LoadDependence{}), "too few calls")
	var pause, parallel []interval
	random := rand.New(rand.NewPCG(1, 2))
	for i := range int64(40) {
		pause = append(pause, interval{5e6 * i, 5e6*i + 1e6}, interval{1e9 + 20e6*i, 1e9 + 800e6 + random.Int64N(1e6)})
		parallel = append(parallel, interval{1e6 * i, 1e6*i + 10e6})
	}
	check.Equal(t, loadDependenceOf(pause), (LoadDependence{}), "a pause of the peer, after which all get their answers")
	check.Equal(t, loadDependenceOf(parallel), (LoadDependence{}), "each answer takes 10 ms, however many there are")
}

// TestKeptAnswers: which answers are kept does not depend on how workers share the requests.
func TestKeptAnswers(t *testing.T) {
	const workers = 3
	one, shared := new(peerCallSum), [workers]peerCallSum{}
	random := rand.New(rand.NewPCG(3, 4))
	for _, start := range random.Perm(2 * maxAnswers) {
		answer := interval{int64(start), int64(start) + 10}
		one.earliestAnswers = addEarliest(one.earliestAnswers, answer)
		worker := &shared[random.IntN(workers)]
		worker.earliestAnswers = addEarliest(worker.earliestAnswers, answer)
	}
	merged := new(peerCallSum)
	for i := range shared {
		merged.add(&shared[i], 1)
	}
	if got := merged.earliestAnswers.Sorted(); len(got) != maxAnswers || !slices.Equal(got, one.earliestAnswers.Sorted()) {
		t.Errorf("%d answers are kept, or others than by one worker", len(got))
	}
}

// TestAheadShare: calls wait for the answers to earlier ones if these come in the order of the calls and one after the other. They do not
// at a peer that answers in any order, or that takes as long for each call however many there are.
func TestAheadShare(t *testing.T) {
	var inOrder, anyOrder, parallel []answerWait
	free, start, random := int64(0), int64(0), rand.New(rand.NewPCG(1, 2))
	for range 200 {
		ns := int64(4e6)
		if start += random.Int64N(40e6); random.IntN(40) == 0 {
			ns = 160e6
		}
		free = max(free, start) + ns
		inOrder = append(inOrder, answerWait{interval: interval{start, free}})
		anyOrder = append(anyOrder, answerWait{interval: interval{start, start + ns}})
		parallel = append(parallel, answerWait{interval: interval{start, start + 90e6}})
	}
	for _, c := range []struct {
		name               string
		answers            []answerWait
		minShare, maxShare float64
	}{{"in the order of the calls", inOrder, 0.5, 0.9}, {"in any order", anyOrder, 0, 0}, {"equally long", parallel, 0, 0}, {"few", inOrder[:20], 0, 0}} {
		slices.SortFunc(c.answers, func(a, b answerWait) int { return cmp.Compare(a.end, b.end) })
		var sum orderSum
		sum.add(c.answers)
		if share := sum.aheadShare(); share < c.minShare || share > c.maxShare {
			t.Errorf("%s: %v of the wait is behind others: %+v", c.name, share, sum)
		}
	}
}
