package pass

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/internal/explain/workers"
)

// requestsPerChunk is how many requests a worker fetches at a time.
const requestsPerChunk = 64

// walkGeneration walks the requests of a generation, adds them to the sums, and finishes the listeners.
func (p *Pass) walkGeneration(reqs []request.Request, series []*request.Series) {
	if len(reqs)+len(series) > 0 {
		p.walkInParallel(reqs, series)
	}
	for _, l := range p.Listeners {
		if l, ok := l.(GenerationFinisher); ok {
			l.FinishGeneration()
		}
	}
}

// walkInParallel walks requests with all workers, which take them in chunks, and passes the results to the adders. The pieces
// of long requests are walked separately, see walkListed.
func (p *Pass) walkInParallel(reqs []request.Request, series []*request.Series) {
	servedCount, pieceCount := 0, 0
	batch := request.NewBatch(reqs, series)
	firstEnd, lastEnd := batch.FirstEnd, batch.LastEnd
	for i := range reqs {
		firstEnd, lastEnd = min(firstEnd, reqs[i].End), max(lastEnd, reqs[i].End)
		if reqs[i].Kind.IsServed() {
			servedCount++
		}
		if reqs[i].Piece != request.WholeRequest {
			pieceCount++
		}
	}
	if p.answers != nil {
		p.answers.Add(reqs)
	}
	for i := range p.workers {
		p.workers[i].stage.BeginGeneration(servedCount, batch.Count-servedCount)
	}
	for _, s := range p.allSums() {
		if s, ok := s.(GenerationBeginner); ok {
			s.BeginGeneration(batch)
		}
	}
	sampled := false
	if p.options.ExactFirst > 0 && batch.Count >= minPlannedRequests {
		var exactUntil int64
		if exactUntil, sampled = p.exactUntil(batch.Count, firstEnd, lastEnd); sampled {
			if !p.workers[0].stage.NamesByEntryAlone() {
				reqs, series = request.AppendUnits(reqs, series...), nil
			}
			p.plan.planGeneration(p, reqs, series, exactUntil)
			reqs = p.addUnits(reqs)
		}
	}
	if !sampled {
		reqs = request.AppendUnits(reqs, series...)
	}
	order := p.walkOrder(reqs, sampled, firstEnd, lastEnd)
	var next, added, notWalked atomic.Int64
	var unlisted, last []*request.Request
	var wg sync.WaitGroup
	for i := range p.workers {
		w := &p.workers[i]
		wg.Go(func() {
			if i == 0 && len(p.workers) > 1 {
				if unlisted, last = p.walkListed(reqs, order, pieceCount); len(unlisted) < minSharedPieces {
					p.walkUnlisted(unlisted, p.workers[:1])
					unlisted = nil
				}
			}
			n, notWalkedCount := 0, 0
			for {
				i := int(next.Add(requestsPerChunk)) - requestsPerChunk
				if i >= len(order) {
					added.Add(int64(n))
					notWalked.Add(int64(notWalkedCount))
					return
				}
				for _, k := range order[i:min(i+requestsPerChunk, len(order))] {
					r := &reqs[k]
					if r.Piece != request.WholeRequest || !p.isSelected(r) {
						continue
					}
					n++
					switch {
					case !sampled:
						w.add(w.stage.Walk(r))
					case p.plan.weights[k] == 0:
						notWalkedCount++
						w.units = append(w.units[:0], request.Unit{Start: r.Start, End: r.End, G: r.G})
						w.add(w.stage.Unwalked(r, &p.plan.quickGroups[k], w.units))
					default:
						walked := w.stage.Walk(r)
						walked.Weight = int64(p.plan.weights[k])
						walked.AddedSeparately, walked.Sparse = walked.Weight-1, !p.plan.candidates[k].inWalkedGroup
						w.add(walked)
					}
				}
			}
		})
	}
	wg.Wait()
	p.Requests += added.Load()
	p.NotWalked += notWalked.Load()
	if p.options.OnRequestsAdded != nil {
		p.options.OnRequestsAdded()
	}
	if len(p.workers) == 1 {
		unlisted, last = p.walkListed(reqs, order, pieceCount)
	}
	p.walkUnlisted(unlisted, p.workers)
	for _, r := range last { // the first worker joins them
		p.walkPiece(&p.workers[0], r)
	}
	for _, s := range p.allSums()[:len(p.workers[0].adders)] {
		if s, ok := s.(GenerationEnder); ok {
			s.EndGeneration()
		}
	}
}

