package inspect

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// A Query selects requests. The zero value selects all, ordered by time.
type Query struct {
	Group      string // id of their group
	Cause      string // a cause that took at least MinShare of their latency, and some time
	MinShare   float64
	From, To   int64 // they started in [From, To); a To of 0 is the end
	Min, Max   int64 // their latency is in [Min, Max]; a Max of 0 is no bound
	Goroutine  uint64
	OnlyOpen   bool
	Function   string // their critical paths show it: see Trace.Functions
	Sort       string // time, latency, group, goroutine, or a cause's name
	Descending bool
	Offset     int
	Limit      int
}

// A Row summarizes one request.
type Row struct {
	N         int          `json:"n"` // the request's number: see Trace.Request
	ID        string       `json:"id"`
	StartNS   int64        `json:"start_ns"`
	LatencyNS int64        `json:"latency_ns"`
	Group     string       `json:"group"`
	Goroutine uint64       `json:"goroutine"`
	Open      bool         `json:"open,omitempty"`
	Cut       bool         `json:"cut,omitempty"`
	Causes    []CauseShare `json:"causes"` // by decreasing time
}

// A CauseShare is the time of one cause.
type CauseShare struct {
	Cause string `json:"cause"`
	NS    int64  `json:"ns"`
}

// A Page is a part of the requests that a query selects, with sums over all of them.
type Page struct {
	Total   int          `json:"total"`
	TotalNS int64        `json:"total_ns"` // sum of their latencies
	Causes  []CauseShare `json:"causes"`
	Offset  int          `json:"offset"`
	Rows    []Row        `json:"rows"`
}

// A QueryError reports an unknown name in a query.
type QueryError struct{ text string }

func (e *QueryError) Error() string { return e.text }

func queryError(format string, args ...any) error { return &QueryError{fmt.Sprintf(format, args...)} }

// MaxRows bounds the rows of one page.
const MaxRows = 500

type selection struct {
	rows    []int32
	totalNS int64
	causes  [cause.Limit]int64
}

// keyOf returns a function that returns the sort key of a row for an order: time, latency, group, goroutine, or the time of the cause with that name.
// Any other order is an error.
func (t *Trace) keyOf(order string) (func(row int32) uint64, error) {
	c := &t.index.requests
	switch order {
	case "time":
		return func(row int32) uint64 { return sortKey(c.start(row)) }, nil
	case "latency":
		return func(row int32) uint64 { return sortKey(c.latency(row)) }, nil
	case "group":
		return func(row int32) uint64 { return uint64(c.group(row)) }, nil
	case "goroutine":
		return c.goroutine, nil
	}
	k, ok := cause.ByName(order)
	if !ok {
		return nil, queryError("requests cannot be sorted by %q: there are time, latency, group, goroutine and the causes", order)
	}
	return func(row int32) uint64 { return sortKey(c.causeTime(row, k)) }, nil
}

// selectRequests returns the rows that a query selects, in its order but not reversed, with sums over them, from the cache if possible. The result is
// shared and must not be changed.
func (t *Trace) selectRequests(ctx context.Context, q Query) (*selection, error) {
	q.Sort = cmp.Or(q.Sort, "time")
	q.Offset, q.Limit, q.Descending = 0, 0, false // fields of a page, not of the selection
	var touched bitset
	if q.Function != "" {
		var err error
		if touched, err = t.requestsShowing(ctx, q.Function); err != nil {
			return nil, err
		}
	}
	return t.selections.getOrMake(ctx, q, func() (*selection, error) {
		key, err := t.keyOf(q.Sort)
		if err != nil {
			return nil, err
		}
		keep, err := t.filter(q, touched)
		if err != nil {
			return nil, err
		}
		s := &selection{}
		for row := range int32(t.index.requests.rows()) {
			if row&0xffff == 0 && ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if !keep(row) {
				continue
			}
			s.rows = append(s.rows, row)
			s.totalNS += t.index.requests.latency(row)
			t.index.requests.eachCauseTime(row, func(k cause.Cause, ns int64) { s.causes[k] += ns })
		}
		sortRows(s.rows, key)
		return s, nil
	})
}

