// Package stops counts the requests that a process met with when it was not running: held by a signal, a debugger, the freezer of its
// cgroup, or with its whole machine. Requests that arrive meanwhile begin, for a trace, when the process goes on, so their
// latency does not show it.
//
// Which silences of a trace were stops, host samples tell. Without them a trace gives a hint: arrivals do not get lost. Where
// requests come at a steady rate, a pause of all of them is unlikely, and as many as are missing come at once after it. A client
// that paused and makes up for it looks the same; one that always sends many at once does not, because nothing comes in between.
package stops

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/freeze"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/threshold"
)

// A Silence is a stretch of the trace in which no thread wrote anything.
type Silence struct {
	Start, End int64
	// RequestsDuring is how many requests were under way all through it, After how many began within freeze.BurstNS after it.
	RequestsDuring, RequestsAfter int
}

// A Sum counts requests by silence. It implements pass.Sum.
type Sum struct {
	freezes *freeze.Detector
	adders  []*adder
}

// New returns a Sum over the silences of a detector.
func New(freezes *freeze.Detector) *Sum { return &Sum{freezes: freezes} }

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

// Add implements pass.Adder.
func (p *adder) Add(w *path.WalkResult) {
	if w.Observer || w.Form == path.Piece || w.Form == path.CutAtStart || !w.Req.IsServed() {
		return
	}
	p.requests++
	quiet := p.sum.freezes.LongSilences()
	i, _ := slices.BinarySearchFunc(quiet, w.Start-freeze.BurstNS, func(silence freeze.Interval, t int64) int { return cmp.Compare(silence.End, t) })
	for ; i < len(quiet) && quiet[i].Start < w.Req.End; i++ {
		silence, counts := quiet[i], entry.In(p.silences, quiet[i].Start)
		if w.Start >= silence.End {
			counts.RequestsAfter++
		} else if w.Start < silence.Start && w.Req.End >= silence.End {
			counts.RequestsDuring++
		}
	}
}

// Silences returns all silences with what was counted, and how many requests there were.
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

// minScore is the score from which on pauses are believed to be none of the clients': the logarithm of the odds against all of them by
// chance, as for a quota's clock (docs/throttling.md). fewest arrivals make a burst.
const (
	minScore = 12
)

// Suspects returns the silences after which as many requests came at once as their rate had made expect meanwhile, if these are
// too many and too long for chance.
func Suspects(all []Silence, requests int, length int64) (out []Silence) {
	for _, silence := range all {
		if silence.RequestsAfter >= threshold.Several {
			requests -= silence.RequestsAfter
			length -= silence.End - silence.Start
		}
	}
	if requests <= 0 || length <= 0 {
		return nil
	}
	rate, score := float64(requests)/float64(length), 0.0
	for _, silence := range all {
		if missing := rate * float64(silence.End-silence.Start); silence.RequestsAfter >= threshold.Several && missing <= 2*float64(silence.RequestsAfter) && float64(silence.RequestsAfter) <= 2*missing {
			out = append(out, silence)
			score += missing
		}
	}
	if score < minScore {
		return nil
	}
	return out
}
