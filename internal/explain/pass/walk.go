package pass

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
)

// walkChunk is how many requests a worker takes at a time.
const walkChunk = 64

// walk walks the requests of a generation and has them added up.
func (p *Pass) walk(reqs []request.Request) {
	if len(reqs) > 0 {
		p.walkAll(reqs)
	}
	for _, l := range p.Listeners {
		if l, ok := l.(GenerationFinisher); ok {
			l.FinishGeneration()
		}
	}
}

// walkAll walks in parallel. Parts of long requests must meet in one stage: they are few, and go to the first.
func (p *Pass) walkAll(reqs []request.Request) {
	served, parts := 0, 0
	for i := range reqs {
		if reqs[i].Kind.IsServed() {
			served++
		}
		if reqs[i].Piece != request.WholeRequest {
			parts++
		}
	}
	if p.answers != nil {
		p.answers.Add(reqs)
	}
	for i := range p.workers {
		p.workers[i].stage.BeginGeneration(served, len(reqs)-served)
	}
	for _, s := range p.all() {
		if s, ok := s.(GenerationBeginner); ok {
			s.BeginGeneration(reqs)
		}
	}
	sampled := false
	if p.opts.ExactFirst > 0 && len(reqs) >= leastPlanned {
		var until int64
		if until, sampled = p.exactUntil(reqs); sampled {
			p.plan.make(p, reqs, until)
		}
	}
	order := p.order(reqs, sampled)
	var next, added, glanced atomic.Int64
	var wg sync.WaitGroup
	for i := range p.workers {
		w := &p.workers[i]
		wg.Go(func() {
			n, not := 0, 0
			for {
				i := int(next.Add(walkChunk)) - walkChunk
				if i >= len(order) {
					added.Add(int64(n))
					glanced.Add(int64(not))
					return
				}
				for _, k := range order[i:min(i+walkChunk, len(order))] {
					r := &reqs[k]
					if r.Piece != request.WholeRequest || !p.wanted(r) {
						continue
					}
					n++
					switch {
					case !sampled:
						w.add(w.stage.Walk(r))
					case p.plan.weights[k] == 0:
						not++
						w.add(w.stage.Unwalked(r, &p.plan.glances[k]))
					default:
						walked := w.stage.Walk(r)
						walked.Weight = int64(p.plan.weights[k])
						walked.AddedSeparately, walked.Sparse = walked.Weight-1, !p.plan.items[k].whole
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
	for i := 0; i < len(order) && parts > 0; i++ {
		r := &reqs[order[i]]
		if r.Piece == request.WholeRequest {
			continue
		}
		if parts--; !p.wanted(r) {
			continue
		}
		w.add(w.stage.Walk(r))
		if r.Piece == request.LastPiece {
			w.add(w.stage.Join(r))
		}
	}
	w.flush()
	for _, s := range p.all()[:len(p.workers[0].adders)] {
		if s, ok := s.(GenerationEnder); ok {
			s.EndGeneration()
		}
	}
}

func (w *worker) add(walked *path.WalkResult) {
	for _, a := range w.adders {
		a.Add(walked)
	}
}

func (w *worker) flush() {
	for _, a := range w.adders {
		if f, ok := a.(Flusher); ok {
			f.Flush()
		}
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

// order returns the order in which requests are walked, roughly that of their ends. They come goroutine by goroutine, but what
// happened at one time lies together in memory, so that in this order each record is fetched once for all requests that need it
// and not once for each: an eighth of explain's time (bench/README.md). Those that were glanced at come last, as they are.
func (p *Pass) order(reqs []request.Request, sampled bool) []int32 {
	first, last := ends(reqs)
	// Counted: about four requests to a slot.
	slots := len(reqs)/4 + 1
	width := (last-first)/int64(slots) + 1
	slot := func(k int) int {
		if sampled && p.plan.weights[k] == 0 {
			return slots
		}
		return int((reqs[k].End - first) / width)
	}
	next := make([]int32, slots+2)
	for k := range reqs {
		next[slot(k)+1]++
	}
	for s := range slots {
		next[s+1] += next[s]
	}
	order := make([]int32, len(reqs))
	for k := range reqs {
		s := slot(k)
		order[next[s]] = int32(k)
		next[s]++
	}
	if p.opts.InOrder {
		slices.SortStableFunc(order, func(a, b int32) int { return request.Compare(reqs[a], reqs[b]) })
	}
	return order
}
