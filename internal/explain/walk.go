package explain

import (
	"sync"
	"sync/atomic"

	"github.com/whylate/whylate/internal/request"
	"github.com/whylate/whylate/internal/summary"
)

// walkChunk is how many requests a worker takes at a time.
const walkChunk = 64

// walk adds requests up, in parallel. Parts of long requests must meet in one
// table: they are few, and go to the first.
func (e *engine) walk(reqs []request.Request) {
	if len(reqs) == 0 {
		return
	}
	from, to := e.start+int64(e.opts.From), int64(1<<63-1)
	if e.opts.To > 0 {
		to = e.start + int64(e.opts.To)
	}
	wanted := func(r *request.Request) bool { return r.Part == request.Middle || r.End >= from && r.End < to }
	for _, t := range e.tables {
		t.NextGeneration(reqs)
	}
	if e.again == nil { // which wants them in the order that they have
		e.byTime = byTime(reqs, e.byTime)
	}
	at := func(i int) *request.Request {
		if e.again == nil {
			i = int(e.byTime[i])
		}
		return &reqs[i]
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for _, t := range e.tables {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				i := int(next.Add(walkChunk)) - walkChunk
				if i >= len(reqs) {
					t.BuildGraphs()
					return
				}
				for k := i; k < min(i+walkChunk, len(reqs)); k++ {
					if r := at(k); r.Part == request.Whole && wanted(r) {
						t.Add(r)
					}
				}
			}
		}()
	}
	wg.Wait()
	for k := range reqs {
		if r := &reqs[k]; r.Part != request.Whole && wanted(r) {
			e.tables[0].Add(r)
		}
	}
	e.tables[0].BuildGraphs()
	summary.Settle(e.tables)
	summary.EndGeneration(e.tables)
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
