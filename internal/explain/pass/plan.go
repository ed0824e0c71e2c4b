package pass

import (
	"cmp"
	"math/bits"
	"slices"
	"sync"

	"github.com/whylate/whylate/internal/explain/loglinear"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
)

// A plan says which requests of a generation are walked, and for how many each
// one stands. A service asks the same of its fast requests again and again, so
// a few of each group and latency tell where all such requests spend their time;
// what is slow is walked one and all. Weights are exact: those of a group's
// requests of like latency add up to how many there are (stratified sampling,
// Cochran, Sampling Techniques, 1977, chapter 5). Counts and latencies need no
// walk, and are those of all requests.
//
// Which are walked depends on the requests alone, not on the workers.
type plan struct {
	glances []path.Glance // by the order in which requests are walked
	weights []int32       // of those that are walked; 0: glanced at
	strata  map[stratum]int32
	groups  map[path.GroupKey]int32
	cells   []cellOf
	all     []groupOf
	at      []int32 // the cell of each request, -1: none
	over    []chosen
}

// A stratum is a group's requests of like latency.
type stratum struct {
	group  int32
	bucket int32
}

type cellOf struct {
	stratum
	n, walked, left int32
	least           uint64 // of the hashes, for a cell of which none was chosen
	first           int32
}

type chosen struct {
	chance uint64
	k      int32
}

type groupOf struct {
	n     int32
	exact int32 // latencies from this bucket on are walked one and all
}

// Bounds of sampling.
const (
	// leastPlanned requests of a generation are worth it.
	leastPlanned = 1000
	// latencyBits divide an octave of latency in four.
	latencyBits = 2
	// Of each stratum one in oneIn is walked, and at least fewest; of a group the
	// slowest exactPart are, and all if they are no more than small.
	oneIn     = 16
	fewest    = 16
	small     = 256
	exactPart = 0.12
)

// make decides about the requests of a generation, n in the order of at.
func (pl *plan) make(p *Pass, n int, at func(int) *request.Request) {
	pl.glance(p, n, at)
	pl.count(n, at, p.needs())
	pl.choose(n, at)
}

// needs returns whether a sum needs a request's own path.
func (p *Pass) needs() func(r *request.Request) bool {
	var list []Chooser
	for _, s := range p.Sums {
		if c, ok := s.(Chooser); ok {
			list = append(list, c)
		}
	}
	return func(r *request.Request) bool {
		return slices.ContainsFunc(list, func(c Chooser) bool { return c.Needs(r) })
	}
}

// glance looks at all requests, in parallel.
func (pl *plan) glance(p *Pass, n int, at func(int) *request.Request) {
	pl.glances = slices.Grow(pl.glances[:0], n)[:n]
	var wg sync.WaitGroup
	each := (n + len(p.workers) - 1) / len(p.workers)
	for i := range p.workers {
		stage := p.workers[i].stage
		from, to := min(i*each, n), min((i+1)*each, n)
		wg.Go(func() {
			for k := from; k < to; k++ {
				pl.glances[k] = path.Glance{}
				if r := at(k); p.wanted(r) {
					pl.glances[k] = stage.Glance(r)
				}
			}
		})
	}
	wg.Wait()
}

// count divides the requests by group and latency. Those that a sum needs stand for
// themselves alone: they are of one stretch of time, and others may differ.
func (pl *plan) count(n int, at func(int) *request.Request, needs func(*request.Request) bool) {
	if pl.groups == nil {
		pl.groups, pl.strata = make(map[path.GroupKey]int32), make(map[stratum]int32)
	}
	clear(pl.groups)
	clear(pl.strata)
	pl.all, pl.cells = pl.all[:0], pl.cells[:0]
	pl.at = slices.Grow(pl.at[:0], n)[:n]
	for k := range n {
		g := &pl.glances[k]
		pl.at[k] = -1
		r := at(k)
		if !g.Enough || needs(r) {
			continue
		}
		id, ok := pl.groups[g.Group]
		if !ok {
			id = int32(len(pl.all))
			pl.all = append(pl.all, groupOf{})
			pl.groups[g.Group] = id
		}
		pl.all[id].n++
		s := stratum{id, loglinear.Bucket(r.End-r.Start, latencyBits)}
		c, ok := pl.strata[s]
		if !ok {
			c = int32(len(pl.cells))
			pl.cells = append(pl.cells, cellOf{stratum: s, least: ^uint64(0)})
			pl.strata[s] = c
		}
		pl.cells[c].n++
		pl.at[k] = c
	}
	// From which latency on a group is walked whole.
	order := make([]int32, len(pl.cells))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(pl.cells[b].bucket, pl.cells[a].bucket) })
	slower := make([]int32, len(pl.all))
	for i := range pl.all {
		pl.all[i].exact = 1 << 30
	}
	for _, i := range order {
		c := &pl.cells[i]
		g := &pl.all[c.group]
		if g.n <= small || float64(slower[c.group]) < exactPart*float64(g.n) {
			g.exact = c.bucket
		}
		slower[c.group] += c.n
	}
}

// choose gives those that are walked their weights.
func (pl *plan) choose(n int, at func(int) *request.Request) {
	pl.weights = slices.Grow(pl.weights[:0], n)[:n]
	for k := range n {
		pl.weights[k] = 1
		if pl.at[k] < 0 {
			continue
		}
		c, r := &pl.cells[pl.at[k]], at(k)
		if c.bucket >= pl.all[c.group].exact || c.n <= fewest {
			c.walked++
			continue
		}
		h := chance(r)
		if h < c.least {
			c.least, c.first = h, int32(k)
		}
		if part := max(fewest, uint64(c.n)/oneIn); h>>32 < part<<32/uint64(c.n) {
			c.walked++
		} else {
			pl.weights[k] = 0
		}
	}
	for i := range pl.cells {
		c := &pl.cells[i]
		if c.walked == 0 {
			pl.weights[c.first], c.walked = 1, 1
		}
		c.left = c.n % c.walked
	}
	// What is left over goes to one request each, by chance and not by the order, which depends on the workers.
	pl.over = pl.over[:0]
	for k := range n {
		if pl.at[k] < 0 || pl.weights[k] == 0 {
			continue
		}
		c := &pl.cells[pl.at[k]]
		pl.weights[k] = c.n / c.walked
		if c.left > 0 {
			pl.over = append(pl.over, chosen{chance(at(k)), int32(k)})
		}
	}
	slices.SortFunc(pl.over, func(a, b chosen) int { return cmp.Compare(a.chance, b.chance) })
	for _, o := range pl.over {
		if c := &pl.cells[pl.at[o.k]]; c.left > 0 {
			pl.weights[o.k]++
			c.left--
		}
	}
}

// chance orders requests at random, but always alike (the finalizer of
// MurmurHash3 by Appleby, over what identifies a request).
func chance(r *request.Request) uint64 {
	z := uint64(r.End) ^ bits.RotateLeft64(uint64(r.Start), 23) ^ r.G*0xd6e8feb86659fd93
	z = (z ^ z>>33) * 0xff51afd7ed558ccd
	z = (z ^ z>>33) * 0xc4ceb9fe1a85ec53
	return z ^ z>>33
}
