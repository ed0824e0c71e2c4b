package view

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/viewer/inspect"
	"github.com/whylate/whylate/report"
)

func (s *Server) facts(*http.Request) (any, error) { return s.trace.Facts(), nil }

func (s *Server) query(p *parameters) inspect.Query {
	return inspect.Query{
		Group: p.text("group"), Cause: p.text("cause"), MinShare: p.share("share"),
		From: p.number("from", 0), To: p.number("to", 0), Min: p.number("min", 0), Max: p.number("max", 0),
		Goroutine: p.id("goroutine"), OnlyOpen: p.flag("open"), Function: p.text("function"),
		Sort: p.text("sort"), Descending: p.flag("desc"),
		Offset: int(p.upTo("offset", 0, 1<<31-1)), Limit: int(p.upTo("limit", 100, inspect.MaxRows)),
	}
}

func (s *Server) requests(r *http.Request) (any, error) {
	p := newParameters(r)
	q := s.query(p)
	if p.err != nil {
		return nil, p.err
	}
	page, err := s.trace.Requests(r.Context(), q)
	return page, ask(r, err)
}

// opened is a request in full, and its place among those that a query selects.
type opened struct {
	Request  *report.Request `json:"request"`
	Group    string          `json:"group"`
	N        int             `json:"n"`
	Position int             `json:"position"` // -1: not among them
	Before   int             `json:"before"`   // the numbers of its neighbours, -1 for none
	After    int             `json:"after"`
}

func (s *Server) request(r *http.Request) (any, error) {
	p := newParameters(r)
	q := s.query(p)
	n, id := p.number("n", -1), p.text("id")
	if p.err != nil {
		return nil, p.err
	}
	if id != "" {
		k, ok := s.trace.Find(id)
		if !ok {
			return nil, wrong("id", "there is no request with this id")
		}
		n = int64(k)
	}
	if n < 0 || n >= int64(s.trace.Facts().Requests) {
		return nil, wrong("n", "there is no request of this number")
	}
	out := opened{N: int(n)}
	var err error
	if out.Request, err = s.trace.Request(r.Context(), int(n)); err != nil {
		return nil, err
	}
	out.Group = s.trace.Row(int(n)).Group
	out.Position, out.Before, out.After, err = s.trace.Position(r.Context(), q, int(n))
	return out, ask(r, err)
}

func (s *Server) goroutines(r *http.Request) (any, error) {
	p := newParameters(r)
	ids := p.ids("ids", inspect.MaxLanes)
	q := inspect.GoroutineQuery{
		From: p.number("from", 0), To: p.number("to", 0), Function: p.text("function"), OnStack: p.flag("stack"),
		Sort: p.text("sort"), Descending: p.flag("desc"), Offset: int(p.upTo("offset", 0, 1<<31-1)), Limit: int(p.upTo("limit", 100, inspect.MaxRows)),
	}
	if p.err != nil {
		return nil, p.err
	}
	if len(ids) > 0 {
		list := s.trace.Named(ids)
		return map[string]any{"total": len(list), "offset": 0, "rows": list}, nil
	}
	list, total, err := s.trace.Goroutines(r.Context(), q)
	return map[string]any{"total": total, "offset": q.Offset, "rows": list}, err
}

func (s *Server) functions(r *http.Request) (any, error) {
	p := newParameters(r)
	text, limit := p.text("q"), p.upTo("limit", 20, 200)
	if p.err != nil {
		return nil, p.err
	}
	list, total := s.trace.Functions(text, int(limit))
	return map[string]any{"total": total, "functions": list}, nil
}

// patience is how long one answer may decode generations; the page asks again
// for what it did not get.
const patience = 150 * time.Millisecond

func (s *Server) strips(r *http.Request) (any, error) {
	p := newParameters(r)
	t := inspect.Tile{From: p.number("from", 0), To: p.number("to", 0), Buckets: int(p.upTo("buckets", 512, inspect.MaxBuckets)), Patience: patience}
	for _, id := range p.ids("p", inspect.MaxLanes) {
		t.Lanes = append(t.Lanes, inspect.Lane{Proc: true, ID: id})
	}
	for _, id := range p.ids("g", inspect.MaxLanes) {
		t.Lanes = append(t.Lanes, inspect.Lane{ID: id})
	}
	switch {
	case p.err != nil:
		return nil, p.err
	case len(t.Lanes) > inspect.MaxLanes:
		return nil, wrong("g", fmt.Sprintf("at most %d lanes at a time", inspect.MaxLanes))
	case t.Buckets < 1:
		return nil, wrong("buckets", "at least one")
	case t.To <= t.From:
		return nil, wrong("to", "must lie after from")
	}
	strips, err := s.trace.Strips(r.Context(), t)
	if err != nil {
		return nil, err
	}
	return s.stripsJSON(strips, t.Buckets), nil
}

