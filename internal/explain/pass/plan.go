package pass

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"sync"

	"github.com/whylate/whylate/internal/explain/loglinear"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/trace/timeline"
)

// A plan says which requests of a generation are walked, and for how many each
// one stands. A service asks the same of its fast requests repeatedly, so
// a few of each group and latency tell where all such requests spend their time;
// what is slow is walked one and all. Weights are exact: those of a group's
// requests of like latency add up to how many there are (stratified sampling,
// Cochran, Sampling Techniques, 1977, chapter 5). Counts and latencies need no
// walk, and are those of all requests.
//
// Which are walked depends on the requests alone, not on the workers.
type plan struct {
	glances []path.QuickGroup // by the order in which requests are walked
	weights []int32           // of those that are walked; 0: glanced at
	items   []item
	groups  map[path.GroupKey]int32
	cells   []cellOf
	all     []groupOf
	over    []chosen
	marks   []stretch // in which the collector marked, by time
	// before holds the latencies of each group in the generations planned before.
	before map[path.GroupKey]*latencies
}

// latencies are how many requests there are by latency.
type latencies struct {
	n  int
	by [latencyBuckets]int32
}

// An item is a request that may be left out.
type item struct {
	chance  uint64
	latency int64
	cell    int32 // -1: it is walked itself; at first its group, as the worker numbers it
	marked  bool  // the collector marked meanwhile
	whole   bool  // all requests of its group are walked
}

// A cellOf is a stratum: a group's requests of like latency.
type cellOf struct {
	group, bucket   int32
	n, walked, left int32
	marked          int32  // of n, during which the collector marked
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
	marked    int32                 // of those that are not walked one and all
	exact     int32                 // latencies from this bucket on are walked one and all
	whole     bool                  // all are
	cells     [latencyBuckets]int32 // by bucket: its cell and one; 0: none
	before    *latencies            // with those of this generation
}

// fewMarked reports whether those during which the collector marked are walked one and all.
func (g *groupOf) fewMarked() bool { return float64(g.marked) <= fewMarked*float64(g.n) }

// Bounds of sampling.
const (
	// leastPlanned requests of a generation are worth it.
	leastPlanned   = 1000
	latencyBuckets = 64 << path.StratumBits
	// Of a group the slowest tenth of a generation is walked, the slowest tenth of
	// all its generations until then, and all if they are no more than small, or
	// with those of the generations before no more than smallInAll.
	exactPart  = 0.1
	small      = 256
	smallInAll = 2000
	// Of each other stratum so many are: more of what is slower, since rows of
	// causes that few requests meet are there, and at least fewest. Those below
	// the median have a small part of the time and no band of their own.
	upperPart   = 0.25
	oneInUpper  = 6
	middlePart  = 0.55
	oneInMiddle = 12
	fewest      = 16
	oneInLower  = 64
	fewestLower = 8
	// Requests during which the collector marked are walked too, if they are no
	// more than this part of their group's: help with marking and stops of the
	// world are long and rare, so that a part of them does not show how much
	// time they have: rows of 1 % were off by a tenth of themselves.
	fewMarked = 0.05
)

// make decides about the requests of a generation. Those that end before until are walked.
func (pl *plan) make(p *Pass, reqs []request.Request, until int64) {
	pl.findMarks(p.Window.Gens)
	parts := pl.glance(p, reqs, p.needs(until))
	pl.count(parts)
	pl.choose()
}

// A stretch of time.
type stretch struct{ from, to int64 }

// findMarks finds out when the collector marked.
func (pl *plan) findMarks(gens []*timeline.Gen) {
	pl.marks = pl.marks[:0]
	add := func(from, to int64) { pl.marks = append(pl.marks, stretch{from, to}) }
	var phases timeline.MarkPhases
	for _, g := range gens {
		phases.Each(g, add)
	}
	phases.Close(math.MaxInt64, add)
}

// marked reports whether the collector marked during a request.
func (pl *plan) marked(r *request.Request) bool {
	k, _ := slices.BinarySearchFunc(pl.marks, r.Start, func(m stretch, t int64) int { return cmp.Compare(m.to, t) })
	return k < len(pl.marks) && pl.marks[k].from < r.End
}

// needs returns whether a request is to be walked itself.
func (p *Pass) needs(until int64) func(r *request.Request) bool {
	var list []Chooser
	for _, s := range p.all() {
		if c, ok := s.(Chooser); ok {
			list = append(list, c)
		}
	}
	return func(r *request.Request) bool {
		if r.End < until {
			return true
		}
		for _, c := range list {
			if c.NeedsWalk(r) {
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
				pl.items[k] = item{cell: -1}
				if !p.wanted(r) || needs(r) {
					continue
				}
				if pl.glances[k] = g.stage.QuickGroup(r); pl.glances[k].Sufficient {
					pl.items[k] = item{chance: chance(r), latency: r.End - r.Start, cell: int32(g.stage.IDs.GroupID(pl.glances[k].Group)), marked: pl.marked(r)}
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
		known := make([]int32, part.stage.IDs.GroupCount()) // a group's number here and one
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
			bucket := min(loglinear.Bucket(it.latency, path.StratumBits), latencyBuckets-1)
			g.before.n++
			g.before.by[bucket]++
			c := &g.cells[bucket]
			if *c == 0 {
				pl.cells = append(pl.cells, cellOf{group: id, bucket: bucket, least: ^uint64(0)})
				*c = int32(len(pl.cells))
			}
			pl.cells[*c-1].n++
			if it.marked {
				pl.cells[*c-1].marked++
			}
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
		g.whole = g.n <= small || g.before.n <= smallInAll
		switch slower := float64(g.slower) / float64(g.n); {
		case g.whole || slower < exactPart:
			g.exact = c.bucket
		case slower < upperPart:
			c.wanted = max(fewest, c.n/oneInUpper)
		case slower < middlePart:
			c.wanted = max(fewest, c.n/oneInMiddle)
		default:
			c.wanted = max(fewestLower, c.n/oneInLower)
		}
		g.slower += c.n
	}
	for i := range pl.all {
		g := &pl.all[i]
		g.exact = min(g.exact, g.before.slowest(exactPart))
	}
	for i := range pl.cells {
		c := &pl.cells[i]
		if g := &pl.all[c.group]; c.bucket < g.exact {
			g.marked += c.marked
		}
	}
	for i := range pl.cells {
		c := &pl.cells[i]
		if pl.all[c.group].fewMarked() {
			c.n -= c.marked
		}
	}
}

// slowest returns the bucket from which on at least a part of all are.
func (l *latencies) slowest(part float64) int32 {
	slower, k := 0, int32(latencyBuckets)
	for k > 0 && float64(slower) < part*float64(l.n) {
		k--
		slower += int(l.by[k])
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
		g := &pl.all[c.group]
		it.whole = g.whole
		if it.marked && g.fewMarked() {
			it.cell = -1
			continue
		}
		if c.bucket >= g.exact || c.n <= fewest {
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
		if c.n == 0 {
			continue
		}
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
