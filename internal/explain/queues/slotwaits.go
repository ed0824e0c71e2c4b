package queues

import (
	"cmp"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// Whoever has a place of a pool gives it back, and so ends the wait of somebody who stands in line for one. That somebody
// gives it back in turn: where those who end waits had waited there before, as those whose waits they end do now, what is
// waited for is a place, whatever it is made of. A goroutine that answers others does not wait where they do; one that asks
// further through the same function began to wait after the one it answers.
//
// A place may also be a goroutine: a worker that is free ends the wait of somebody, who then hands it work and waits until the
// same goroutine has done it. Who only reads answers that others wait for gives nothing out: it waits itself between what it
// brings to one and to the next, not between what it brings to one.

// A placeKey is where places are waited for.
type placeKey struct {
	wait critpath.WaitKind
	site tracefmt.FrameID
}

// A line is one of the source.
type line struct {
	fn, file tracefmt.StringID
	n        uint32
}

func (l line) compare(o line) int {
	return cmp.Or(cmp.Compare(l.fn, o.fn), cmp.Compare(l.file, o.file), cmp.Compare(l.n, o.n))
}

// A handOver is the end of a wait for a place, or for what looks like one.
type handOver struct {
	key      placeKey
	line     line   // of key.site, wherever that was called from
	g        uint64 // who waited, from when to when
	from, to int64
	end      int64  // of the request that it was for
	by       uint64 // who ended it
	parent   uint64 // the goroutine that started that one, 0: not known
	born     int64
	served   int64 // when that one ended the next wait of the same request elsewhere, 0: it did not
	done     int64 // when that one had ended a wait of somebody else before
}

// placePieces bounds the waits of one request that are looked at.
const placePieces = 32

// addPlaces takes note of the waits of a request that others ended, its own and those behind them.
func (p *part) addPlaces(w *path.Walked) {
	if w.Req.Kind == request.Loop && !w.Req.AnswersClient || w.Req.Kind == request.Main {
		return // those that hand on what they are given wait in a row, and at one line
	}
	n := 0
	waits := w.Waits()
	for i := range waits {
		v := &waits[i]
		switch v.Kind {
		case critpath.WaitChan, critpath.WaitSend, critpath.WaitSelect, critpath.WaitCond:
		default:
			continue
		}
		if n++; n > placePieces {
			return
		}
		if v.G != w.Req.G {
			if b, ok := p.stage.Win.Born(v.G, v.End); !ok || b.By != w.Req.G {
				continue // not on the request's own behalf
			}
		}
		h := handOver{key: placeKey{v.Kind, p.stage.Sites.Of(v.Stack)}, g: v.G, from: v.Start, to: v.End, end: w.Req.End, by: v.Waker}
		at := p.stage.Syms.Frame(h.key.site)
		h.line = line{at.Func, at.File, at.Line}
		if b, ok := p.stage.Win.Born(v.Waker, v.End); ok {
			h.parent, h.born = b.By, b.Time
		}
		for k := range waits[:min(len(waits), 4*placePieces)] {
			if o := &waits[k]; o.G == v.G && o.Waker == v.Waker && o.Start >= v.End && o.Waker != 0 && (h.served == 0 || o.End < h.served) && p.stage.Sites.Of(o.Stack) != h.key.site {
				h.served = o.End
			}
		}
		p.hands = append(p.hands, h)
	}
}

// placeSum adds up the waits at one place.
type placeSum struct {
	ended    int64 // waits that somebody ended
	instants int64 // at which one goroutine ended any
	mutual   int64 // of ended: by one that had waited there, or that such a one had started
	later    int64 // by one that had come to wait there only when the other one waited already
	children int64 // by a goroutine that who waited had started
	givers   int64 // how many those were
	others   int64 // by a goroutine that was serving another request
	most     int   // places that were held at once, 0 if not all can have been seen
	waiting  int   // requests that waited at once
	heldNS   int64 // from the end of a wait to the end of somebody's that is due to it, or to when the worker is done
	held     int64
	serving  int64 // waits ended by a worker that was done with somebody else's work meanwhile, and then did the waiting one's
	mixed    int64 // the same, by one that was doing others' at that time
	servedNS int64 // what that took
	restNS   int64 // what lay between the end of somebody else's and that of the wait
}

// settlePlaces brings together what all workers saw of a generation.
func (s *Sum) settlePlaces() {
	var list []*handOver // they are moved often
	for _, p := range s.parts {
		for i := range p.hands {
			list = append(list, &p.hands[i])
		}
	}
	findDone(list)
	slices.SortFunc(list, func(a, b *handOver) int {
		return cmp.Or(cmp.Compare(a.key.wait, b.key.wait), a.line.compare(b.line), cmp.Compare(a.key.site, b.key.site), a.compareEnds(b))
	})
	// One wait is on the paths of all who wait behind it.
	list = slices.CompactFunc(list, func(a, b *handOver) bool { return a.key == b.key && a.g == b.g && a.to == b.to })
	for of := range chunked(list, func(a, b *handOver) bool { return a.key.wait == b.key.wait && a.line == b.line }) {
		s.addPool(of)
	}
}

// addPool adds the waits at one line, from wherever it is called. Those who call it from different lines have one pool if they end each other's
// waits: then its places are those of all.
func (s *Sum) addPool(list []*handOver) {
	sums, mutual := map[placeKey]*placeSum{}, int64(0)
	for of := range chunked(list, func(a, b *handOver) bool { return a.key == b.key }) {
		sum := new(placeSum)
		sum.add(of, s.serving)
		sums[of[0].key], mutual = sum, mutual+sum.mutual
	}
	if len(sums) > 1 {
		all := new(placeSum)
		slices.SortFunc(list, (*handOver).compareEnds)
		if all.add(list, s.serving); all.mutual > mutual {
			for _, sum := range sums {
				sum.most, sum.heldNS, sum.held = all.most, all.heldNS, all.held
			}
		}
	}
	for k, sum := range sums {
		entry.In(s.places, k).merge(sum)
	}
}

// compareEnds orders waits by their ends, and those of one end by all else that tells them apart: one wait is seen by several requests, and which of
// these stands for it must not depend on the workers.
func (h *handOver) compareEnds(o *handOver) int {
	if h.to != o.to {
		return cmp.Compare(h.to, o.to)
	}
	return cmp.Or(cmp.Compare(h.g, o.g), cmp.Compare(h.from, o.from), cmp.Compare(h.end, o.end), cmp.Compare(h.served, o.served), cmp.Compare(h.by, o.by))
}

// findDone finds when each of those who end waits had last ended somebody else's.
func findDone(list []*handOver) {
	slices.SortFunc(list, func(a, b *handOver) int {
		if a.by != b.by {
			return cmp.Compare(a.by, b.by)
		}
		return a.compareEnds(b)
	})
	for i, h := range list {
		if h.served == 0 {
			continue
		}
		for k := i - 1; k >= 0 && list[k].by == h.by && list[k].to >= h.from; k-- {
			if list[k].g != h.g {
				h.done = list[k].to
				break
			}
		}
	}
}

// A stretch is a time in which somebody held a place, or waited for one.
type stretch struct{ from, to int64 }

// busySince returns since when somebody waited at all times, for the end of each wait. Then nobody had a place without having
// waited for it, and whoever gave one back is seen to have.
func busySince(list []*handOver) []int64 {
	at := make([]int, len(list))
	for i := range at {
		at[i] = i
	}
	slices.SortFunc(at, func(a, b int) int { return cmp.Compare(list[a].from, list[b].from) })
	since := make([]int64, len(list))
	var from, to int64
	for k, i := range at {
		if h := list[i]; k == 0 || h.from >= to {
			from, to = h.from, h.to
		} else {
			to = max(to, h.to)
		}
		since[i] = from
	}
	return since
}

// workers returns the goroutines that ended the waits of several at different times. Whoever starts a worker because a place is free starts
// it for all: it goes on with what others ask for.
func workers(list []*handOver) map[uint64]bool {
	of, crew := map[uint64]*handOver{}, map[uint64]bool{}
	for _, h := range list {
		if last := of[h.by]; last != nil && last.g != h.g && h.to-last.to > scale.Turn {
			crew[h.by] = true
		}
		of[h.by] = h
	}
	return crew
}

// add adds the waits at one place, in the order in which they ended.
func (s *placeSum) add(list []*handOver, requests map[uint64]struct{}) {
	type got struct {
		from, at int64 // when it came to wait for a place, and when it was given
		end      int64 // of the request that it was for: by then it is given back, or by what was started
		back     bool  // given back
	}
	has := map[uint64]*got{} // by who waited
	ended, givers := map[uint64]int64{}, map[uint64]bool{}
	held, waits := map[int64][]stretch{}, make([]stretch, 0, len(list)) // held by since when somebody waited
	inside := map[uint64][]stretch{}                                    // of those who start goroutines and wait for these: what each held
	free := map[uint64]int64{}                                          // when a worker was done with the last one's work
	since, crew := busySince(list), workers(list)
	for i, h := range list {
		child := h.parent == h.g && !crew[h.by]
		waits = append(waits, stretch{h.from, h.to})
		s.ended++
		if at, ok := ended[h.by]; !ok || h.to-at > scale.Turn {
			s.instants++
		}
		ended[h.by] = h.to
		if _, ok := requests[h.by]; ok {
			s.others++
		}
		who := has[h.by]
		if who != nil && h.to > who.end {
			who = nil // another request of the same connection
		}
		if p := has[h.parent]; who == nil && h.parent != h.g && p != nil && p.at <= h.born && h.born <= p.end {
			who = p
		}
		switch {
		case child:
			s.children++
			givers[h.by] = true
			inside[h.g] = append(inside[h.g], stretch{h.born, h.to})
		case who == nil:
		case who.from <= h.from:
			s.mutual++
		default:
			s.later++
		}
		switch {
		case child:
		case who == nil && h.served > h.to && h.done > 0 && h.done >= h.from:
			if free[h.by] > h.to {
				s.mixed++
			} else {
				s.serving++
				s.servedNS += h.served - h.to
				s.restNS += h.to - h.done
				held[since[i]] = append(held[since[i]], stretch{h.to, h.served})
				s.heldNS += h.served - h.to
				s.held++
			}
			free[h.by] = max(free[h.by], h.served)
		case who != nil && !who.back && who.at >= since[i]:
			held[since[i]] = append(held[since[i]], stretch{who.at, h.to})
			s.heldNS += h.to - who.at
			s.held++
		}
		if who != nil {
			who.back = true
		}
		has[h.g] = &got{from: h.from, at: h.to, end: h.end}
	}
	s.waiting, s.givers = max(s.waiting, atOnce(waits)), s.givers+int64(len(givers))
	for _, of := range held {
		// Whose place was had before all waited shows only once it is given back: all are seen when each was given back twice.
		if n := atOnce(of); len(of) >= 2*n {
			s.most = max(s.most, n)
		}
	}
	for _, of := range inside {
		s.most = max(s.most, atOnce(of))
	}
}

// atOnce returns how many stretches overlap at most. One that begins when another ends does not overlap it.
func atOnce(list []stretch) int {
	from, to := make([]int64, len(list)), make([]int64, len(list))
	for i, s := range list {
		from[i], to[i] = s.from, s.to
	}
	slices.Sort(from)
	slices.Sort(to)
	most, ended := 0, 0
	for begun, t := range from {
		for ended < len(to) && to[ended] <= t {
			ended++
		}
		most = max(most, begun+1-ended)
	}
	return most
}

func (m *placeSum) merge(s *placeSum) {
	m.ended += s.ended
	m.instants += s.instants
	m.mutual += s.mutual
	m.later += s.later
	m.children += s.children
	m.givers += s.givers
	m.others += s.others
	m.most, m.waiting = max(m.most, s.most), max(m.waiting, s.waiting)
	m.heldNS += s.heldNS
	m.held += s.held
	m.serving += s.serving
	m.mixed += s.mixed
	m.servedNS += s.servedNS
	m.restNS += s.restNS
}

// Places sums up the waits at one line that other goroutines ended, in the slices of time that were looked at.
type Places struct {
	Wait report.WaitKind
	Site *report.Site
	// Ended counts the waits; Together is how many of them one goroutine ended at one and the same instant, on average.
	Ended    int
	Together float64
	// Mutual is the part of them that one ended who had waited there before, or had started the goroutine that did; Children
	// the part that a goroutine ended which the waiting one had started for itself alone, and Each how many of these a goroutine ended; Others
	// the part that one ended which was serving another request.
	Mutual, Children, Each, Others float64
	// Serving is the part of them that a goroutine ended which then worked for the one that had waited, for one at a time: a
	// worker that is a place itself.
	Serving float64
	// Most is how many had a place at once while others waited so long that each place was given back twice: as many as there
	// are; 0 if nobody waited for so long. Waiting is how many waited for one at once.
	Most, Waiting int
	// HeldNS is for how long a place was held, on average over those times in which others waited throughout; 0 if there are
	// too few of them.
	HeldNS int64
}

// Places returns the sums of all waits that others ended. Merge must have been called.
func (s *Sum) Places(sp *spell.Speller) []Places {
	keys := slices.SortedFunc(maps.Keys(s.places), func(a, b placeKey) int {
		return cmp.Or(cmp.Compare(s.places[b].ended, s.places[a].ended), cmp.Compare(a.wait, b.wait), sp.CompareFrames(a.site, b.site))
	})
	var out []Places
	for _, k := range keys {
		sum := s.places[k]
		r := Places{Wait: report.WaitKind(k.wait.String()), Site: sp.Site(k.site), Ended: int(sum.ended),
			Together: float64(sum.ended) / float64(max(sum.instants, 1)), Most: sum.most, Waiting: sum.waiting,
			Children: float64(sum.children) / float64(sum.ended), Others: float64(sum.others) / float64(sum.ended)}
		if sum.mutual > 4*sum.later {
			r.Mutual = float64(sum.mutual) / float64(sum.ended)
		}
		if sum.serving > 4*sum.mixed && sum.servedNS > 4*sum.restNS {
			r.Serving = float64(sum.serving) / float64(sum.ended)
		}
		if sum.children > 0 {
			r.Each = float64(sum.children) / float64(sum.givers)
		}
		if sum.held >= scale.Few {
			r.HeldNS = sum.heldNS / sum.held
		}
		out = append(out, r)
	}
	return out
}
