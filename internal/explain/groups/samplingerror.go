package groups

import (
	"math"

	"github.com/whylate/whylate/internal/explain/loglinear"
	"github.com/whylate/whylate/internal/explain/path"
)

// A spread says how far a sum may be off that requests with weights were added
// up to. One of weight w that spent x adds w(w-1)x to lin and w(w-1)x² to sq. What
// was walked for itself alone, w being 1, adds nothing.
type spread struct{ linear, square float64 }

func (s *spread) add(addend *spread) {
	s.linear += addend.linear
	s.square += addend.square
}

// addSpread takes note of what a request that stands for others spent on its causes.
func (g *group) addSpread(bucket int32, w *path.WalkResult) {
	product := float64(w.Weight) * float64(w.Weight-1)
	if g.spreadWeights == nil {
		g.spreadWeights = make(map[int32]float64)
	}
	g.spreadWeights[bucket] += product
	for _, s := range w.CauseTimes {
		x := float64(s.NS)
		g.spreads.getOrAdd(bucket, int32(s.Cause)).add(&spread{product * x, product * x * x})
	}
}

// variances returns those of the times of causes in some buckets. With n the sum of w(w-1) over all
// requests of a stratum, whether they spent anything or not, that of a stratum is
// sq - lin²/n: of a sum over a sample of independent draws, about its mean
// (Särndal, Swensson and Wretman, Model Assisted Survey Sampling, 1992, sections
// 3.2 and 3.7). Strata are those by which requests were chosen.
func (g *group) variances(buckets map[int32]bool) map[int32]float64 {
	type key struct{ stratum, cause int32 }
	n, sums, out := map[int32]float64{}, map[key]spread{}, map[int32]float64{}
	for bucket, product := range g.spreadWeights {
		if buckets[bucket] {
			n[stratum(bucket)] += product
		}
	}
	g.spreads.forEach(func(bucket, cause int32, s *spread) {
		if buckets[bucket] {
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

// stratum returns the stratum of a coarse bucket.
func stratum(bucket int32) int32 {
	return loglinear.Bucket(loglinear.Least(bucket, coarseBits), path.StratumBits)
}

// shareError is half of the interval that has a share 95 times of a hundred, rounded up to a hundredth of a percent, as rounding
// down has many a small share outside. The last bits of a variance depend on the order in which workers added to it, so a
// hundredth of that is none.
func shareError(variance float64, total int64) float64 {
	return math.Ceil(1.96*math.Sqrt(variance)/float64(total)*1e4-0.01) / 1e4
}