// addUnits adds the units of chunks that the plan does not walk, on all workers. It appends requests of the others to reqs, with
// their weights in the plan, and returns all requests.
func (p *Pass) addUnits(reqs []request.Request) []request.Request {
	pl := &p.plan
	p.shareChunks(func(w *worker, chunk *plannedChunk) {
		w.units = w.units[:0]
		for i, weight := range pl.weights[chunk.firstCandidate:][:len(chunk.units)] {
			if weight == 0 {
				w.units = append(w.units, chunk.units[i])
			}
		}
		if len(w.units) > 0 {
			chunk.series.SetRequest(&w.first, &w.units[0])
			w.add(w.stage.Unwalked(&w.first, chunk.quickGroup, w.units))
		}
	})
	walkedCount := 0
	for _, weight := range pl.weights[len(reqs):] {
		walkedCount += int(min(weight, 1))
	}
	unwalkedCount := int64(len(pl.weights) - len(reqs) - walkedCount)
	p.Requests, p.NotWalked = p.Requests+unwalkedCount, p.NotWalked+unwalkedCount
	reqs = slices.Grow(reqs, walkedCount)
	for _, chunk := range pl.chunks {
		for i := range chunk.units {
			k := chunk.firstCandidate + i
			if pl.weights[k] != 0 {
				n := len(reqs) // not more than k
				pl.weights[n], pl.candidates[n] = pl.weights[k], pl.candidates[k]
				reqs = append(reqs, request.Request{})
				chunk.series.SetRequest(&reqs[n], &chunk.units[i])
			}
		}
	}
	return reqs
}

// minSharedPieces is the number of pieces in a generation from which on several workers share them. Fewer pieces may be long,
// and each worker that walks one keeps its memory for steps.
const minSharedPieces = 16

// walkListed walks pieces of long requests with the first worker, until a request's stored segments are full (HasListed). It returns the
// other pieces, and the last ones of such requests.
func (p *Pass) walkListed(reqs []request.Request, order []int32, pieceCount int) (unlisted, last []*request.Request) {
	w := &p.workers[0]
	for i := 0; i < len(order) && pieceCount > 0; i++ {
		r := &reqs[order[i]]
		if r.Piece == request.WholeRequest {
			continue
		}
		switch pieceCount--; {
		case !p.isSelected(r):
		case r.Piece == request.LastPiece && (len(p.workers) > 1 || len(unlisted) > 0):
			last = append(last, r)
		case r.Piece == request.MiddlePiece && (len(p.workers) > 1 || p.options.ExactFirst > 0) && w.stage.HasListed(r):
			unlisted = append(unlisted, r)
		default:
			p.walkPiece(w, r)
		}
	}
	return unlisted, last
}

// walkUnlisted walks pieces that walkListed returned, which the workers share.
func (p *Pass) walkUnlisted(unlisted []*request.Request, walkers []worker) {
	represented := p.representedTimes(unlisted)
	workers.Share(len(walkers), len(unlisted), 1, func(k, i, _ int) {
		if w := &walkers[k]; represented[i] > 0 {
			w.add(w.stage.WalkUnlisted(unlisted[i], represented[i]))
		}
	})
}

// Bounds of the sample of a long request's pieces in one generation: one in piecesPerSampled, but at least minSampledPieces; fewer if
// a report is not likely to show the request.
const (
	piecesPerSampled = 8
	minSampledPieces = 192
	hiddenPart       = 8
)

