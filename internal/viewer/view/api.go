package view

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/internal/viewer/inspect"
	"github.com/whylate/whylate/report"
)

// facts answers /api/facts with the facts of the trace (inspect.Facts).
func (s *Server) facts(*http.Request) (any, error) { return s.trace.Facts(), nil }

// query returns the query for requests in the parameters; p.err is set if one of them is invalid.
func query(p *parameters) inspect.Query {
	return inspect.Query{
		Group: p.text("group"), Cause: p.text("cause"), MinShare: p.share("share"),
		From: p.number("from", 0), To: p.number("to", 0), Min: p.number("min", 0), Max: p.number("max", 0),
		Goroutine: p.id("goroutine"), OnlyOpen: p.flag("open"), Function: p.text("function"),
		Sort: p.text("sort"), Descending: p.flag("desc"), Offset: p.offset(), Limit: p.limit(),
	}
}

// requests answers /api/requests with a page of requests.
func (s *Server) requests(r *http.Request) (any, error) {
	p := newParameters(r)
	q := query(p)
	if p.err != nil {
		return nil, p.err
	}
	page, err := s.trace.Requests(r.Context(), q)
	return page, asParameterError(err)
}

// An openedRequest is a request in full, with its position among the requests that a query selects.
type openedRequest struct {
	Request  *report.Request `json:"request"`
	Group    string          `json:"group"`
	N        int             `json:"n"`
	Position int             `json:"position"` // -1 if the query does not select it
	Before   int             `json:"before"`   // numbers of the requests before and after it, -1 for none
	After    int             `json:"after"`
}

// request answers /api/request with one request in full, by number or id, with its group and its neighbours among the requests that
// the query selects.
func (s *Server) request(r *http.Request) (any, error) {
	p := newParameters(r)
	q := query(p)
	n, id := p.number("n", -1), p.text("id")
	if p.err != nil {
		return nil, p.err
	}
	if id != "" {
		k, ok := s.trace.Find(id)
		if !ok {
			return nil, newParameterError("id", "there is no request with this id")
		}
		n = int64(k)
	}
	if n < 0 || n >= int64(s.trace.Facts().Requests) {
		return nil, newParameterError("n", "there is no request of this number")
	}
	out := openedRequest{N: int(n)}
	var err error
	if out.Request, err = s.trace.Request(r.Context(), int(n)); err != nil {
		return nil, err
	}
	out.Group = s.trace.Row(int(n)).Group
	out.Position, out.Before, out.After, err = s.trace.Position(r.Context(), q, int(n))
	return out, asParameterError(err)
}

// goroutines answers /api/goroutines with a page of goroutines, or with those whose ids are given.
func (s *Server) goroutines(r *http.Request) (any, error) {
	p := newParameters(r)
	ids := p.ids("ids", inspect.MaxLanes)
	q := inspect.GoroutineQuery{
		From: p.number("from", 0), To: p.number("to", 0), Function: p.text("function"), OnStack: p.flag("stack"), Exact: p.flag("exact"),
		Sort: p.text("sort"), Descending: p.flag("desc"), Offset: p.offset(), Limit: p.limit(),
	}
	if p.err != nil {
		return nil, p.err
	}
	if len(ids) > 0 {
		list := s.trace.DescribeGoroutines(ids)
		return map[string]any{"total": len(list), "offset": 0, "rows": list}, nil
	}
	list, total, err := s.trace.Goroutines(r.Context(), q)
	return map[string]any{"total": total, "offset": q.Offset, "rows": list}, err
}

// functions answers /api/functions with the functions whose names contain a text.
func (s *Server) functions(r *http.Request) (any, error) {
	p := newParameters(r)
	text, limit := p.text("q"), p.upTo("limit", 20, 200)
	if p.err != nil {
		return nil, p.err
	}
	list, total := s.trace.Functions(text, int(limit))
	return map[string]any{"total": total, "functions": list}, nil
}

// functionOrders are the orders of sums by function.
var functionOrders = map[string]func(a, b *inspect.FunctionSum) int{
	"name":       func(a, b *inspect.FunctionSum) int { return cmp.Compare(a.Name, b.Name) },
	"goroutines": func(a, b *inspect.FunctionSum) int { return cmp.Compare(a.Goroutines, b.Goroutines) },
	"running":    func(a, b *inspect.FunctionSum) int { return cmp.Compare(a.RunningNS, b.RunningNS) },
	"runnable":   func(a, b *inspect.FunctionSum) int { return cmp.Compare(a.RunnableNS, b.RunnableNS) },
	"waiting":    func(a, b *inspect.FunctionSum) int { return cmp.Compare(a.WaitingNS, b.WaitingNS) },
	"syscall":    func(a, b *inspect.FunctionSum) int { return cmp.Compare(a.SyscallNS, b.SyscallNS) },
}

