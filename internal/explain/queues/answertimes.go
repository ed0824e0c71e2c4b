package queues

import (
	"cmp"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/internal/explain/threshold"
)

// SerialAnswers describes calls that a peer answers one at a time: the answer to a call that waits behind others comes as long after
// the one before it as a call takes that finds no other under way. It is zero unless the calls wait for each other like that.
type SerialAnswers struct {
	CallsAtOnce int   // calls under way, on average, when one begins that must wait, itself included
	ServiceNS   int64 // median time of a call that finds no other under way
	QueuedNS    int64 // mean time of the other calls
}

// serialAnswersOf returns the SerialAnswers of calls that took the given time each. A peer that serves several at once sends the next answer
// sooner than a call takes that is alone, at least now and then: so not only the usual distance of two answers counts, but also the shortest ones.
func serialAnswersOf(answers []interval) (out SerialAnswers) {
	inProgress := overlapOf(answers)
	_, ends := inProgress.Bounds()
	var alone, gaps []int64
	queued, atOnce, queuedNS := 0, 0, int64(0)
	for _, a := range answers {
		n := inProgress.At(a.start)
		if n <= 1 {
			alone = append(alone, a.end-a.start)
		} else {
			queued, atOnce, queuedNS = queued+1, atOnce+n, queuedNS+a.end-a.start
		}
		if i, _ := slices.BinarySearch(ends, a.end); i > 0 && ends[i-1] > a.start {
			gaps = append(gaps, a.end-ends[i-1])
		}
	}
	if len(alone) < threshold.SmallSample || len(gaps) < threshold.MedianSample || queued < threshold.MedianSample {
		return out
	}
	slices.Sort(gaps)
	out = SerialAnswers{int(math.Round(float64(atOnce) / float64(queued))), sample.Median(alone), queuedNS / int64(queued)}
	isSerial := float64(sample.Median(gaps)) >= threshold.MostShare*float64(out.ServiceNS) && float64(gaps[len(gaps)/10]) >= threshold.HalfShare*float64(out.ServiceNS)
	if !isSerial || out.ServiceNS < 2*threshold.LoopbackNS || 2*out.QueuedNS < threshold.FarFactor*out.ServiceNS {
		return SerialAnswers{}
	}
	return out
}

// maxTickedAnswers bounds the answers from which a tickPeriod is computed, and leastTickNS is the shortest period: what a
// loaded CPU adds to a wait blurs a shorter one.
const (
	maxTickedAnswers = 512
	leastTickNS      = 20e6
)

// leastInPhase is the least mean resultant length of the answers' times on the circle of a period (Mardia and Jupp, Directional
// Statistics, 2.3.1): 1 if all come at the same moment of it. 0.97 is a spread of 4 % of the period.
const leastInPhase = 0.97

// tickPeriodOf returns the period, in ns, of a ticker of the peer that alone lets it send the answers to calls that took the given time each, as
// from a buffer that it flushes: their ends are in phase with the period, their starts are not, and so their lengths are spread over a
// period. It returns 0 if there is none.
func tickPeriodOf(answers []interval) int64 {
	answers = answers[:min(len(answers), maxTickedAnswers)]
	if len(answers) < threshold.MedianSample {
		return 0
	}
	starts, ends, lengths := make([]int64, 0, len(answers)), endsOf(answers), make([]int64, 0, len(answers))
	for _, a := range answers {
		starts, lengths = append(starts, a.start), append(lengths, a.end-a.start)
	}
	slices.Sort(lengths)
	// Lengths that are spread evenly over a period have nine tenths of it between these two.
	guess := float64(lengths[len(lengths)*19/20]-lengths[len(lengths)/20]) / 0.9
	if guess < leastTickNS || guess < threshold.HalfShare*float64(lengths[len(lengths)*19/20]) {
		return 0
	}
	span, best, period := float64(ends[len(ends)-1]-ends[0]), 0.0, 0.0
	const tolerance, phaseStep = 0.25, 0.05 // of the guess, and of a period at the end of the span
	for candidate := guess * (1 - tolerance); candidate <= guess*(1+tolerance); candidate *= 1 + phaseStep*candidate/span {
		if r := inPhaseShare(ends, candidate); r > best {
			best, period = r, candidate
		}
	}
	if best < leastInPhase || inPhaseShare(starts, period) > threshold.HalfShare || span < 2*threshold.SmallSample*period {
		return 0
	}
	return int64(period)
}

// inPhaseShare returns the mean resultant length of times on the circle of a period.
func inPhaseShare(times []int64, period float64) float64 {
	sines, cosines := 0.0, 0.0
	for _, t := range times {
		sin, cos := math.Sincos(2 * math.Pi * math.Mod(float64(t-times[0]), period) / period)
		sines, cosines = sines+sin, cosines+cos
	}
	return math.Hypot(sines, cosines) / float64(len(times))
}

// A LoadDependence compares the answers of a peer by how many calls were under way when a call began. It is zero unless answers take far
// longer the more there are: then calls queue for each other in the peer, or in what the peer asks.
type LoadDependence struct {
	CallsAtOnce int   // calls under way, on average, at the quarter of the calls for which there were most
	LoadedNS    int64 // mean time of the answers to these
	UnloadedNS  int64 // mean time of the answers to the quarter for which there were fewest
}

// minCallsAtOnce is the least CallsAtOnce. Answers of few calls take longer together wherever both sides share CPUs.
const minCallsAtOnce = 8

// maxAnswers bounds the answers of one place from which its LoadDependence is computed: the earliest ones, however workers share the requests.
const maxAnswers = 4096

// loadDependenceOf returns the LoadDependence of calls that took the given time each. A peer that pauses also has more calls under way the longer
// it answers none. But then the answers come at once, whereas those of a queue come at its throughput, which is the number of
// calls under way divided by their time (Little's law).
func loadDependenceOf(answers []interval) (out LoadDependence) {
	if len(answers) < threshold.MedianSample {
		return out
	}
	inProgress := overlapOf(answers)
	type call struct {
		interval
		atOnce int
	}
	calls := make([]call, len(answers))
	for i, a := range answers {
		calls[i] = call{a, inProgress.At(a.start)}
	}
	slices.SortFunc(calls, func(x, y call) int {
		return cmp.Or(cmp.Compare(x.atOnce, y.atOnce), cmp.Compare(x.start, y.start), cmp.Compare(x.end, y.end))
	})
	means := func(part []call) (atOnce float64, ns int64) {
		for _, c := range part {
			atOnce += float64(c.atOnce) / float64(len(part))
			ns += (c.end - c.start) / int64(len(part))
		}
		return atOnce, ns
	}
	quarter := len(calls) / 4
	loaded := calls[len(calls)-quarter:]
	fewestAtOnce, unloadedNS := means(calls[:quarter])
	mostAtOnce, loadedNS := means(loaded)
	if mostAtOnce < max(minCallsAtOnce, threshold.FarFactor*fewestAtOnce) || loadedNS < threshold.FarFactor*unloadedNS {
		return out
	}
	slices.SortFunc(loaded, func(x, y call) int { return cmp.Compare(x.end, y.end) })
	var gaps []int64
	for i := range loaded[1:] {
		gaps = append(gaps, loaded[i+1].end-loaded[i].end)
	}
	if float64(sample.Median(gaps)) < threshold.MajorShare*float64(loadedNS)/mostAtOnce {
		return out
	}
	return LoadDependence{CallsAtOnce: int(mostAtOnce + 0.5), LoadedNS: loadedNS, UnloadedNS: unloadedNS}
}
