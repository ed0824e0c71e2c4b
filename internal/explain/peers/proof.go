package peers

import (
	"cmp"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/answers"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// proven returns the part of the waits that are an exchange with a request of the process, by what happened and in which order:
// the request began after it was asked for, what ended the wait came after the request's answer was sent, both within
// what loopback takes, and that answer woke nobody else. It is 0 where the ends are too far apart; apart is how far they are.
//
// Who else the answer woke: a handler may start a call to its own process for which it does not wait. Then another
// goroutine, which no request waits for, is woken by the answer each time. What is woken at that time by chance is woken as often just
// before the answer.
//
// Likely is false where the order of most refutes it.
func (s *Sum) proven(waits, served []answers.Span) (part float64, apart int64, likely bool) {
	var there, back []int64
	ordered, after, before := 0, 0, 0
	answers.Match(waits, served, 0, func(w, r answers.Span) {
		if len(w.Parts) == 0 {
			return
		}
		asked, ok := lastUntil(r.Start, append(w.SendTimes, w.Parts[0].Start-scale.Blink))
		for i := range w.Parts {
			if from := w.Parts[i].Start; i > 0 && from <= r.Start {
				asked = from
			}
		}
		k := slices.IndexFunc(w.Parts, func(p answers.WaitPart) bool { return p.Wake >= r.End })
		if k < 0 {
			k = len(w.Parts) - 1
		}
		end := &w.Parts[k]
		answered, sent := lastUntil(end.Wake, append(r.SendTimes, r.End))
		if !ok || !sent {
			return
		}
		ordered++
		took := end.Wake - answered
		there, back = append(there, r.Start-asked-r.UnreadNS), append(back, took-end.UnreadNS)
		for _, x := range r.PollerWakes {
			switch by := x.Time - answered; {
			case s.waitsOrServes(x.G):
			case by > 0 && by < took:
				after++
			case by <= 0 && by > -took:
				before++
			}
		}
	})
	all := float64(len(waits))
	likely = float64(ordered) > scale.Half*all
	if ordered == 0 || median(there) > scale.Loopback || median(back) > scale.Loopback {
		return 0, 0, likely
	}
	return float64(ordered-max(0, after-before)) / all, median(there) + median(back), likely
}

// lastUntil returns the last of some times that is not after t, if there is one.
func lastUntil(t int64, times []int64) (last int64, ok bool) {
	for _, x := range times {
		if x <= t && (!ok || x > last) {
			last, ok = x, true
		}
	}
	return last, ok
}

func median(list []int64) int64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// waitsOrServes reports whether a goroutine serves requests, or is one that they wait for: what wakes it is known.
func (s *Sum) waitsOrServes(g uint64) bool {
	if s.known == nil {
		s.known = make(map[uint64]bool)
		for _, list := range s.served {
			for i := range list {
				s.known[list[i].Request.G] = true
			}
		}
		for _, list := range s.waits {
			for i := range list {
				for _, p := range list[i].Parts {
					s.known[p.G] = true
				}
			}
		}
	}
	return s.known[g]
}

// oneEach drops what cannot all be: a request answers one wait. Of several groups that would have more answers of another
// one than it gave, those are believed whose waits fit these more closely.
func (s *Sum) oneEach() {
	sure := make(map[path.GroupID][]path.GroupID)
	for id, p := range s.own {
		if p.Sure {
			sure[p.Group] = append(sure[p.Group], id)
		}
	}
	for group, by := range sure {
		left := len(s.served[group])
		slices.SortFunc(by, func(a, b path.GroupID) int { return cmp.Compare(s.own[a].apart, s.own[b].apart) })
		for i, id := range by {
			p := s.own[id]
			if i > 0 && len(p.Also) == 0 && left < p.needs() {
				p.Sure, p.Confidence = false, hinted
				s.own[id] = p
				continue
			}
			left -= p.Held
		}
		for id, p := range s.own {
			if !p.Sure && p.Group == group && len(p.Also) == 0 && left < p.needs() {
				delete(s.own, id)
			}
		}
	}
}

// needs is how many requests a peer must have for so many of the waits.
func (p *Peer) needs() int { return int(scale.NearlyAll * float64(p.Held)) }

// look finds out what proven needs of the waits and requests that were added in this generation, while the window has it.
func (s *Sum) look() {
	var starts, wakes []int64
	for _, p := range s.parts {
		if p.stage == nil {
			return
		}
		from := p.stage.Win.Start()
		for i := range p.served {
			if r := &p.served[i]; r.PollerWakes == nil && r.End >= from {
				starts = append(starts, r.Start)
			}
		}
		for i := range p.waits {
			for _, x := range p.waits[i].Parts {
				if x.Wake >= from {
					wakes = append(wakes, x.Wake)
				}
			}
		}
	}
	if len(starts) == 0 || len(wakes) == 0 {
		return
	}
	slices.Sort(starts)
	slices.Sort(wakes)
	for _, p := range s.parts {
		p.look(starts, wakes)
	}
}

// maxNear bounds how much is kept of what happened near one instant, on either side.
const maxNear = 8

func (p *part) look(starts, wakes []int64) {
	win := p.stage.Win
	for i := range p.served {
		r := &p.served[i]
		if r.PollerWakes != nil || r.End < win.Start() {
			continue
		}
		g := win.Gens[win.At(r.End)]
		before, after := g.PollerWakes(r.End-scale.Loopback, r.End+1), g.PollerWakes(r.End+1, r.End+scale.Loopback)
		r.PollerWakes = append(append(make([]timeline.PollerWake, 0, 4), before[max(0, len(before)-maxNear):]...), after[:min(len(after), maxNear)]...)
		if anyIn(wakes, r.End-scale.Loopback, r.End) {
			r.SendTimes = p.sends(r.End)
		}
	}
	for i := range p.waits {
		w := &p.waits[i]
		if from := w.Parts[0].Start; w.SendTimes == nil && from >= win.Start() && anyIn(starts, from-scale.Loopback, from-scale.Blink) {
			w.SendTimes = p.sends(from)
		}
	}
}

// anyIn reports whether one of some times, which are in order, is in [from, to).
func anyIn(times []int64, from, to int64) bool {
	i, _ := slices.BinarySearch(times, from)
	return i < len(times) && times[i] < to
}

// sends returns the last times before t at which goroutines of the process began to write to the network.
func (p *part) sends(t int64) []int64 {
	at := make([]int64, 0, 2)
	p.stage.Win.Gens[p.stage.Win.At(t)].EachRun(t-scale.Loopback, t, func(r timeline.Run) {
		if r.Ended && p.isSend(r.Stack) {
			at = append(at, r.To)
		}
	})
	slices.Sort(at)
	return at[max(0, len(at)-maxNear):]
}

// isSend reports whether a stack is that of a write to a connection.
func (p *part) isSend(id tracefmt.StackID) bool {
	send, known := p.isSent[id]
	if !known {
		send = slices.ContainsFunc(p.stage.Syms.Stack(id), func(f tracefmt.FrameID) bool {
			return strings.HasPrefix(p.stage.Syms.String(p.stage.Syms.Frame(f).Func), "net.(*netFD).Write")
		})
		p.isSent[id] = send
	}
	return send
}
