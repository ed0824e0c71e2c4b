package predict

import (
	"cmp"
	"math"
	"sync"

	"github.com/whylate/whylate/internal/explain/loglinear"
	"github.com/whylate/whylate/internal/explain/sample"
)

// Bounds of a sample: requests are divided by latency into strata a quarter of an octave wide, and a few of each are sampled.
// So the slowest percent is known as well as the median. A graph of an HTTP request takes one or two kilobytes, and the
// latencies of a service are seldom in more than forty strata.
const (
	maxPerStratum = 6
	strataBits    = 2
	maxStrata     = 64 << strataBits
)

// A Sample holds at most maxPerStratum graphs of a group's requests for each latency range (stratum), and counts all requests.
// A hash of the request decides which ones are held, so the result does not depend on the order of requests or on workers. The
// zero value is empty.
type Sample struct {
	strata       [maxStrata]*stratum
	pending      []*Graph      // reserved
	smallestKeys *smallestKeys // of all samples that will be merged; nil: there is only this one
}

// smallestKeys are the smallest sample keys of each stratum over all samples of one group, including those of other workers.
// Graphs with larger keys need not be built. It is safe for concurrent use; nil is empty.
type smallestKeys struct {
	mu     sync.Mutex
	strata [maxStrata]*sample.TopN[uint64]
}

// add adds the key of a request that some worker's sample selected, to the keys of its stratum of latency. It returns the key below
// which others must be to be selected.
func (r *smallestKeys) add(stratum int, key uint64) (limit uint64) {
	if r == nil {
		return math.MaxUint64
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.strata[stratum] == nil {
		r.strata[stratum] = sample.New(maxPerStratum, cmp.Compare[uint64])
	}
	r.strata[stratum].Add(key)
	if largest, isFull := r.strata[stratum].Last(); isFull {
		return largest
	}
	return math.MaxUint64
}

// excludes reports whether a request of this key cannot be in the final sample: the stratum is full of smaller keys.
func (r *smallestKeys) excludes(stratum int, key uint64) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	largest, isFull := r.strata[stratum].Last()
	return isFull && largest < key
}

// A stratum is the requests of one latency range: their number and the sampled graphs.
type stratum struct {
	count    int64
	graphs   *sample.TopN[*Graph] // those with the smallest keys
	keyLimit uint64               // a new key must be below it
}

// stratumIndex returns the stratum of a latency.
func stratumIndex(latency int64) int { return int(loglinear.Bucket(latency, strataBits)) }

// sampleKey returns the key of a request. Its factor makes this sample independent of the one in package detailed.
func sampleKey(start int64, g uint64) uint64 { return sample.Key(start, g, 0xd1342543de82ef95) }

func smallerKeyFirst(a, b *Graph) int { return cmp.Compare(a.key, b.key) }

// Reserve counts weight requests like the one from start to end (trace time in ns) on goroutine g, and reserves a place for its
// graph if the sample selects it. builder builds the graph later, because another request may replace it before. isFirst reports
// that no other reservation is pending, so the caller must remember to call BuildPending before the window drops the request.
func (s *Sample) Reserve(start, end int64, g uint64, weight int64, builder *Builder) (isFirst bool) {
	if !s.Count(start, end, g, weight) {
		return false
	}
	w := &Graph{Latency: end - start, Start: start, G: g, builder: builder}
	s.pending = append(s.pending, w)
	s.Add(w)
	return len(s.pending) == 1
}

// BuildPending builds the graphs of reserved requests that are still selected, and forgets all reservations.
func (s *Sample) BuildPending() {
	for _, w := range s.pending {
		if w.builder != nil && !s.smallestKeys.excludes(stratumIndex(w.Latency), w.key) {
			w.build()
		}
	}
	clear(s.pending)
	s.pending = s.pending[:0]
}

// Count counts weight requests like the one from start to end (ns) on goroutine g. If selected is true, the caller must call
// Add with the request's graph.
func (s *Sample) Count(start, end int64, g uint64, weight int64) (selected bool) {
	i := stratumIndex(end - start)
	st := s.strata[i]
	if st == nil {
		st = &stratum{graphs: sample.New(maxPerStratum, smallerKeyFirst), keyLimit: math.MaxUint64}
		s.strata[i] = st
	}
	st.count += weight
	return sampleKey(start, g) < st.keyLimit
}

// Add adds the graph of a request that Count selected; the graph with the largest key of a full stratum is dropped.
func (s *Sample) Add(g *Graph) {
	i := stratumIndex(g.Latency)
	st := s.strata[i]
	g.key = sampleKey(g.Start, g.G)
	if dropped, isFull := st.graphs.Add(g); isFull {
		dropped.builder = nil
	}
	st.keyLimit = s.smallestKeys.add(i, g.key)
	if last, isFull := st.graphs.Last(); isFull {
		st.keyLimit = min(st.keyLimit, last.key)
	}
}

// Merge adds the counts and graphs of a second sample, which must not be used afterwards.
func (s *Sample) Merge(second *Sample) {
	for i, st := range second.strata {
		if st == nil {
			continue
		}
		if s.strata[i] == nil {
			s.strata[i] = st
			continue
		}
		s.strata[i].count += st.count
		s.strata[i].graphs.Merge(st.graphs)
	}
}

// eachGraph calls f for every graph, with the number of requests that it represents: those of its stratum divided by the graphs
// there.
func (s *Sample) eachGraph(f func(g *Graph, weight float64)) {
	for _, st := range s.strata {
		if st == nil {
			continue
		}
		graphs := st.graphs.Sorted()
		for _, g := range graphs {
			f(g, float64(st.count)/float64(len(graphs)))
		}
	}
}
