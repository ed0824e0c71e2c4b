package view

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/viewer/inspect"
	"github.com/whylate/whylate/report"
)

// strips answers /api/strips with a tile: the states of up to inspect.MaxLanes lanes in an interval.
func (s *Server) strips(r *http.Request) (any, error) {
	p := newParameters(r)
	t := inspect.Tile{From: p.number("from", 0), To: p.number("to", 0), Buckets: int(p.upTo("buckets", 512, inspect.MaxBuckets)), Patience: patience}
	for _, kind := range laneKinds {
		for _, id := range p.ids(kind.parameter, inspect.MaxLanes) {
			t.Lanes = append(t.Lanes, inspect.Lane{Kind: kind.kind, ID: id})
		}
	}
	switch {
	case p.err != nil:
		return nil, p.err
	case len(t.Lanes) > inspect.MaxLanes:
		return nil, newParameterError("g", fmt.Sprintf("at most %d lanes at a time", inspect.MaxLanes))
	case t.Buckets < 1:
		return nil, newParameterError("buckets", "at least one")
	case t.To <= t.From:
		return nil, newParameterError("to", "must lie after from")
	}
	strips, err := s.trace.Strips(r.Context(), t)
	if err != nil {
		return nil, err
	}
	return s.tileAnswer(strips, t.Buckets), nil
}

// tileJSON is the compact answer to a tile. Texts and sites are numbered; 0 is none.
type tileJSON struct {
	From     int64          `json:"from"`
	To       int64          `json:"to"`
	BucketNS int64          `json:"bucket_ns"`
	Strips   []stripJSON    `json:"strips"`
	Texts    []string       `json:"texts"`
	Sites    []*report.Site `json:"sites"`
	Missing  [][2]int64     `json:"missing,omitempty"`
}

// stripJSON is the strip of a P, a goroutine, a goroutine's threads or a CPU. Each piece is six numbers: offset from the tile's start, length,
// state, goroutine, text, site. The text is a reason or, for a P, the name of the goroutine. Sums are bytes, one
// for each state and bucket, 255 for the whole bucket.
type stripJSON struct {
	P      *uint64 `json:"p,omitempty"`
	G      *uint64 `json:"g,omitempty"`
	T      *uint64 `json:"t,omitempty"`
	C      *uint64 `json:"c,omitempty"`
	Sums   []byte  `json:"sums,omitempty"`
	Pieces []int64 `json:"pieces,omitzero"`
}

// A numbering numbers the keys that occur and lists their values; the zero key has number 0.
type numbering[K comparable, V any] struct {
	valueOf func(K) V
	numbers map[K]int
	list    []V
}

// newNumbering returns a numbering that lists the values which valueOf returns for keys.
func newNumbering[K comparable, V any](valueOf func(K) V) *numbering[K, V] {
	n := &numbering[K, V]{valueOf: valueOf, numbers: map[K]int{}}
	n.numberOf(*new(K))
	return n
}

// numberOf returns the number of a key, a new one if the key has none.
func (n *numbering[K, V]) numberOf(key K) int64 {
	k, ok := n.numbers[key]
	if !ok {
		k = len(n.list)
		n.numbers[key] = k
		n.list = append(n.list, n.valueOf(key))
	}
	return int64(k)
}

// tileAnswer converts strips, of which sums have the given number of buckets, to the compact answer: sites, names and texts are numbered, and each is
// written once.
func (s *Server) tileAnswer(in *inspect.Strips, buckets int) *tileJSON {
	textOf := func(id tracefmt.StringID) string {
		text := s.trace.String(id)
		return cmp.Or(spell.PeerText(text), text)
	}
	texts, sites := newNumbering(textOf), newNumbering(s.trace.Site)
	out := &tileJSON{From: in.From, To: in.To, BucketNS: in.BucketNS, Strips: make([]stripJSON, len(in.Strips)), Missing: in.Missing}
	for i := range in.Strips {
		st, to := &in.Strips[i], &out.Strips[i]
		*[...]**uint64{inspect.GoroutineLane: &to.G, inspect.ProcLane: &to.P, inspect.ThreadLane: &to.T, inspect.CPULane: &to.C}[st.Lane.Kind] = &st.Lane.ID
		if st.Sums != nil {
			to.Sums = quantized(in, st.Sums, buckets)
			continue
		}
		to.Pieces = make([]int64, 0, 6*len(st.Pieces))
		for k := range st.Pieces {
			p := &st.Pieces[k]
			text := p.Reason
			if st.Lane.Kind == inspect.ProcLane {
				text = s.trace.NameOf(p.G)
			}
			to.Pieces = append(to.Pieces, p.From-in.From, p.To-p.From, int64(p.State-timeline.Running), int64(p.G), texts.numberOf(text), sites.numberOf(p.Site))
		}
	}
	out.Texts, out.Sites = texts.list, sites.list
	return out
}

// quantized converts the sums of a strip to bytes, state by state and bucket by bucket: 255 is the whole width of a bucket. A sum above 0 becomes at
// least 1.
func quantized(in *inspect.Strips, sums *inspect.Sums, buckets int) []byte {
	out := make([]byte, 0, len(sums)*buckets)
	for _, bs := range sums {
		for k, ns := range bs {
			width := min(in.BucketNS, max(in.To-in.From-int64(k)*in.BucketNS, 0))
			v := int64(0)
			if ns > 0 && width > 0 {
				v = min(max(ns*255/width, 1), 255)
			}
			out = append(out, byte(v))
		}
	}
	return out
}
