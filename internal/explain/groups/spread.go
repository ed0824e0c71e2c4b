package groups

import (
	"math"

	"github.com/whylate/whylate/internal/explain/loglinear"
	"github.com/whylate/whylate/internal/explain/path"
)

// A spread says how far a sum may be off that requests with weights were added
// up to. One of weight w that spent x adds w(w-1)x to lin and w(w-1)x² to sq. What
// was walked for itself alone, w being 1, adds nothing.
type spread struct{ lin, sq float64 }

func (s *spread) spend(x, times float64) {
	s.lin += times * x
	s.sq += times * x * x
}

func (s *spread) add(o spread) {
	s.lin += o.lin
	s.sq += o.sq
}

// variances are those of times by cause. With n the sum of w(w-1) over all
// requests of a stratum, whether they spent anything or not, that of a stratum is
// sq - lin²/n: of a sum over a sample of independent draws, about its mean
// (Särndal, Swensson and Wretman, Model Assisted Survey Sampling, 1992, sections
// 3.2 and 3.7). Strata are those by which requests were chosen.
type variances map[stratumOf]spread

type stratumOf struct{ stratum, cause int32 }

// stratum returns the stratum of a coarse bucket.
func stratum(bucket int32) int32 {
	return loglinear.Bucket(loglinear.Least(bucket, coarseBits), path.StratumBits)
}

func (v *variances) add(bucket, cause int32, s spread) {
	if s.sq == 0 {
		return
	}
	if *v == nil {
		*v = make(variances)
	}
	k := stratumOf{stratum(bucket), cause}
	sum := (*v)[k]
	sum.add(s)
	(*v)[k] = sum
}

func (v variances) byCause(weighed map[int32]float64, in map[int32]bool) map[int32]float64 {
	n := map[int32]float64{}
	for bucket, times := range weighed {
		if in[bucket] {
			n[stratum(bucket)] += times
		}
	}
	out := map[int32]float64{}
	for k, s := range v {
		out[k.cause] += max(0, s.sq-s.lin*s.lin/n[k.stratum])
	}
	return out
}

// shareError is half of the interval that has a share 95 times of a hundred, to a hundredth of a percent: it is an estimate,
// and the last bits of a variance depend on the order in which workers added to it.
func shareError(variance float64, total int64) float64 {
	return math.Round(1.96*math.Sqrt(variance)/float64(total)*1e4) / 1e4
}
