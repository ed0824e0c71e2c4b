package pass

import (
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
	served := 0
	for i := range reqs {
		if reqs[i].Kind <= request.WebSocket {
			served++
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
	at := p.order(reqs)
	sampled := p.opts.ExactFirst > 0 && p.Requests >= int64(p.opts.ExactFirst) && len(reqs) >= leastPlanned
	if sampled {
		p.plan.make(p, len(reqs), at)
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
					r := at(k)
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
	for k := range reqs {
		r := &reqs[k]
		if r.Part == request.Whole || !p.wanted(r) {
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

// byTime returns the requests' indices roughly in order of their ends, in buf
// if that is large enough. Requests come goroutine by goroutine, but what
// happened at one time lies together in memory, so that in this order each
// record is fetched once for all requests that need it and not once for each:
// an eighth of explain's time (bench/README.md).
func byTime(reqs []request.Request, buf []int32) []int32 {
	if cap(buf) < len(reqs) {
		buf = make([]int32, len(reqs))
	}
	buf = buf[:len(reqs)]
	first, last := reqs[0].End, reqs[0].End
	for i := range reqs {
		first, last = min(first, reqs[i].End), max(last, reqs[i].End)
	}
	// Counted and placed: about four requests to a slot.
	slots := len(reqs)/4 + 1
	width := (last-first)/int64(slots) + 1
	from := make([]int32, slots+1)
	for i := range reqs {
		from[(reqs[i].End-first)/width+1]++
	}
	for i := 1; i < len(from); i++ {
		from[i] += from[i-1]
	}
	for i := range reqs {
		k := (reqs[i].End - first) / width
		buf[from[k]] = int32(i)
		from[k]++
	}
	return buf
}
