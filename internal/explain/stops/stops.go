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
	"github.com/whylate/whylate/internal/explain/scale"
)

// A Silence is a stretch of the trace in which no thread wrote anything.
type Silence struct {
	Start, End int64
	// During is how many requests were under way all through it, After how many began within freeze.BurstNS after it.
	During, After int
}

// A Sum counts requests by silence. It implements pass.Sum.
type Sum struct {
	freezes *freeze.Detector
	parts   []*part
}

// New returns a Sum over the silences of a detector.
func New(freezes *freeze.Detector) *Sum { return &Sum{freezes: freezes} }

type part struct {
	of    *Sum
	all   int
	count map[int64]*Silence // by start
}

// NewAdder implements pass.Sum.
func (s *Sum) NewAdder(*path.Stage) path.Adder {
	p := &part{of: s, count: make(map[int64]*Silence)}
	s.parts = append(s.parts, p)
	return p
}

// Add implements pass.Adder.
func (p *part) Add(w *path.WalkResult) {
	if w.Observer || w.Form == path.Piece || w.Form == path.CutAtStart || !w.Req.IsServed() {
		return
	}
	p.all++
	quiet := p.of.freezes.LongSilences()
	i, _ := slices.BinarySearchFunc(quiet, w.Start-freeze.BurstNS, func(q freeze.Interval, t int64) int { return cmp.Compare(q.End, t) })
	for ; i < len(quiet) && quiet[i].Start < w.Req.End; i++ {
		q, c := quiet[i], entry.In(p.count, quiet[i].Start)
		if w.Start >= q.End {
			c.After++
		} else if w.Start < q.Start && w.Req.End >= q.End {
			c.During++
		}
	}
}

// Silences returns all silences with what was counted, and how many requests there were.
func (s *Sum) Silences() (out []Silence, requests int) {
	for _, q := range s.freezes.LongSilences() {
		x := Silence{Start: q.Start, End: q.End}
		for _, p := range s.parts {
			if c := p.count[x.Start]; c != nil {
				x.During, x.After = x.During+c.During, x.After+c.After
			}
		}
		out = append(out, x)
	}
	for _, p := range s.parts {
		requests += p.all
	}
	return out, requests
}

// least is the score from which on pauses are believed to be none of the clients': the logarithm of the odds against all of them by
// chance, as for a quota's clock (docs/throttling.md). fewest arrivals make a burst.
const (
	least = 12
)

// Suspects returns the silences after which as many requests came at once as their rate had made expect meanwhile, if these are
// too many and too long for chance.
func Suspects(all []Silence, requests int, length int64) (out []Silence) {
	for _, q := range all {
		if q.After >= scale.Several {
			requests -= q.After
			length -= q.End - q.Start
		}
	}
	if requests <= 0 || length <= 0 {
		return nil
	}
	rate, score := float64(requests)/float64(length), 0.0
	for _, q := range all {
		if missing := rate * float64(q.End-q.Start); q.After >= scale.Several && missing <= 2*float64(q.After) && float64(q.After) <= 2*missing {
			out = append(out, q)
			score += missing
		}
	}
	if score < least {
		return nil
	}
	return out
}
