package path

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/request"
)

// A partial is what the pieces of a long request have shown so far.
type partial struct {
	start      int64
	sums       []Sum // in the order of causes
	best       request.Handler
	segments   []cause.Segment
	vias       [][]Via // nil as long as no segment has any
	gap, ready int64
	borders    []int64
}

// maxParted bounds the segments kept of one long request.
const maxParted = 10000

// keep adds a piece to its request's partial.
func (s *Stage) keep(w *Walked) {
	r := w.Req
	p := s.parts[r.PieceKey]
	if p == nil {
		p = &partial{start: r.Start, ready: w.Ready, gap: w.Gap}
		s.parts[r.PieceKey] = p
	}
	if s.best.Rank > p.best.Rank {
		p.best = s.best
	}
	p.best.IsObserver = p.best.IsObserver || s.best.IsObserver
	p.add(w.Sums)
	if len(p.segments) < maxParted {
		if p.vias == nil && slices.ContainsFunc(w.Segments, func(seg cause.Segment) bool { return seg.FollowedWait >= 0 }) {
			p.vias = make([][]Via, len(p.segments))
		}
		if p.vias != nil {
			p.vias = append(p.vias, s.vias(w.Segments)...)
		}
		p.segments = append(p.segments, w.Segments...)
	}
	if r.Piece == request.MiddlePiece {
		p.borders = append(p.borders, r.End)
	}
}

// add adds what a piece spent on its causes. Very many requests can be open at once, most of them with one or two causes: 200,000 maps
// for them were a tenth of what was live.
func (p *partial) add(sums []Sum) {
	for _, sum := range sums {
		i, found := slices.BinarySearchFunc(p.sums, sum.Cause, func(s Sum, id CauseID) int { return cmp.Compare(s.Cause, id) })
		if found {
			p.sums[i].NS += sum.NS
		} else {
			p.sums = slices.Insert(p.sums, i, sum)
		}
	}
}

// Join returns the whole request whose last part was walked just before. The
// result is valid until the next call of Walk; what it holds of the pieces stays
// valid.
func (s *Stage) Join(r *request.Request) *Walked {
	p := s.parts[r.PieceKey]
	delete(s.parts, r.PieceKey)
	s.best = p.best
	s.walked = Walked{
		Req: r, Form: Joint, Weight: 1, Start: p.start, From: p.start, Observer: p.best.IsObserver, Several: s.several,
		Segments: p.segments, Ready: p.ready, Gap: p.gap, Borders: p.borders, vias: p.vias, stage: s,
	}
	w := &s.walked
	if w.Observer {
		return w
	}
	w.Sums = p.sums
	w.Group, w.Entry = s.group(r)
	return w
}

// internVias numbers the chains of waits of the walk that was made last.
func (s *Stage) internVias() {
	s.chains = s.chains[:0]
	for i := range s.walker.FollowedWaits {
		v := &s.walker.FollowedWaits[i]
		parent := ChainID(0)
		if v.Parent >= 0 {
			parent = s.chains[v.Parent]
		}
		s.chains = append(s.chains, s.IDs.chain(viaKey{parent, Via{v.Kind, s.Sites.SiteOf(v.Stack), s.Sites.CallOf(v.Stack)}}))
	}
}

// ChainOf returns the chain of waits that led to a segment of the walk that was
// made last.
func (w *Walked) ChainOf(seg *cause.Segment) ChainID { return w.stage.chains[seg.FollowedWait] }

// ChainOfStep returns the chain of waits that led to a step of the walk that was
// made last.
func (w *Walked) ChainOfStep(st *critpath.Step) ChainID {
	if st.FollowedWait < 0 {
		return 0
	}
	return w.stage.chains[st.FollowedWait]
}

func (s *Stage) vias(segs []cause.Segment) [][]Via {
	out := make([][]Via, len(segs))
	var chain []Via // most segments were reached as the one before
	last := ChainID(-1)
	for i := range segs {
		if segs[i].FollowedWait >= 0 {
			if id := s.chains[segs[i].FollowedWait]; id != last {
				last, chain = id, s.IDs.Chain(id)
			}
			out[i] = chain
		}
	}
	return out
}
