package summary

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/report"
)

// sampleSize is how many requests of a group are kept whatever their latency,
// to choose a typical one from.
const sampleSize = 5

// sampleKey orders requests at random, but always alike: by a hash of what
// identifies them (the finalizer of SplitMix64, Steele et al., OOPSLA 2014).
// The requests with the smallest keys are a sample that does not depend on
// their latency, nor on which worker saw them, nor in which order.
func sampleKey(start int64, g uint64) uint64 {
	z := uint64(start) + g*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (s *Slow) key() uint64 { return sampleKey(s.Start, s.G) }

func (t *Tables) keepSample(g *group, key uint64) bool {
	n := len(g.sample)
	return t.Slowest > 0 && (n < sampleSize || key < g.sample[n-1].key())
}

func (g *group) addSample(s *Slow) {
	g.sample = append(g.sample, s)
	slices.SortFunc(g.sample, func(a, b *Slow) int { return cmp.Compare(a.key(), b.key()) })
	g.sample = g.sample[:min(len(g.sample), sampleSize)]
}

// typical is the sampled request whose latency is nearest to the median, or
// nil if all are among the slowest.
func (g *group) typical() *Slow {
	if g.lat.n == 0 {
		return nil
	}
	median := g.lat.quantile(0.5)
	var best *Slow
	away := func(s *Slow) int64 { return max(s.End-s.Start-median, median-(s.End-s.Start)) }
	for _, s := range g.sample {
		among := slices.ContainsFunc(g.slow, func(o *Slow) bool { return o.Start == s.Start && o.G == s.G })
		if !among && (best == nil || away(s) < away(best)) {
			best = s
		}
	}
	return best
}

// histogramCauses are the nanoseconds of each cause in the buckets of pairs.
func (t *Tables) histogramCauses(g *group) map[report.CauseName][]int64 {
	at := map[int32]int{}
	buckets := map[int32]int64{}
	g.lat.each(func(b int32, _ int64) { buckets[coarse(b)] = 0 })
	for i, b := range keysOf(buckets) {
		at[b] = i
	}
	out := map[report.CauseName][]int64{}
	g.cells.each(func(bucket, id int32, c *cell) {
		i, ok := at[bucket]
		if !ok || c.ns == 0 {
			return
		}
		name := causeName(t.keys[id].cause)
		if out[name] == nil {
			out[name] = make([]int64, len(at))
		}
		out[name][i] += c.ns
	})
	return out
}