// stripsJSON writes strips briefly: pieces as rows of six numbers (offset from
// the tile's start, length, state, goroutine, text, site; text is a reason, or
// for a P the name of the goroutine), sums as bytes, one a state and bucket,
// 255 for all of it. Texts and sites are numbered; 0 is none.
func (s *Server) stripsJSON(in *inspect.Strips, buckets int) rawJSON {
	texts, sites := []string{""}, []*report.Site{nil}
	textAt, siteAt, nameAt := map[tracefmt.StringID]int{}, map[tracefmt.FrameID]int{}, map[uint64]int{}
	text := func(id tracefmt.StringID) int {
		if id == 0 {
			return 0
		}
		k, ok := textAt[id]
		if !ok {
			k = len(texts)
			textAt[id] = k
			texts = append(texts, s.trace.String(id))
		}
		return k
	}
	site := func(f tracefmt.FrameID) int {
		if f == 0 {
			return 0
		}
		k, ok := siteAt[f]
		if !ok {
			k = len(sites)
			siteAt[f] = k
			sites = append(sites, s.trace.Site(f))
		}
		return k
	}
	name := func(g uint64) int {
		k, ok := nameAt[g]
		if !ok {
			k = text(s.trace.NameOf(g))
			nameAt[g] = k
		}
		return k
	}
	b := []byte(`{"from":`)
	b = strconv.AppendInt(b, in.From, 10)
	b = append(b, `,"to":`...)
	b = strconv.AppendInt(b, in.To, 10)
	b = append(b, `,"bucket_ns":`...)
	b = strconv.AppendInt(b, in.BucketNS, 10)
	b = append(b, `,"strips":[`...)
	for i := range in.Strips {
		st := &in.Strips[i]
		if i > 0 {
			b = append(b, ',')
		}
		if st.Lane.Proc {
			b = append(b, `{"p":`...)
		} else {
			b = append(b, `{"g":`...)
		}
		b = strconv.AppendUint(b, st.Lane.ID, 10)
		if st.Sums != nil {
			b = append(b, `,"sums":"`...)
			b = base64.StdEncoding.AppendEncode(b, quantized(in, st.Sums, buckets))
			b = append(b, `"}`...)
			continue
		}
		b = append(b, `,"pieces":[`...)
		for k := range st.Pieces {
			p := &st.Pieces[k]
			if k > 0 {
				b = append(b, ',')
			}
			t := text(p.Reason)
			if st.Lane.Proc {
				t = name(p.G)
			}
			for n, v := range [...]int64{p.From - in.From, p.To - p.From, int64(p.State), int64(p.G), int64(t), int64(site(p.Site))} {
				if n > 0 {
					b = append(b, ',')
				}
				b = strconv.AppendInt(b, v, 10)
			}
		}
		b = append(b, `]}`...)
	}
	rest, err := json.Marshal(struct {
		Texts   []string       `json:"texts"`
		Sites   []*report.Site `json:"sites"`
		Missing [][2]int64     `json:"missing,omitempty"`
	}{texts, sites, in.Missing})
	if err != nil {
		return rawJSON(`{"error":"the answer cannot be written as JSON"}`)
	}
	b = append(b, "],"...)
	return append(b, rest[1:]...)
}

// quantized turns sums into bytes, state by state. What is more than nothing is
// at least 1.
func quantized(in *inspect.Strips, sums *[inspect.States][]int64, buckets int) []byte {
	out := make([]byte, 0, int(inspect.States)*buckets)
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

func (s *Server) moment(r *http.Request) (any, error) {
	p := newParameters(r)
	at := p.number("t", -1)
	lane := inspect.Lane{ID: p.id("g")}
	if lane.ID == 0 {
		lane = inspect.Lane{Proc: true, ID: uint64(p.upTo("p", 0, 1<<32-1))}
	}
	if p.err != nil {
		return nil, p.err
	}
	if at < 0 {
		return nil, wrong("t", "name a time of the trace, in ns from its start")
	}
	m, err := s.trace.At(r.Context(), lane, at)
	return map[string]any{"moment": m}, err
}
