package load

import (
	"sync"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// longest is the largest latency that a histogram distinguishes: a run of an hour and a time-out beyond it.
const longest = int64(2 * time.Hour)

func newHistogram() *hdr.Histogram { return hdr.New(1, longest, 3) }

// A Sample is what was seen of one request, in ns since the run's start.
type Sample struct {
	Target          int
	Due, Start, End int64 // latency is from Due to End; in a closed loop, Due is Start
	Late            int64 // how much later than scheduled it started
	Status          int   // 0 if there was no answer
	Err             error
	TimedOut        bool
}

// A recorder counts samples. There are a few, each shared by some of the workers and merged at the end: a histogram
// takes 300 KB, too much for one in each of thousands of workers, and is written to in some ns.
type recorder struct {
	mu                         sync.Mutex
	intended, service, late    *hdr.Histogram
	halves                     [2]*hdr.Histogram
	phases, targets            []*hdr.Histogram // of intended, nil where there is only one
	targetErrors, targetCounts []int64
	answered, failed, sent     int64
	timedOut                   int64
	last                       int64 // end of the last answer
	status                     map[int]int64
	errs                       map[string]int64
}

// maxKinds bounds how many different errors are distinguished.
const maxKinds = 20

func newRecorder(phases, targets int) *recorder {
	r := &recorder{
		intended: newHistogram(), service: newHistogram(), late: newHistogram(), halves: [2]*hdr.Histogram{newHistogram(), newHistogram()},
		targetErrors: make([]int64, targets), targetCounts: make([]int64, targets), status: map[int]int64{}, errs: map[string]int64{},
	}
	if phases > 1 {
		r.phases = make([]*hdr.Histogram, phases)
	}
	if targets > 1 {
		r.targets = make([]*hdr.Histogram, targets)
	}
	return r
}

// add counts a sample that lies in the given half and phase of the schedule. What failed has no latency, because a fast
// refusal is no fast answer; but a request that was given up has waited at least so long, and leaving it out would make
// the tail look better than it was.
func (r *recorder) add(s *Sample, half, phase int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent++
	r.targetCounts[s.Target]++
	record(r.late, s.Late)
	if s.Status != 0 {
		r.status[s.Status]++
	}
	if s.Err != nil {
		r.failed++
		r.targetErrors[s.Target]++
		text := reason(s.Err)
		if _, ok := r.errs[text]; !ok && len(r.errs) >= maxKinds {
			text = "other errors"
		}
		r.errs[text]++
		if !s.TimedOut {
			return
		}
		r.timedOut++
	} else {
		r.answered++
		r.last = max(r.last, s.End)
	}
	latency := s.End - s.Due
	record(r.intended, latency)
	record(r.service, s.End-s.Start)
	record(r.halves[half], latency)
	if r.phases != nil {
		if r.phases[phase] == nil {
			r.phases[phase] = newHistogram()
		}
		record(r.phases[phase], latency)
	}
	if r.targets != nil {
		if r.targets[s.Target] == nil {
			r.targets[s.Target] = newHistogram()
		}
		record(r.targets[s.Target], latency)
	}
}

func record(h *hdr.Histogram, ns int64) {
	_ = h.RecordValue(min(max(ns, 0), longest)) // cannot fail within the range
}

// merge adds b, which is not used any more.
func (r *recorder) merge(b *recorder) {
	for _, p := range [][2]*hdr.Histogram{{r.intended, b.intended}, {r.service, b.service}, {r.late, b.late}, {r.halves[0], b.halves[0]}, {r.halves[1], b.halves[1]}} {
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
	r.last = max(r.last, b.last)
	for k, n := range b.status {
		r.status[k] += n
	}
	for k, n := range b.errs {
		r.errs[k] += n
	}
}

func mergeEach(to, from []*hdr.Histogram) {
	for i, h := range from {
		switch {
		case h == nil:
		case to[i] == nil:
			to[i] = h
		default:
			to[i].Merge(h)
		}
	}
}
