package groups

import (
	"math"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/loglinear"
	"github.com/whylate/whylate/internal/explain/path"
)

// A spread accumulates the sampling error of a sum of weighted requests. A request of weight w with time x adds w(w-1)x to
// linear and w(w-1)x² to square. A request of weight 1 represents only itself and adds nothing.
type spread struct{ linear, square float64 }

// add adds the error of another sum.
func (s *spread) add(addend *spread) {
	s.linear += addend.linear
	s.square += addend.square
}

// addSpread adds a request to the spreads of its latency bucket and causes, from which the error of sampling follows: the sums of
// w(w-1), w(w-1)x and w(w-1)x² for weight w and a cause's time x in ns. A request of weight 1 adds nothing to them and need not
// be added.
func (g *group) addSpread(bucket int32, w *path.WalkResult) {
	product := float64(w.Weight) * float64(w.Weight-1)
	entry.Put(&g.spreadWeights, bucket, g.spreadWeights[bucket]+product)
	for _, s := range w.CauseTimes {
		x := float64(s.NS)
		g.spreads.getOrAdd(bucket, int32(s.Cause)).add(&spread{product * x, product * x * x})
	}
}

// addPieceSpreads adds the spreads of a request of which only a sample of the pieces was walked.
func (g *group) addPieceSpreads(bucket int32, w *path.WalkResult) {
	entry.Put(&g.spreadWeights, bucket, g.spreadWeights[bucket]+w.SpreadWeights)
	for _, s := range w.Spreads {
		g.spreads.getOrAdd(bucket, int32(s.Cause)).add(&spread{s.Linear, s.Square})
	}
}

// variances returns, by cause id, the variance (ns²) of the cause's total time in some latency buckets, which results from
// sampling. With n the sum of w(w-1) over all requests of a stratum, including those without the cause, the variance of a
// stratum is square - linear²/n: that of a sum over a sample of independent draws, about its mean (Särndal, Swensson and
// Wretman, Model Assisted Survey Sampling, 1992, sections 3.2 and 3.7). Strata are those by which requests were sampled.
func (g *group) variances(buckets bucketRange) map[int32]float64 {
	type key struct{ stratum, cause int32 }
	n, sums, out := map[int32]float64{}, map[key]spread{}, map[int32]float64{}
	for bucket, product := range g.spreadWeights {
		if buckets.contains(bucket) {
			n[stratum(bucket)] += product
		}
	}
	g.spreads.forEach(func(bucket, cause int32, s *spread) {
		if buckets.contains(bucket) {
			k := key{stratum(bucket), cause}
			sum := sums[k]
			sum.add(s)
			sums[k] = sum
		}
	})
	for k, s := range sums {
		out[k.cause] += max(0, s.square-s.linear*s.linear/n[k.stratum])
	}
	return out
}

// stratum returns the sampling stratum of a coarse latency bucket.
func stratum(bucket int32) int32 {
	return loglinear.Bucket(loglinear.LowerBound(bucket, coarseBits), path.StratumBits)
}

// shareError returns half of the 95 % confidence interval of a share whose time has this variance, rounded up to a hundredth of
// a percent: many small shares would be outside if it were rounded down. The last bits of a variance depend on the order in
// which workers added to it, so less than a hundredth of that is ignored.
func shareError(variance float64, total int64) float64 {
	return math.Ceil(1.96*math.Sqrt(variance)/float64(total)*1e4-0.01) / 1e4
}
