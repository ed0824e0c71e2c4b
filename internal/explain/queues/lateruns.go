package queues

import (
	"cmp"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// lates are the runs of one generation that began late while requests of others waited for them. What is kept is
// bounded: with very many of them every second is forgotten, then three of four, and so on, by the run itself, so that
// all requests that waited for a run that is kept are counted, and the choice does not depend on the workers.
//
// Of a group of which not all requests were walked, only those of the slice that turns are of count, for as many as there are.
type lates struct {
	runs  map[lateKey]lateRun
	mask  uint64
	times int64            // how many times the slice's requests all of the generation's are; of the first part
	most  map[uint64]int64 // how late a goroutine was at most beyond the slice
}

// A lateKey names a run that began late: goroutine and beginning.
type lateKey struct {
	g  uint64
	at int64
}

type lateRun struct {
	ready    int64 // since when it could have run, or, with a gap, its message may have been there
	gap      int64 // see critpath.PollGap
	stack    tracefmt.StackID
	requests int64
	ns       int64 // that requests waited, all together
	whole    bool  // a request of a group that was walked whole did
}

func (r lateRun) plus(o lateRun) lateRun {
	if r == (lateRun{}) {
		return o
	}
	return lateRun{min(r.ready, o.ready), max(r.gap, o.gap), max(r.stack, o.stack), r.requests + o.requests, r.ns + o.ns, r.whole || o.whole}
}

// maxLates bounds the runs kept of one generation, minLate is from when on a run counts as late.
const (
	maxLates = 2048
	minLate  = 100e3
)

func (l *lates) keeps(k lateKey) bool {
	h := (uint64(k.at) ^ k.g<<40) * 0x9e3779b97f4a7c15
	return (h^h>>32)>>16&l.mask == 0
}

func (l *lates) thin() {
	for len(l.runs) > maxLates {
		l.mask = l.mask<<1 | 1
		maps.DeleteFunc(l.runs, func(k lateKey, _ lateRun) bool { return !l.keeps(k) })
	}
}

// addLates takes note of other goroutines' late runs on a request's path.
func (p *part) addLates(w *path.Walked) {
	steps := w.Steps
	beyond := w.Sparse && w.Req.End >= p.until
	for i := range steps {
		s := &steps[i]
		if s.Kind != critpath.Runnable || s.G == w.Req.G {
			continue
		}
		ready, gap := s.Start, int64(0)
		if i > 0 {
			if b := &steps[i-1]; b.Kind == critpath.PollGap && b.G == s.G {
				ready, gap = b.Start, b.End-b.Start
			}
		}
		if s.End-ready < minLate {
			continue
		}
		if beyond {
			p.late.most[s.G] = max(p.late.most[s.G], s.End-ready)
			continue
		}
		if k := (lateKey{s.G, s.End}); p.late.keeps(k) {
			n := w.Counted()
			p.late.runs[k] = p.late.runs[k].plus(lateRun{ready: ready, gap: gap, stack: s.Stack, requests: n, ns: n * (s.End - ready), whole: !w.Sparse})
			p.late.thin()
		}
	}
}

// A hub is a goroutine with late runs, added up.
type hub struct {
	late, heldUp             int64
	lateNS, gapNS, maxNS, ns int64
	sites                    map[tracefmt.StackID]int64
	ran                      map[tracefmt.FrameID]int64
	start                    tracefmt.StackID
}

// Bounds: of hubs kept, of late runs a generation for which what ran meanwhile is looked up, of sites a hub has.
const (
	maxHubs     = 512
	maxLateRan  = 24
	maxHubSites = 8
)

// joinLates adds up what all workers noted of a generation whose requests have
// all been added.
func (s *Sum) joinLates() {
	all := &s.parts[0].late
	for _, p := range s.parts[1:] {
		all.mask = max(all.mask, p.late.mask)
		addSums(all.runs, p.late.runs, lateRun.plus)
		addSums(all.most, p.late.most, func(a, b int64) int64 { return max(a, b) })
		p.late.reset()
	}
	maps.DeleteFunc(all.runs, func(k lateKey, _ lateRun) bool { return !all.keeps(k) })
	all.thin()
	s.addHubs(all)
	all.reset()
}

func (l *lates) reset() {
	clear(l.runs)
	clear(l.most)
	l.mask = 0
}

func (s *Sum) addHubs(all *lates) {
	type late struct {
		lateKey
		lateRun
	}
	runs := make([]late, 0, len(all.runs))
	for k, run := range all.runs {
		runs = append(runs, late{k, run})
	}
	// Those that held up most are looked at most closely.
	slices.SortFunc(runs, func(a, b late) int {
		return cmp.Or(cmp.Compare(b.ns, a.ns), cmp.Compare(a.at, b.at), cmp.Compare(a.g, b.g))
	})
	looked := 0
	for _, l := range runs {
		k, run := l.lateKey, l.lateRun
		h := s.hubs[k.g]
		if h == nil {
			h = &hub{sites: make(map[tracefmt.StackID]int64), ran: make(map[tracefmt.FrameID]int64)}
			s.hubs[k.g] = h
		}
		late, weight := k.at-run.ready, int64(all.mask+1)
		if !run.whole {
			weight *= all.times
		}
		h.late += weight
		h.heldUp += weight * run.requests
		h.lateNS += weight * late
		h.gapNS += weight * run.gap
		h.maxNS = max(h.maxNS, late)
		h.ns += weight * run.ns
		if _, known := h.sites[run.stack]; known || len(h.sites) < maxHubSites {
			h.sites[run.stack] += weight * run.ns
		}
		h.start = max(h.start, run.stack)
		if run.requests > 1 && looked < maxLateRan {
			looked++
			s.parts[0].stage.EachRanMeanwhile(run.ready+run.gap, k.at, k.g, func(site tracefmt.FrameID, ns int64) { h.ran[site] += ns })
		}
	}
	for g, ns := range all.most {
		if h := s.hubs[g]; h != nil {
			h.maxNS = max(h.maxNS, ns)
		}
	}
	if len(s.hubs) > maxHubs {
		for _, id := range s.hubsByWeight()[maxHubs/2:] {
			delete(s.hubs, id)
		}
	}
}

// hubsByWeight returns the goroutines, those that held up most first.
func (s *Sum) hubsByWeight() []uint64 {
	return slices.SortedFunc(maps.Keys(s.hubs), func(a, b uint64) int {
		return cmp.Or(cmp.Compare(s.hubs[b].ns, s.hubs[a].ns), cmp.Compare(a, b))
	})
}

// shownHubs is how many hubs are listed.
const shownHubs = 20

// A Hub is a goroutine that others' requests wait for and that is late to run.
type Hub struct {
	G     uint64
	Start string
	Sites []*report.Site // where it waited before it was late, the most time first
	// Late counts late runs, HeldUp pairs of a request and a late run that it waited for, so that HeldUp/Late is how many
	// requests one late run holds up. They are of a sample of late runs if there are very many.
	Late, HeldUp int64
	// LateNS is the sum, over Late, of the time from when it could have run until it did; GapNS the part of it in
	// which its message may already have lain unread because nobody polled the network (an upper bound). MaxNS is the
	// longest single one, both parts together.
	LateNS, GapNS, MaxNS int64
	// HeldUpNS is what requests waited for late runs, over all requests.
	HeldUpNS int64
	// Ran lists what ran on the Ps meanwhile.
	Ran []report.Share
}

// Hubs returns the goroutines whose late runs held up the most time of others' requests.
func (s *Sum) Hubs(sp *spell.Speller) []Hub {
	var out []Hub
	byWeight := s.hubsByWeight()
	for _, id := range byWeight[:min(len(byWeight), shownHubs)] {
		h := s.hubs[id]
		c := Hub{
			G: id, Start: sp.StartOf(h.start), Late: h.late, HeldUp: h.heldUp, LateNS: h.lateNS, GapNS: h.gapNS, MaxNS: h.maxNS, HeldUpNS: h.ns,
			Ran: sp.Shares(h.ran),
		}
		bySite := make(map[tracefmt.FrameID]int64)
		for stack, ns := range h.sites {
			bySite[sp.Sites.Of(stack)] += ns
		}
		for _, f := range slices.SortedFunc(maps.Keys(bySite), func(a, b tracefmt.FrameID) int {
			return cmp.Or(cmp.Compare(bySite[b], bySite[a]), sp.CompareFrames(a, b))
		}) {
			if site := sp.Site(f); site != nil {
				c.Sites = append(c.Sites, site)
			}
		}
		out = append(out, c)
	}
	return out
}
