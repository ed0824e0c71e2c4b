package pass

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
)

// walkChunk is how many requests a worker takes at a time.
const walkChunk = 64

// walk walks requests and has them added up, in parallel. Parts of long requests
// must meet in one stage: they are few, and go to the first.
func (p *Pass) walk(reqs []request.Request) {
	if len(reqs) == 0 {
		return
	}
	served, parts := 0, 0
	for i := range reqs {
		if reqs[i].Kind.Served() {
			served++
		}
		if reqs[i].Part != request.Whole {
			parts++
		}
	}
	if p.answers != nil {
		p.answers.Add(reqs)
	}
	for i := range p.workers {
		p.workers[i].stage.Begin(served, len(reqs)-served)
	}
	for _, s := range p.Sums {
		s.Begin(reqs)
	}
	p.order(reqs)
	sampled := false
	if p.opts.ExactFirst > 0 && len(reqs) >= leastPlanned {
		var until int64
		if until, sampled = p.exactUntil(reqs); sampled {
			p.plan.make(p, reqs, until)
		}
	}
	var next, added, glanced atomic.Int64
	var wg sync.WaitGroup
	for i := range p.workers {
		w := &p.workers[i]
		wg.Go(func() {
			n, not := 0, 0
			for {
				i := int(next.Add(walkChunk)) - walkChunk
				if i >= len(reqs) {
					added.Add(int64(n))
					glanced.Add(int64(not))
					return
				}
				for k := i; k < min(i+walkChunk, len(reqs)); k++ {
					r := &reqs[k]
					if r.Part != request.Whole || !p.wanted(r) {
						continue
					}
					n++
					switch {
					case !sampled:
						w.add(w.stage.Walk(r))
					case p.plan.weights[k] == 0:
						not++
						w.add(w.stage.Seen(r, &p.plan.glances[k]))
					default:
						walked := w.stage.Walk(r)
						walked.Weight = int64(p.plan.weights[k])
						walked.Others, walked.Sparse = walked.Weight-1, true
						w.add(walked)
					}
				}
			}
		})
	}
	wg.Wait()
	p.Requests += added.Load()
	p.Glanced += glanced.Load()
	if p.opts.Added != nil {
		p.opts.Added()
	}
	for i := range p.workers {
		wg.Go(p.workers[i].flush)
	}
	wg.Wait()
	w := &p.workers[0]
	for k := 0; k < len(reqs) && parts > 0; k++ {
		r := &reqs[k]
		if r.Part == request.Whole {
			continue
		}
		if parts--; !p.wanted(r) {
			continue
		}
		w.add(w.stage.Walk(r))
		if r.Part == request.Last {
			w.add(w.stage.Join(r))
		}
	}
	w.flush()
	for _, s := range p.Sums {
		s.End()
	}
}

func (w *worker) add(walked *path.Walked) {
	for _, a := range w.adders {
		a.Add(walked)
	}
}

func (w *worker) flush() {
	for _, f := range w.flushers {
		f.Flush()
	}
}

// exactUntil returns the time before which all requests of a generation are walked, and whether there are some after it.
func (p *Pass) exactUntil(reqs []request.Request) (until int64, sampled bool) {
	left := int64(p.opts.ExactFirst) - p.Requests
	if left >= int64(len(reqs)) {
		return 0, false
	}
	if left <= 0 {
		return math.MinInt64, true
	}
	first, last := ends(reqs)
	return first + int64(float64(last-first)*float64(left)/float64(len(reqs))), true
}

// ends returns the first and last end of requests.
func ends(reqs []request.Request) (first, last int64) {
	first, last = reqs[0].End, reqs[0].End
	for i := range reqs {
		first, last = min(first, reqs[i].End), max(last, reqs[i].End)
	}
	return first, last
}

// byTime brings requests roughly into the order of their ends.
// They come goroutine by goroutine, but what
// happened at one time lies together in memory, so that in this order each
// record is fetched once for all requests that need it and not once for each:
// an eighth of explain's time (bench/README.md).
func byTime(reqs []request.Request) {
	first, last := ends(reqs)
	// Counted, and each swapped to its place: about four requests to a slot.
	slots := len(reqs)/4 + 1
	width := (last-first)/int64(slots) + 1
	slot := func(r *request.Request) int64 { return (r.End - first) / width }
	to := make([]int32, slots)
	for i := range reqs {
		to[slot(&reqs[i])]++
	}
	next, n := make([]int32, slots), int32(0)
	for s := range to {
		next[s] = n
		n += to[s]
		to[s] = n
	}
	for s := range to {
		for next[s] < to[s] {
			r := &reqs[next[s]]
			k := slot(r)
			*r, reqs[next[k]] = reqs[next[k]], *r
			next[k]++
		}
	}
}
