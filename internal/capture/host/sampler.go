package host

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/whylate/whylate/internal/capture/bundle"
)

// Codes of warnings about host samples.
const (
	WarnHost    = "host-samples" // some or all samples are missing
	WarnSockets = "host-sockets" // retransmissions of the sockets are missing
	WarnEnded   = "host-ended"   // the process ended during sampling
)

// DefaultInterval is the time between two samples.
const DefaultInterval = 20 * time.Millisecond

// Options configures Start.
type Options struct {
	// PID is the process to sample.
	PID int
	// Interval is the time between two samples; 0 means DefaultInterval.
	Interval time.Duration
}

// A Recording is the result of sampling.
type Recording struct {
	// Data is the content of host.jsonl; empty without any sample.
	Data []byte
	// Facts is nil if nothing is known about the process.
	Facts    *bundle.Host
	Warnings []bundle.Warning
	Samples  int
	// Cost is the CPU time that sampling used.
	Cost time.Duration
}

// Bounds on the memory of a long recording. Counters only grow, so dropping every
// second sample keeps all sums.
const (
	maxSamples = 1 << 16 // 22 minutes at 20 ms
	maxSeconds = 1 << 13
	maxSockets = 1 << 17 // in all lines
	maxListed  = 1000    // in one line
)

// A sampleLog collects the lines of a recording in bounded memory.
type sampleLog struct {
	samples, seconds series
	otherLines       []Line // unordered
	listedSockets    int    // number of sockets in otherLines
}

// A series retains one of every stride samples, and always the newest one. When it is full it doubles
// the stride.
type series struct {
	samples  []Sample
	stride   int
	position int
}

// add adds a sample as the newest one. When the series has limit samples, every second one is dropped and the stride doubles: from then on, of stride
// samples in succession only the newest stays.
func (s *series) add(sample Sample, limit int) {
	s.stride = max(s.stride, 1)
	if s.position > 0 {
		s.samples[len(s.samples)-1] = sample
	} else {
		s.samples = append(s.samples, sample)
	}
	s.position = (s.position + 1) % s.stride
	if len(s.samples) == limit && s.position == 0 {
		s.samples = dropEverySecond(s.samples)
		s.stride *= 2
	}
}

// dropEverySecond keeps the elements at even indices, and the last one. It overwrites s.
func dropEverySecond[T any](s []T) []T {
	n := 0
	for i := 0; i < len(s); i += 2 {
		s[n] = s[i]
		n++
	}
	if len(s)%2 == 0 {
		s[n] = s[len(s)-1]
		n++
	}
	return s[:n]
}

// encode returns host.jsonl: the line start, all lines in the order of MonoNS, and the line end.
func (l *sampleLog) encode(start, end Line) []byte {
	var lines []*Line
	for _, x := range l.seconds.samples {
		lines = append(lines, &Line{Kind: KindSecond, Sample: x})
	}
	for i := range l.otherLines {
		lines = append(lines, &l.otherLines[i])
	}
	for _, x := range l.samples.samples {
		lines = append(lines, &Line{Kind: KindSample, Sample: x})
	}
	slices.SortStableFunc(lines, func(a, b *Line) int { return cmp.Compare(a.MonoNS, b.MonoNS) })
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for _, line := range slices.Concat([]*Line{&start}, lines, []*Line{&end}) {
		_ = enc.Encode(line) // plain data into memory cannot fail
	}
	return b.Bytes()
}