// representedTimes returns how much of its request's time each piece represents, in ns; 0 if it is not walked. Of many pieces of one
// request, in order of time, a sample is drawn: one instant in each of many intervals of equal length. The piece at that instant
// represents the interval. Pieces as long as an interval represent only themselves.
func (p *Pass) representedTimes(pieces []*request.Request) []int64 {
	represented := make([]int64, len(pieces))
	for from, to := 0, 0; from < len(pieces); from = to {
		total := int64(0)
		for to = from; to < len(pieces) && pieces[to].PieceKey == pieces[from].PieceKey; to++ {
			represented[to] = pieces[to].End - pieces[to].Start
			total += represented[to]
		}
		draws := max(minSampledPieces, (to-from)/piecesPerSampled)
		if pieces[from].Kind == request.Run && !p.Finder.IsBatch() {
			draws /= hiddenPart
		}
		if p.options.ExactFirst > 0 && to-from >= 2*draws {
			drawPieces(represented[from:to], total/int64(draws)+1, uint64(pieces[from].Start))
		}
	}
	return represented
}

// drawPieces replaces the lengths of pieces, in order of time, by the time that each piece represents. Pieces shorter than interval
// are put end to end, and one instant is drawn in each interval of their total length.
func drawPieces(lengths []int64, interval int64, seed uint64) {
	remaining := int64(0)
	for _, ns := range lengths {
		if ns < interval {
			remaining += ns
		}
	}
	var start, width, instant, end int64
	next := func() {
		start, remaining = start+width, remaining-width
		if width = min(interval, remaining); width > 0 {
			instant = start + int64(sample.Hash(seed^uint64(start))>>1)%width
		}
	}
	next()
	for i, ns := range lengths {
		if ns >= interval {
			continue
		}
		lengths[i] = 0
		for end += ns; width > 0 && instant < end; next() {
			lengths[i] += width
		}
	}
}

// walkPiece lets a worker walk a piece and, if it is the last one of its request, join all of them.
func (p *Pass) walkPiece(w *worker, r *request.Request) {
	if w.add(w.stage.Walk(r)); r.Piece == request.LastPiece {
		w.add(w.stage.Join(r, p.Stages[1:]))
	}
}

// add passes a result to all adders of the worker.
func (w *worker) add(walked *path.WalkResult) {
	for _, a := range w.adders {
		a.Add(walked)
	}
}

// flush flushes those adders of all workers that are Flushers.
func (p *Pass) flush() {
	var wg sync.WaitGroup
	for i := range p.workers {
		for _, a := range p.workers[i].adders {
			if f, ok := a.(Flusher); ok {
				wg.Go(f.Flush)
			}
		}
	}
	wg.Wait()
}

// exactUntil returns the time before which requests of a generation are all walked, because ExactFirst is not yet reached. There
// are count requests, which end between firstEnd and lastEnd. If sampled is false, all of them are walked, and end has no meaning.
func (p *Pass) exactUntil(count int, firstEnd, lastEnd int64) (end int64, sampled bool) {
	remaining := int64(p.options.ExactFirst) - p.Requests
	if remaining >= int64(count) {
		return 0, false
	}
	if remaining <= 0 {
		return math.MinInt64, true
	}
	return firstEnd + int64(float64(lastEnd-firstEnd)*float64(remaining)/float64(count)), true
}

// walkOrder returns the indexes of the requests in the order in which they are walked, approximately that of their ends; if
// sampled, those that are not walked come last. The finder returns requests by goroutine, but events of one time are next to
// each other in memory. In this order, each record is loaded into the CPU's cache once for all requests that need it, which
// saves an eighth of the time of explain (lab/bench/README.md). All requests end between firstEnd and lastEnd.
func (p *Pass) walkOrder(reqs []request.Request, sampled bool, firstEnd, lastEnd int64) []int32 {
	// Counting sort with about four requests a slot.
	slots := len(reqs)/4 + 1
	width := (lastEnd-firstEnd)/int64(slots) + 1
	slot := func(k int) int {
		if sampled && p.plan.weights[k] == 0 {
			return slots
		}
		return int((reqs[k].End - firstEnd) / width)
	}
	p.walkSlots, p.order = entry.Resize(p.walkSlots, slots+2), entry.Resize(p.order, len(reqs))
	next, order := p.walkSlots, p.order
	clear(next)
	for k := range reqs {
		next[slot(k)+1]++
	}
	for s := range slots {
		next[s+1] += next[s]
	}
	for k := range reqs {
		s := slot(k)
		order[next[s]] = int32(k)
		next[s]++
	}
	if p.options.InOrder {
		slices.SortStableFunc(order, func(a, b int32) int { return request.Compare(reqs[a], reqs[b]) })
	}
	return order
}
