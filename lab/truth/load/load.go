// Package load sends requests to the catalog's services and times each of them. It runs in another process than the service,
// so its clock is an independent source of truth about what a trace of the server shows.
package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// Target is one kind of request.
type Target struct {
	URL    string // for gRPC: host:port/METHOD
	Name   string // results are grouped by it
	Weight int
	Slow   bool
	Client string // as catalog.Path
}

// Options configure Run.
type Options struct {
	Proto    string // http1, h2, grpc
	Targets  []Target
	Duration time.Duration // no request starts after it
	// Rate, if not 0, selects an open loop: requests are due at the times of a Poisson process with this rate a second,
	// whatever happened to earlier ones, and Conns connections are opened in advance. Otherwise Conns clients send, wait and
	// pause (Rest).
	Rate  float64
	Conns int
	Rest  time.Duration
	Seed  uint64 // of the order and the due times
}

// Request is one request, timed by the client's monotonic clock in nanoseconds since Result.Start.
type Request struct {
	Name     string `json:"name"`
	Slow     bool   `json:"slow"`
	Due      int64  `json:"due_ns"`   // open loop: when it should have started; closed loop: as Start
	Start    int64  `json:"start_ns"` // just before the first byte was written
	First    int64  `json:"first_ns"` // arrival of the first byte of the answer; 0 if unknown
	End      int64  `json:"end_ns"`   // arrival of the whole answer
	Status   int    `json:"status"`
	BlamedNS int64  `json:"blamed_ns,omitempty"` // the part that the fault took, by the service's clock
	Err      string `json:"err,omitempty"`
}

// Latency returns the time from Start to End.
func (r *Request) Latency() time.Duration { return time.Duration(r.End - r.Start) }

// Summary has the latencies of a set of successful requests.
type Summary struct {
	Count    int   `json:"count"`
	Failed   int   `json:"failed"`
	MeanNS   int64 `json:"mean_ns"`
	MinNS    int64 `json:"min_ns"`
	P10NS    int64 `json:"p10_ns"`
	P50NS    int64 `json:"p50_ns"`
	P90NS    int64 `json:"p90_ns"`
	P99NS    int64 `json:"p99_ns"`
	MaxNS    int64 `json:"max_ns"`
	DueP99NS int64 `json:"due_p99_ns"` // of the latency since the due time
	// Share is the share of these requests' time that the fault took, by the service's clock.
	Share float64 `json:"share"`
}

// Result has the requests of a run and their summaries.
type Result struct {
	Start    time.Time           `json:"start"` // wall clock at the origin of all times
	Proto    string              `json:"proto"`
	All      Summary             `json:"all"`
	Slow     Summary             `json:"slow"` // requests of the slow group
	ByName   map[string]*Summary `json:"by_name"`
	Requests []Request           `json:"requests,omitempty"`
}

// Summarize summarizes the requests that keep selects. Percentiles are by nearest rank, without interpolation.
func Summarize(reqs []Request, keep func(*Request) bool) Summary {
	var s Summary
	var lat, due []int64
	var total, blamed int64
	for i := range reqs {
		r := &reqs[i]
		if !keep(r) {
			continue
		}
		if r.Err != "" {
			s.Failed++
			continue
		}
		lat = append(lat, r.End-r.Start)
		due = append(due, r.End-r.Due)
		total += r.End - r.Start
		blamed += r.BlamedNS
	}
	if s.Count = len(lat); s.Count == 0 {
		return s
	}
	slices.Sort(lat)
	slices.Sort(due)
	s.MeanNS = total / int64(len(lat))
	s.MinNS, s.P10NS = lat[0], percentile(lat, 0.10)
	s.P50NS, s.P90NS, s.P99NS, s.MaxNS = percentile(lat, 0.50), percentile(lat, 0.90), percentile(lat, 0.99), lat[len(lat)-1]
	s.DueP99NS = percentile(due, 0.99)
	if total > 0 {
		s.Share = float64(blamed) / float64(total)
	}
	return s
}