// byFunction answers /api/byfunction with a page of sums by start function.
func (s *Server) byFunction(r *http.Request) (any, error) {
	p := newParameters(r)
	from, to := p.number("from", 0), p.number("to", 0)
	sort, down := p.text("sort"), p.flag("desc")
	offset, limit := p.offset(), p.limit()
	compare, ok := functionOrders[cmp.Or(sort, "running")]
	if !ok {
		p.fail("sort", "there are %s", words.List(slices.Sorted(maps.Keys(functionOrders))))
	}
	if p.err != nil {
		return nil, p.err
	}
	sums, err := s.trace.ByFunction(r.Context(), from, to)
	if err != nil {
		return nil, err
	}
	sums = slices.Clone(sums)
	slices.SortStableFunc(sums, func(a, b inspect.FunctionSum) int {
		if down {
			return compare(&b, &a)
		}
		return compare(&a, &b)
	})
	offset = min(offset, len(sums))
	return map[string]any{"total": len(sums), "offset": offset, "rows": sums[offset:min(offset+limit, len(sums))]}, nil
}

// areaParameters returns the parameters of an area of goroutines' lanes: from and to (ns since the trace's start), and the
// goroutines' ids.
func areaParameters(r *http.Request) (from, to int64, ids []uint64, err error) {
	p := newParameters(r)
	from, to, ids = p.number("from", 0), p.number("to", 0), p.ids("g", inspect.MaxLanes)
	if p.err == nil && to <= from {
		return 0, 0, nil, newParameterError("to", "must lie after from")
	}
	return from, to, ids, p.err
}

// area answers /api/area with the sums of an area by state, reason and site.
func (s *Server) area(r *http.Request) (any, error) {
	from, to, ids, err := areaParameters(r)
	if err != nil {
		return nil, err
	}
	sums, err := s.trace.Area(r.Context(), from, to, ids)
	return map[string]any{"from_ns": from, "to_ns": to, "goroutines": ids, "sums": sums}, err
}

// areaStacks answers /api/areastacks with the stacks of an area, as a tree.
func (s *Server) areaStacks(r *http.Request) (any, error) {
	from, to, ids, err := areaParameters(r)
	if err != nil {
		return nil, err
	}
	return s.trace.AreaStacks(r.Context(), from, to, ids)
}

// laneKinds are the kinds of lanes, with the parameter that has their ids.
var laneKinds = []struct {
	parameter string
	kind      inspect.LaneKind
}{{"p", inspect.ProcLane}, {"g", inspect.GoroutineLane}, {"t", inspect.ThreadLane}, {"c", inspect.CPULane}}

// annotations answers /api/annotations with the regions and log messages of goroutines in an interval, at most 4000 of them.
func (s *Server) annotations(r *http.Request) (any, error) {
	p := newParameters(r)
	from, to, shortest, ids := p.number("from", 0), p.number("to", 0), p.number("min", 0), p.ids("g", inspect.MaxLanes)
	if p.err != nil {
		return nil, p.err
	}
	list, all := s.trace.AnnotationsIn(from, to, shortest, ids, 4000)
	return map[string]any{"rows": list, "all": all}, nil
}

// patience bounds the time in which one answer decodes generations; the page requests missing intervals again.
const patience = 150 * time.Millisecond

// moment answers /api/moment with the state of a lane at the time t (ns from the trace's start): of goroutine g or, without g, of
// the P with number p. It is null if the lane has no state then.
func (s *Server) moment(r *http.Request) (any, error) {
	p := newParameters(r)
	instant := p.number("t", -1)
	lane := inspect.Lane{ID: p.id("g")}
	if lane.ID == 0 {
		lane = inspect.Lane{Kind: inspect.ProcLane, ID: uint64(p.upTo("p", 0, 1<<32-1))}
	}
	if p.err != nil {
		return nil, p.err
	}
	if instant < 0 {
		return nil, newParameterError("t", "name a time of the trace, in ns from its start")
	}
	m, err := s.trace.MomentAt(r.Context(), lane, instant)
	return map[string]any{"moment": m}, err
}
