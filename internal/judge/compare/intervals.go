package compare

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/whylate/whylate/report"
)

// The intervals are computed by a circular block bootstrap (Politis and Romano, A circular block-resampling procedure for
// stationary data, 1992; after Künsch, The jackknife and the bootstrap for general stationary observations, 1989).
// Requests near each other in time share queues, collections and other processes on the machine, so they are not independent, and an
// interval that assumed independence would be far too narrow. A report has summaries of blocks of at least 250 ms. A resample draws
// runs of n^(1/3) adjacent blocks from the circle of all n blocks, until it has n blocks, and computes the mean, the percentiles and the
// causes from their sums. Both sides are resampled independently.
//
// The bounds are the percentiles of the resampled differences, moved to the difference of the reports, which have a higher resolution
// than the blocks' buckets. A percentile interval from few draws m is too narrow, by sqrt((m-1)/m) and because it treats the standard
// error as known (Hesterberg, What Teachers Should Know about the Bootstrap, 2015, section 4.1). So the distance of both bounds is
// multiplied by the ratio of Student's quantile for m-1 to the normal one, and by sqrt(m/(m-1)), where m is the number of runs in a
// resample of the shorter side: n^(2/3), 10 for a recording of 10 s.
//
// The random numbers of a side are seeded by its contents: equal input gives equal intervals, exchanging the sides changes only
// their signs, and the difference of a report from itself is exactly 0.
const (
	// Confidence is the confidence of one interval of a Diff or of a RunsChange. It is not 95 %: a diff has several numbers for every
	// group, and with one false alarm in twenty nearly every diff would have one.
	Confidence = 0.99
	resamples  = 1000
	// minBlocks is the smallest number of blocks of an interval: with fewer, almost all resamples are equal.
	minBlocks = 6
	// blockNS is the length of a report's blocks, unless the trace is long.
	blockNS = 250e6
)

// resampledStats are the resampled statistics of one side.
type resampledStats struct {
	draws   int // the number of independent draws of a resample
	seed    uint64
	latency [4][]float64 // mean, p50, p90, p99, each minus its value without resampling
	// causes contains, by cause, the time per request relative to that without resampling.
	causes map[report.CauseName][]float64
}

var quantiles = [3]float64{0.50, 0.90, 0.99}

// resample returns the statistics of resamples of a group, nil if it has too few blocks.
func resample(g *report.Group) *resampledStats {
	var blocks []*report.Block
	for i := range g.Blocks {
		if b := &g.Blocks[i]; b.Count > 0 {
			blocks = append(blocks, b)
		}
	}
	n := len(blocks)
	if n < minBlocks {
		return nil
	}
	buckets, counts := histogramColumns(blocks)
	causes, sums := causeColumns(blocks)
	length := int(math.Ceil(math.Cbrt(float64(n))))
	s := &resampledStats{draws: n / length, seed: seedOf(blocks), causes: map[report.CauseName][]float64{}}
	rng := rand.New(rand.NewPCG(s.seed, 1))
	weights := make([]int64, n)
	for i := range weights {
		weights[i] = 1
	}
	merged := make([]int64, len(buckets))
	stat := func() (latency [4]float64, byCause []float64) {
		var requests, total int64
		clear(merged)
		byCause = make([]float64, len(causes))
		for i, w := range weights {
			if w == 0 {
				continue
			}
			requests += w * int64(blocks[i].Count)
			total += w * blocks[i].TotalNS
			for _, c := range counts[i] {
				merged[c.bucket] += w * c.n
			}
			for c, ns := range sums[i] {
				byCause[c] += float64(w) * float64(ns)
			}
		}
		latency[0] = float64(total) / float64(requests)
		for i, q := range quantiles {
			latency[1+i] = quantile(buckets, merged, q)
		}
		for c := range byCause {
			byCause[c] /= float64(requests)
		}
		return latency, byCause
	}
	point, pointCauses := stat()
	for i := range s.latency {
		s.latency[i] = make([]float64, resamples)
	}
	for i, c := range causes {
		if pointCauses[i] > 0 {
			s.causes[c] = make([]float64, resamples)
		}
	}
	for k := range resamples {
		clear(weights)
		for drawn := 0; drawn < n; {
			start := rng.IntN(n)
			for i := 0; i < length && drawn < n; i++ {
				weights[(start+i)%n]++
				drawn++
			}
		}
		latency, byCause := stat()
		for i, v := range latency {
			s.latency[i][k] = v - point[i]
		}
		for c, v := range byCause {
			if pointCauses[c] > 0 {
				s.causes[causes[c]][k] = v / pointCauses[c]
			}
		}
	}
	return s
}

