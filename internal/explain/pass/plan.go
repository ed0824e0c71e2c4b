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
	items   []item
	groups  map[path.GroupKey]int32
	cells   []cellOf
	all     []groupOf
	over    []chosen
	// before holds the latencies of each group in the generations planned before.
	before map[path.GroupKey]*latencies
}

// latencies are how many requests there are by latency.
type latencies [latencyBuckets]int32

// An item is a request that may be left out.
type item struct {
	chance  uint64
	latency int64
	cell    int32 // -1: it is walked itself; at first its group, as the worker numbers it
}

// A cellOf is a stratum: a group's requests of like latency.
type cellOf struct {
	group, bucket   int32
	n, walked, left int32
	wanted          int32  // how many are walked of one that is not walked whole, about
	least           uint64 // of the hashes, for a cell of which none was chosen
	first           int32
}

type chosen struct {
	chance uint64
	k      int32
}

type groupOf struct {
	n, slower int32
	exact     int32                 // latencies from this bucket on are walked one and all
	cells     [latencyBuckets]int32 // by bucket: its cell and one; 0: none
	before    *latencies            // with those of this generation
}

// Bounds of sampling.
const (
	// leastPlanned requests of a generation are worth it.
	leastPlanned = 1000
	// latencyBits divide an octave of latency in four.
	latencyBits    = 2
	latencyBuckets = 64 << latencyBits
	// Of a group the slowest exactPart of a generation are walked, the slowest
	// exactOfAll of all its generations until then, and all if they are no more
	// than small.
	exactPart  = 0.12
	exactOfAll = 0.015
	small      = 256
	// Of each other stratum one in oneIn is, and at least fewest, if it is of the
	// slower upperPart, a bit more than half. Those below the median have a small
	// part of the time and no band of their own.
	upperPart   = 0.55
	oneIn       = 12
	fewest      = 16
	oneInLower  = 64
	fewestLower = 8
)

// make decides about the requests of a generation. Those that end before until are walked.
func (pl *plan) make(p *Pass, reqs []request.Request, until int64) {
	parts := pl.glance(p, reqs, p.needs(until))
	pl.count(parts)
	pl.choose()
}

// needs returns whether a request is to be walked itself.
func (p *Pass) needs(until int64) func(r *request.Request) bool {
	var list []Chooser
	for _, s := range p.Sums {
		if c, ok := s.(Chooser); ok {
			list = append(list, c)
		}
	}
	return func(r *request.Request) bool {
		if r.End < until {
			return true
		}
		for _, c := range list {
			if c.Needs(r) {
				return true
			}
		}
		return false
	}
}

// A glanced is the part of the requests that one worker glanced at, with its groups.
type glanced struct {
	stage    *path.Stage
	from, to int
}

// glance looks at all requests, in parallel. Those that a sum needs stand for
// themselves alone: they are of one stretch of time, and others may differ.
func (pl *plan) glance(p *Pass, reqs []request.Request, needs func(*request.Request) bool) []glanced {
	n := len(reqs)
	pl.glances, pl.items = slices.Grow(pl.glances[:0], n)[:n], slices.Grow(pl.items[:0], n)[:n]
	parts := make([]glanced, len(p.workers))
	var wg sync.WaitGroup
	each := (n + len(p.workers) - 1) / len(p.workers)
	for i := range p.workers {
		g := glanced{p.workers[i].stage, min(i*each, n), min((i+1)*each, n)}
		parts[i] = g
		wg.Go(func() {
			for k := g.from; k < g.to; k++ {
				r := &reqs[k]
				pl.items[k].cell = -1
				if !p.wanted(r) || needs(r) {
					continue
				}
				if pl.glances[k] = g.stage.Glance(r); pl.glances[k].Enough {
					pl.items[k] = item{chance(r), r.End - r.Start, int32(g.stage.IDs.ID(pl.glances[k].Group))}
				}
			}
		})
	}
	wg.Wait()
	return parts
}

