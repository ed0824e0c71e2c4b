package load

import (
	"sync"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// maxLatency is the largest latency that a histogram distinguishes: a run of an hour, and the
// time-out.
const maxLatency = int64(2 * time.Hour)

func newHistogram() *hdr.Histogram { return hdr.New(1, maxLatency, 3) }

// A Sample describes one request, in ns since the start of the run.
type Sample struct {
	Target          int
	Due, Start, End int64 // latency is from Due to End; in a closed loop, Due is Start
	Lateness        int64 // actual start less scheduled start
	Status          int   // 0 if there was no answer
	Err             error
	TimedOut        bool
}

// A recorder collects samples. Some workers share one, and the recorders are merged at the end: a
// recorder for each of thousands of workers would take too much memory (a histogram takes 300 KB), and
// a write takes only some ns.
type recorder struct {
	mu                          sync.Mutex
	intended, service, lateness *hdr.Histogram
	halves                      [2]*hdr.Histogram
	phases, targets             []*hdr.Histogram // of intended; nil if there is only one
	targetErrors, targetCounts  []int64
	answered, failed, sent      int64
	timedOut                    int64
	lastEnd                     int64 // end of the last answer
	statusCounts                map[int]int64
	errorCounts                 map[string]int64
}

// maxErrorKinds bounds the number of distinct error texts.
const maxErrorKinds = 20

// newRecorder returns a recorder for a run with these numbers of phases and targets. It keeps histograms by phase or by target
// only if there are several.
func newRecorder(phases, targets int) *recorder {
	r := &recorder{
		intended: newHistogram(), service: newHistogram(), lateness: newHistogram(), halves: [2]*hdr.Histogram{newHistogram(), newHistogram()},
		targetErrors: make([]int64, targets), targetCounts: make([]int64, targets), statusCounts: map[int]int64{}, errorCounts: map[string]int64{},
	}
	if phases > 1 {
		r.phases = make([]*hdr.Histogram, phases)
	}
	if targets > 1 {
		r.targets = make([]*hdr.Histogram, targets)
	}
	return r
}

// add records a sample that is due in the given half and phase of the schedule. A failed request has
// no latency, because a fast refusal is not a fast answer. A request that timed out has one: it waited
// at least that long, and without it the tail would look too good.
func (r *recorder) add(s *Sample, half, phase int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent++
	r.targetCounts[s.Target]++
	recordValue(r.lateness, s.Lateness)
	if s.Status != 0 {
		r.statusCounts[s.Status]++
	}
	if s.Err != nil {
		r.failed++
		r.targetErrors[s.Target]++
		text := errorText(s.Err)
		if _, ok := r.errorCounts[text]; !ok && len(r.errorCounts) >= maxErrorKinds {
			text = "other errors"
		}
		r.errorCounts[text]++
		if !s.TimedOut {
			return
		}
		r.timedOut++
	} else {
		r.answered++
		r.lastEnd = max(r.lastEnd, s.End)
	}
	latency := s.End - s.Due
	recordValue(r.intended, latency)
	recordValue(r.service, s.End-s.Start)
	recordValue(r.halves[half], latency)
	if r.phases != nil {
		if r.phases[phase] == nil {
			r.phases[phase] = newHistogram()
		}
		recordValue(r.phases[phase], latency)
	}
	if r.targets != nil {
		if r.targets[s.Target] == nil {
			r.targets[s.Target] = newHistogram()
		}
		recordValue(r.targets[s.Target], latency)
	}
}

func recordValue(h *hdr.Histogram, ns int64) {
	_ = h.RecordValue(min(max(ns, 0), maxLatency)) // cannot fail within the range
}

// merge adds the samples of b, whose histograms r may take over, so that b must not be used afterwards.
func (r *recorder) merge(b *recorder) {
	for _, p := range [][2]*hdr.Histogram{{r.intended, b.intended}, {r.service, b.service}, {r.lateness, b.lateness}, {r.halves[0], b.halves[0]}, {r.halves[1], b.halves[1]}} {
		p[0].Merge(p[1])
	}
	mergeEach(r.phases, b.phases)
	mergeEach(r.targets, b.targets)
	for i := range r.targetErrors {
		r.targetErrors[i] += b.targetErrors[i]
		r.targetCounts[i] += b.targetCounts[i]
	}
	r.answered += b.answered
	r.failed += b.failed
	r.sent += b.sent
	r.timedOut += b.timedOut
	r.lastEnd = max(r.lastEnd, b.lastEnd)
	for k, n := range b.statusCounts {
		r.statusCounts[k] += n
	}
	for k, n := range b.errorCounts {
		r.errorCounts[k] += n
	}
}

// mergeEach merges each histogram of source into that of target with the same index; target may take over the histogram itself.
func mergeEach(target, source []*hdr.Histogram) {
	for i, h := range source {
		switch {
		case h == nil:
		case target[i] == nil:
			target[i] = h
		default:
			target[i].Merge(h)
		}
	}
}