func percentile(sorted []int64, q float64) int64 {
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// response is the result of one exchange.
type response struct {
	first  time.Time
	status int
	blamed int64
}

// client sends requests over one connection; one goroutine uses it at a time.
type client interface {
	do(ctx context.Context, t *Target) (start time.Time, a response, err error)
	close() error
}

// Run sends requests as configured and returns their times.
func Run(ctx context.Context, options Options) (*Result, error) {
	if len(options.Targets) == 0 {
		return nil, errors.New("load: nothing to ask for; give at least one path")
	}
	if options.Conns < 1 {
		options.Conns = 1
	}
	dial, shutdown, err := dialer(options)
	if err != nil {
		return nil, err
	}
	defer shutdown()
	g := &generator{options: options, dial: dial}
	conns := make([]client, options.Conns)
	for i := range conns {
		if conns[i], err = dial(); err != nil {
			return nil, fmt.Errorf("load: connecting: %w", err)
		}
	}
	g.start = time.Now()
	ctx, cancel := context.WithTimeout(ctx, options.Duration+time.Minute) // a request that hangs for a minute ends the run
	defer cancel()
	if options.Rate > 0 {
		g.openLoop(ctx, conns)
	} else {
		g.closedLoop(ctx, conns)
	}
	return g.result(), nil
}

func dialer(options Options) (dial func() (client, error), shutdown func(), err error) {
	switch options.Proto {
	case "http1":
		return func() (client, error) { return new(http1Client), nil }, func() {}, nil
	case "h2":
		return h2Dialer()
	case "grpc":
		host, _, _ := strings.Cut(options.Targets[0].URL, "/")
		return grpcDialer(host)
	}
	return nil, nil, fmt.Errorf("load: no protocol %q; there are http1, h2 and grpc", options.Proto)
}

type generator struct {
	options Options
	dial    func() (client, error)
	start   time.Time

	mu   sync.Mutex
	reqs []Request
}

// targetOrder returns the targets' indices, each as often as its weight, in random order. Every connection starts at another
// index.
func (g *generator) targetOrder() []int {
	var order []int
	for i, t := range g.options.Targets {
		for range max(1, t.Weight) {
			order = append(order, i)
		}
	}
	rnd := rand.New(rand.NewPCG(g.options.Seed, 1))
	rnd.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}

func (g *generator) sendOne(ctx context.Context, c client, t *Target, due time.Time) error {
	start, a, err := c.do(ctx, t)
	end := time.Now()
	if due.IsZero() {
		due = start
	}
	r := Request{Name: t.Name, Slow: t.Slow, Due: int64(due.Sub(g.start)), Start: int64(start.Sub(g.start)), End: int64(end.Sub(g.start)), Status: a.status, BlamedNS: a.blamed}
	if !a.first.IsZero() {
		r.First = int64(a.first.Sub(g.start))
	}
	if err == nil && a.status != 200 {
		err = fmt.Errorf("status %d", a.status)
	}
	if err != nil {
		r.Err = err.Error()
	}
	g.mu.Lock()
	g.reqs = append(g.reqs, r)
	g.mu.Unlock()
	return err
}

// closedLoop runs one client per connection. After a failure it opens a new connection.
func (g *generator) closedLoop(ctx context.Context, conns []client) {
	order := g.targetOrder()
	var wg sync.WaitGroup
	for i, c := range conns {
		wg.Go(func() {
			defer func() { c.close() }()
			rnd := rand.New(rand.NewPCG(g.options.Seed, uint64(i)))
			for k := i; ctx.Err() == nil && time.Since(g.start) < g.options.Duration; k++ {
				if err := g.sendOne(ctx, c, &g.options.Targets[order[k%len(order)]], time.Time{}); err != nil {
					c.close()
					if c, err = g.dial(); err != nil {
						return
					}
				}
				if g.options.Rest > 0 { // 0.5 to 1.5 times the pause, so that clients do not synchronize
					time.Sleep(g.options.Rest/2 + time.Duration(rnd.Int64N(int64(g.options.Rest))))
				}
			}
		})
	}
	wg.Wait()
}

// openLoop starts each request when it is due, on a free connection or a new one.
func (g *generator) openLoop(ctx context.Context, conns []client) {
	order := g.targetOrder()
	free := make(chan client, 4096)
	for _, c := range conns {
		free <- c
	}
	rnd := rand.New(rand.NewPCG(g.options.Seed, 2))
	var wg sync.WaitGroup
	next := g.start
	for k := 0; ; k++ {
		next = next.Add(time.Duration(rnd.ExpFloat64() / g.options.Rate * float64(time.Second)))
		due := next
		if due.Sub(g.start) > g.options.Duration || ctx.Err() != nil {
			break
		}
		time.Sleep(time.Until(due))
		t := &g.options.Targets[order[k%len(order)]]
		wg.Go(func() {
			var c client
			select {
			case c = <-free:
			default:
				var err error
				if c, err = g.dial(); err != nil {
					return
				}
			}
			if g.sendOne(ctx, c, t, due) != nil {
				c.close()
				return
			}
			select {
			case free <- c:
			default:
				c.close()
			}
		})
	}
	wg.Wait()
	close(free)
	for c := range free {
		c.close()
	}
}

func (g *generator) result() *Result {
	g.mu.Lock()
	defer g.mu.Unlock()
	slices.SortFunc(g.reqs, func(a, b Request) int { return int(a.Start - b.Start) })
	res := &Result{Start: g.start, Proto: g.options.Proto, Requests: g.reqs, ByName: map[string]*Summary{}}
	res.All = Summarize(g.reqs, func(*Request) bool { return true })
	res.Slow = Summarize(g.reqs, func(r *Request) bool { return r.Slow })
	for _, t := range g.options.Targets {
		s := Summarize(g.reqs, func(r *Request) bool { return r.Name == t.Name })
		res.ByName[t.Name] = &s
	}
	return res
}