// count divides the requests by group and latency.
func (pl *plan) count(parts []glanced) {
	if pl.groups == nil {
		pl.groups, pl.before = make(map[path.GroupKey]int32), make(map[path.GroupKey]*latencies)
	}
	clear(pl.groups)
	pl.all, pl.cells = pl.all[:0], pl.cells[:0]
	for _, part := range parts {
		known := make([]int32, part.stage.IDs.Groups()) // a group's number here and one
		for k := part.from; k < part.to; k++ {
			it := &pl.items[k]
			of := it.cell
			if of < 0 {
				continue
			}
			if known[of] == 0 {
				key := part.stage.IDs.Group(path.GroupID(of))
				id, ok := pl.groups[key]
				if !ok {
					id = int32(len(pl.all))
					if pl.before[key] == nil {
						pl.before[key] = new(latencies)
					}
					pl.all = append(pl.all, groupOf{exact: latencyBuckets, before: pl.before[key]})
					pl.groups[key] = id
				}
				known[of] = id + 1
			}
			id := known[of] - 1
			g := &pl.all[id]
			g.n++
			bucket := min(loglinear.Bucket(it.latency, latencyBits), latencyBuckets-1)
			g.before[bucket]++
			c := &g.cells[bucket]
			if *c == 0 {
				pl.cells = append(pl.cells, cellOf{group: id, bucket: bucket, least: ^uint64(0)})
				*c = int32(len(pl.cells))
			}
			pl.cells[*c-1].n++
			it.cell = *c - 1
		}
	}
	pl.findSlow()
}

// findSlow finds out from which latency on each group is walked whole: what is
// slow in its generation, and what is very slow beside all until then, which may
// be more of a slow generation.
func (pl *plan) findSlow() {
	order := make([]int32, len(pl.cells))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(pl.cells[b].bucket, pl.cells[a].bucket) })
	for _, i := range order {
		c := &pl.cells[i]
		g := &pl.all[c.group]
		switch slower := float64(g.slower) / float64(g.n); {
		case g.n <= small || slower < exactPart:
			g.exact = c.bucket
		case slower < upperPart:
			c.wanted = max(fewest, c.n/oneIn)
		default:
			c.wanted = max(fewestLower, c.n/oneInLower)
		}
		g.slower += c.n
	}
	for i := range pl.all {
		g := &pl.all[i]
		g.exact = min(g.exact, g.before.slowest(exactOfAll))
	}
}

// slowest returns the bucket from which on at least a part of all are.
func (l *latencies) slowest(part float64) int32 {
	n := 0
	for _, of := range l {
		n += int(of)
	}
	slower, k := 0, int32(latencyBuckets)
	for k > 0 && float64(slower) < part*float64(n) {
		k--
		slower += int(l[k])
	}
	return k
}

// choose gives those that are walked their weights.
func (pl *plan) choose() {
	n := len(pl.items)
	pl.weights = slices.Grow(pl.weights[:0], n)[:n]
	for k := range pl.items {
		it := &pl.items[k]
		pl.weights[k] = 1
		if it.cell < 0 {
			continue
		}
		c := &pl.cells[it.cell]
		if c.bucket >= pl.all[c.group].exact || c.n <= fewest {
			c.walked++
			continue
		}
		if it.chance < c.least {
			c.least, c.first = it.chance, int32(k)
		}
		if it.chance>>32 < uint64(c.wanted)<<32/uint64(c.n) {
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
	for k := range pl.items {
		it := &pl.items[k]
		if it.cell < 0 || pl.weights[k] == 0 {
			continue
		}
		c := &pl.cells[it.cell]
		pl.weights[k] = c.n / c.walked
		if c.left > 0 {
			pl.over = append(pl.over, chosen{it.chance, int32(k)})
		}
	}
	slices.SortFunc(pl.over, func(a, b chosen) int { return cmp.Compare(a.chance, b.chance) })
	for _, o := range pl.over {
		if c := &pl.cells[pl.items[o.k].cell]; c.left > 0 {
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
