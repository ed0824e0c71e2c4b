// Package stops counts the requests around times in which the whole process did not run: stopped by a signal, a
// debugger, the freezer of its cgroup, or together with its machine. Requests that arrive during a stop seem to begin
// when the process continues, so their latency does not include the stop.
//
// Host samples show which silences of a trace were stops. Without them, a trace gives a hint, because arrivals are
// not lost: if requests normally arrive at a steady rate, the missing ones arrive at once after a stop. A client that
// pauses and then catches up looks the same. A client that always sends bursts does not, because nothing arrives
// between its bursts.
package stops

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/freeze"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/threshold"
)

// A Silence is an interval in which no thread wrote an event.
type Silence struct {
	Start, End int64
	// RequestsDuring is how many requests were open throughout the silence. RequestsAfter is how many began within
	// freeze.BurstNS after it.
	RequestsDuring, RequestsAfter int
}

// A Sum counts requests by silence. It implements pass.Sum.
type Sum struct {
	freezes *freeze.Detector
	adders  []*adder
}

// New returns a Sum over the long silences of a detector.
func New(freezes *freeze.Detector) *Sum { return &Sum{freezes: freezes} }

// An adder counts the requests of one worker.
type adder struct {
	sum      *Sum
	requests int
	silences map[int64]*Silence // by start
}

// NewAdder implements pass.Sum.
func (s *Sum) NewAdder(*path.Stage) path.Adder {
	p := &adder{sum: s, silences: make(map[int64]*Silence)}
	s.adders = append(s.adders, p)
	return p
}

// Add implements path.Adder: it counts a client's request in the silences that it began right after, or was open in.
func (p *adder) Add(w *path.WalkResult) {
	if w.Observer || w.Form == path.Piece || w.Form == path.CutAtStart || !w.Req.IsServed() {
		return
	}
	if w.Form != path.NotWalked {
		p.addRequest(w.Start, w.Req.End)
	}
	for i := range w.Units {
		p.addRequest(w.Units[i].Start, w.Units[i].End)
	}
}

// addRequest counts a client's request.
func (p *adder) addRequest(start, end int64) {
	p.requests++
	quiet := p.sum.freezes.LongSilences()
	i, _ := slices.BinarySearchFunc(quiet, start-freeze.BurstNS, func(silence freeze.Interval, t int64) int { return cmp.Compare(silence.End, t) })
	for ; i < len(quiet) && quiet[i].Start < end; i++ {
		silence, counts := quiet[i], entry.GetOrAdd(p.silences, quiet[i].Start)
		if start >= silence.End {
			counts.RequestsAfter++
		} else if start < silence.Start && end >= silence.End {
			counts.RequestsDuring++
		}
	}
}

// Silences returns all long silences in order of time, with their counts, and the number of requests.
func (s *Sum) Silences() (out []Silence, requests int) {
	for _, quiet := range s.freezes.LongSilences() {
		silence := Silence{Start: quiet.Start, End: quiet.End}
		for _, p := range s.adders {
			if counts := p.silences[silence.Start]; counts != nil {
				silence.RequestsDuring, silence.RequestsAfter = silence.RequestsDuring+counts.RequestsDuring, silence.RequestsAfter+counts.RequestsAfter
			}
		}
		out = append(out, silence)
	}
	for _, p := range s.adders {
		requests += p.requests
	}
	return out, requests
}

// minScore is the score from which on silences are suspects: the logarithm of the odds against all of them by chance,
// as for the clock of a quota (docs/throttling.md).
const (
	minScore = 12
)

// Suspects returns the silences after which about as many requests arrived at once as were missing during the silence
// at the usual rate. It returns none if chance can explain their number and length.
func Suspects(silences []Silence, requests int, lengthNS int64) (out []Silence) {
	for _, silence := range silences {
		if silence.RequestsAfter >= threshold.Repeats {
			requests -= silence.RequestsAfter
			lengthNS -= silence.End - silence.Start
		}
	}
	if requests <= 0 || lengthNS <= 0 {
		return nil
	}
	rate, score := float64(requests)/float64(lengthNS), 0.0
	for _, silence := range silences {
		if missing := rate * float64(silence.End-silence.Start); silence.RequestsAfter >= threshold.Repeats && missing <= 2*float64(silence.RequestsAfter) && float64(silence.RequestsAfter) <= 2*missing {
			out = append(out, silence)
			score += missing
		}
	}
	if score < minScore {
		return nil
	}
	return out
}