type bucketCount struct {
	bucket int
	n      int64
}

// histogramColumns returns the upper bounds of all buckets in order, and each block's counts by index into them.
func histogramColumns(blocks []*report.Block) ([]int64, [][]bucketCount) {
	index := map[int64]int{}
	var bounds []int64
	for _, b := range blocks {
		for _, p := range b.Histogram {
			if _, ok := index[p[0]]; !ok {
				index[p[0]] = 0
				bounds = append(bounds, p[0])
			}
		}
	}
	slices.Sort(bounds)
	for i, hi := range bounds {
		index[hi] = i
	}
	counts := make([][]bucketCount, len(blocks))
	for i, b := range blocks {
		for _, p := range b.Histogram {
			counts[i] = append(counts[i], bucketCount{index[p[0]], p[1]})
		}
	}
	return bounds, counts
}

func causeColumns(blocks []*report.Block) ([]report.CauseName, [][]int64) {
	isListed := map[report.CauseName]bool{}
	var names []report.CauseName
	for _, b := range blocks {
		for c := range b.Causes {
			if !isListed[c] {
				isListed[c] = true
				names = append(names, c)
			}
		}
	}
	slices.Sort(names)
	sums := make([][]int64, len(blocks))
	for i, b := range blocks {
		sums[i] = make([]int64, len(names))
		for k, c := range names {
			sums[i][k] = b.Causes[c]
		}
	}
	return names, sums
}

// quantile interpolates within the bucket that contains the rank, so that the result changes continuously with the counts.
func quantile(bounds, counts []int64, q float64) float64 {
	var n int64
	for _, c := range counts {
		n += c
	}
	if n == 0 {
		return 0
	}
	rank, count := q*float64(n), 0.0
	last := 0.0
	for i, c := range counts {
		if c == 0 {
			continue
		}
		hi := float64(bounds[i])
		lo := hi - bucketWidth(bounds[i])
		last = hi
		if count+float64(c) >= rank {
			return lo + (hi-lo)*(rank-count)/float64(c)
		}
		count += float64(c)
	}
	return last
}

// bucketWidth returns the width of the bucket with an upper bound: a report has 32 buckets to each power of two.
func bucketWidth(upper int64) float64 {
	if upper <= 64 {
		return 1
	}
	return float64(int64(1) << (bits.Len64(uint64(upper-1)) - 6))
}

// seedOf computes a seed from the contents of the blocks.
func seedOf(blocks []*report.Block) uint64 {
	h := fnv.New64a()
	var buf [8]byte
	write := func(v int64) {
		binary.LittleEndian.PutUint64(buf[:], uint64(v))
		h.Write(buf[:])
	}
	for _, b := range blocks {
		write(b.StartNS)
		write(int64(b.Count))
		write(b.TotalNS)
		for _, p := range b.Histogram {
			write(p[0])
			write(p[1])
		}
	}
	return h.Sum64()
}

// differences returns b-a, element by element, in order.
func differences(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = b[i] - a[i]
	}
	slices.Sort(out)
	return out
}

// interval returns the bounds of a difference, from the sorted deviations of its resamples. alpha is the probability that the
// bounds do not contain the true difference.
func interval(delta float64, deviations []float64, df int, alpha float64) (low, high float64) {
	// The same number of deviations is outside on both sides, so that exchanging the sides only changes the signs.
	k := int((1 - Confidence) / 2 * float64(len(deviations)))
	z := math.Sqrt2 * math.Erfinv(Confidence)
	factor := studentQuantile(1-alpha/2, df) / z * math.Sqrt(float64(df+1)/float64(df))
	below := max(0, -deviations[k]) * factor
	above := max(0, deviations[len(deviations)-1-k]) * factor
	return delta - below, delta + above
}

// studentQuantile returns the p-quantile, p > 0.5, of Student's t with df > 0 degrees of freedom, by bisection of the
// distribution's closed form for whole degrees of freedom (Abramowitz and Stegun, Handbook of Mathematical Functions,
// 26.7.3 and 26.7.4).
func studentQuantile(p float64, df int) float64 {
	lo, hi := 0.0, 1.0
	for studentCDF(hi, df) < p && hi < 1e9 {
		hi *= 2
	}
	for range 80 {
		if mid := (lo + hi) / 2; studentCDF(mid, df) < p {
			lo = mid
		} else {
			hi = mid
		}
	}
	return (lo + hi) / 2
}