// filter returns a function that reports whether a query selects a row. showing has the rows whose critical paths show the query's function, if it
// names one.
func (t *Trace) filter(q Query, showing bitset) (func(row int32) bool, error) {
	c := &t.index.requests
	group := int32(-1)
	if q.Group != "" {
		i, ok := slices.BinarySearch(c.ids, q.Group)
		if !ok {
			return nil, queryError("there is no group %.40q", q.Group)
		}
		group = int32(i)
	}
	var k cause.Cause
	if q.Cause != "" {
		var ok bool
		if k, ok = cause.ByName(q.Cause); !ok {
			return nil, queryError("there is no cause %.40q: there are %s", q.Cause, words.List(report.Causes()[:cause.Count]))
		}
	}
	return func(row int32) bool {
		lat := c.latency(row)
		if lat < q.Min || q.Max > 0 && lat > q.Max || group >= 0 && c.group(row) != group {
			return false
		}
		if start := c.start(row) - t.start; start < q.From || q.To > 0 && start >= q.To {
			return false
		}
		if q.Goroutine != 0 && c.goroutine(row) != q.Goroutine || q.OnlyOpen && c.flags(row)&flagOpen == 0 {
			return false
		}
		if q.Function != "" && !showing.contains(row) {
			return false
		}
		if q.Cause != "" {
			ns := c.causeTime(row, k)
			return ns > 0 && float64(ns) >= q.MinShare*float64(lat)
		}
		return true
	}, nil
}

// Requests returns a page of the requests that a query selects, and sums over all of them.
func (t *Trace) Requests(ctx context.Context, q Query) (*Page, error) {
	s, err := t.selectRequests(ctx, q)
	if err != nil {
		return nil, err
	}
	n := len(s.rows)
	p := &Page{Total: n, TotalNS: s.totalNS, Causes: causeShares(s.causes), Offset: min(max(q.Offset, 0), n), Rows: []Row{}}
	for i := range pagePositions(n, q.Offset, q.Limit, q.Descending) {
		p.Rows = append(p.Rows, t.row(s.rows[i]))
	}
	return p, nil
}

// pagePositions yields the positions, in a list of n rows in increasing order, of the rows of a page: at most limit rows from
// offset on, counted from the end of the list if descending is set.
func pagePositions(n, offset, limit int, descending bool) iter.Seq[int] {
	return func(yield func(int) bool) {
		from := min(max(offset, 0), n)
		for i := from; i < min(from+min(max(limit, 0), MaxRows), n); i++ {
			if descending && !yield(n-1-i) || !descending && !yield(i) {
				return
			}
		}
	}
}

// Row returns the summary of request n; n must be the N of a page's row.
func (t *Trace) Row(n int) Row { return t.row(int32(n)) }

// row returns the summary of a row.
func (t *Trace) row(row int32) Row {
	c := &t.index.requests
	r := Row{
		N: int(row), StartNS: c.start(row) - t.start, LatencyNS: c.latency(row), Group: c.ids[c.group(row)], Goroutine: c.goroutine(row),
		Open: c.flags(row)&flagOpen != 0, Cut: c.flags(row)&flagCut != 0, Causes: causeShares(c.causeTimes(row)),
	}
	r.ID = spell.RequestID(r.Group, r.StartNS, r.Goroutine)
	return r
}

// causeShares lists the causes with a time (ns, by cause) by decreasing time.
func causeShares(ns [cause.Limit]int64) []CauseShare {
	out := []CauseShare{}
	for k, v := range ns {
		if v > 0 {
			out = append(out, CauseShare{cause.Cause(k).String(), v})
		}
	}
	slices.SortFunc(out, func(a, b CauseShare) int { return cmp.Or(cmp.Compare(b.NS, a.NS), cmp.Compare(a.Cause, b.Cause)) })
	return out
}

// Find returns the row of the request with an id; ok is false if there is none.
func (t *Trace) Find(id string) (n int, ok bool) {
	c := &t.index.requests
	for i := range int32(c.rows()) {
		if spell.RequestID(c.ids[c.group(i)], c.start(i)-t.start, c.goroutine(i)) == id {
			return int(i), true
		}
	}
	return 0, false
}

// Position returns how many of the requests that a query selects precede request n, and the numbers of the
// requests before and after it, -1 for none. All are -1 if the query does not select n.
func (t *Trace) Position(ctx context.Context, q Query, n int) (position, previous, next int, err error) {
	s, err := t.selectRequests(ctx, q)
	if err != nil {
		return 0, 0, 0, err
	}
	i := slices.Index(s.rows, int32(n))
	if i < 0 {
		return -1, -1, -1, nil
	}
	neighbour := func(k int) int {
		if k < 0 || k >= len(s.rows) {
			return -1
		}
		return int(s.rows[k])
	}
	previous, next = neighbour(i-1), neighbour(i+1)
	if q.Descending {
		return len(s.rows) - 1 - i, next, previous, nil
	}
	return i, previous, next, nil
}
