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
	sums       map[CauseID]int64
	best       request.Handler
	segments   []cause.Segment
	vias       [][]Via
	gap, ready int64
	borders    []int64
}

// maxParted bounds the segments kept of one long request.
const maxParted = 10000

// keep adds a piece to its request's partial.
func (s *Stage) keep(w *Walked) {
	r := w.Req
	p := s.parts[r.Key]
	if p == nil {
		p = &partial{start: r.Start, sums: make(map[CauseID]int64), ready: w.Ready, gap: w.Gap}
		s.parts[r.Key] = p
	}
	if s.best.Rank > p.best.Rank {
		p.best = s.best
	}
	p.best.Observer = p.best.Observer || s.best.Observer
	for _, sum := range w.Sums {
		p.sums[sum.Cause] += sum.NS
	}
	if len(p.segments) < maxParted {
		p.segments = append(p.segments, w.Segments...)
		p.vias = append(p.vias, s.vias(w.Segments)...)
	}
	if r.Part == request.Middle {
		p.borders = append(p.borders, r.End)
	}
}

// Join returns the whole request whose last part was walked just before. The
// result is valid until the next call of Walk; what it holds of the pieces stays
// valid.
func (s *Stage) Join(r *request.Request) *Walked {
	p := s.parts[r.Key]
	delete(s.parts, r.Key)
	s.best = p.best
	s.walked = Walked{
		Req: r, Form: Joint, Weight: 1, Start: p.start, From: p.start, Observer: p.best.Observer, Several: s.several,
		Segments: p.segments, Ready: p.ready, Gap: p.gap, Borders: p.borders, vias: p.vias, stage: s,
	}
	w := &s.walked
	if w.Observer {
		return w
	}
	for id, ns := range p.sums {
		w.Sums = append(w.Sums, Sum{id, ns})
	}
	slices.SortFunc(w.Sums, func(a, b Sum) int { return cmp.Compare(a.Cause, b.Cause) })
	w.Group, w.Entry = s.group(r)
	return w
}

// internVias numbers the chains of waits of the walk that was made last.
func (s *Stage) internVias() {
	s.chains = s.chains[:0]
	for i := range s.walker.Vias {
		v := &s.walker.Vias[i]
		parent := ChainID(0)
		if v.Parent >= 0 {
			parent = s.chains[v.Parent]
		}
		s.chains = append(s.chains, s.IDs.chain(viaKey{parent, Via{v.Wait, s.Sites.Of(v.Stack), s.Sites.Call(v.Stack)}}))
	}
}

// ChainOf returns the chain of waits that led to a segment of the walk that was
// made last.
func (w *Walked) ChainOf(seg *cause.Segment) ChainID { return w.stage.chains[seg.Via] }

// ChainOfStep returns the chain of waits that led to a step of the walk that was
// made last.
func (w *Walked) ChainOfStep(st *critpath.Step) ChainID {
	if st.Via < 0 {
		return 0
	}
	return w.stage.chains[st.Via]
}

func (s *Stage) vias(segs []cause.Segment) [][]Via {
	out := make([][]Via, len(segs))
	for i := range segs {
		if segs[i].Via >= 0 {
			out[i] = s.IDs.Chain(s.chains[segs[i].Via])
		}
	}
	return out
}