func studentCDF(t float64, df int) float64 {
	theta := math.Atan(t / math.Sqrt(float64(df)))
	sin, cos := math.Sincos(theta)
	var centralProbability float64 // probability of [-t, t]
	if df%2 == 1 {
		sum, term := 0.0, cos
		for i := 1; i <= df-2; i += 2 {
			sum += term
			term *= cos * cos * float64(i+1) / float64(i+2)
		}
		centralProbability = 2 / math.Pi * (theta + sin*sum)
	} else {
		sum, term := 0.0, 1.0
		for i := 0; i <= df-2; i += 2 {
			sum += term
			term *= cos * cos * float64(i+1) / float64(i+2)
		}
		centralProbability = sin * sum
	}
	return (1 + centralProbability) / 2
}

// setRowIntervals sets the intervals of rows.
//
// The blocks of a report have causes but no sites. So the time of a site is assumed to vary as the time of its cause does and,
// in addition, as the number of requests that have the site varies by chance (binomial). For a row that every request has, the
// latter is 0; for a row of a single request it is as large as the row, so that one rare wait is never evidence.
//
// minChange is the smallest change, in ns per request, of a row with an interval. The bounds of these rows hold together
// (Bonferroni).
func setRowIntervals(rows []Row, oldBand, newBand *report.Band, a, b *resampledStats, df int, minChange float64) {
	examined := 0
	for i := range rows {
		if math.Abs(float64(rows[i].DeltaNS)) > minChange {
			examined++
		}
	}
	for i := range rows {
		r := &rows[i]
		if math.Abs(float64(r.DeltaNS)) <= minChange {
			continue
		}
		x := a.rowDeviations(r, r.OldSite, r.OldNS, oldBand)
		y := b.rowDeviations(r, r.NewSite, r.NewNS, newBand)
		low, high := interval(float64(r.DeltaNS), differences(x, y), df, (1-Confidence)/float64(examined))
		// If a list was capped, a missing row may be in its row "other".
		if r.OldNS == 0 {
			low -= maxHiddenTime(oldBand)
		}
		if r.NewNS == 0 {
			high += maxHiddenTime(newBand)
		}
		r.LowNS, r.HighNS = roundBound(low), roundBound(high)
		r.Evidence = low > 0 || high < 0
	}
}

// rowDeviations returns the deviations of one row's time per request.
func (s *resampledStats) rowDeviations(r *Row, site *report.Site, ns int64, band *report.Band) []float64 {
	out := make([]float64, resamples)
	if ns == 0 {
		return out
	}
	ratios := s.causes[r.Cause]
	found := band.Find(r.Cause, r.Kind, site)
	spread := 0.0
	if found != nil && band.Count > 0 {
		hit := max(found.Requests, 1)
		spread = math.Sqrt(max(0, 1-float64(hit)/float64(band.Count)) / float64(hit))
	}
	h := fnv.New64a()
	h.Write([]byte(string(r.Cause) + "\x00" + r.Kind))
	if site != nil {
		h.Write([]byte("\x00" + site.Func))
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(site.Line)))
	}
	rng := rand.New(rand.NewPCG(s.seed, h.Sum64()))
	for k := range out {
		ratio := 1.0
		if ratios != nil { // blocks do not have the row "other"
			ratio = ratios[k]
		}
		out[k] = float64(ns) * (ratio*(1+spread*rng.NormFloat64()) - 1)
	}
	return out
}

// maxHiddenTime returns the largest time per request that a row can have that a capped list leaves out.
func maxHiddenTime(b *report.Band) float64 {
	capped := slices.ContainsFunc(b.Causes, func(c report.Cause) bool { return c.Cause == report.CauseOther })
	if !capped || b.Count == 0 {
		return 0
	}
	smallest, otherNS := int64(math.MaxInt64), int64(0)
	for i := range b.Causes {
		if b.Causes[i].Cause == report.CauseOther {
			otherNS = b.Causes[i].TotalNS
		} else {
			smallest = min(smallest, b.Causes[i].TotalNS)
		}
	}
	return float64(min(smallest, otherNS)) / float64(b.Count)
}
