package compare

import (
	"math"
	"math/bits"
	"slices"
	"sort"

	"github.com/whylate/whylate/report"
)

// Requests near each other in time share queues, collections and other processes on the machine, so they are not independent, and a
// test that assumed independence would find changes everywhere. A report has summaries of blocks of at least 250 ms. From them, all
// intervals are computed as follows.
//
// The variance of a sum over a recording is that of its blocks with their autocovariances up to a lag, in Bartlett's weights
// (Newey and West, A simple, positive semi-definite, heteroskedasticity and autocorrelation consistent covariance matrix, 1987). It is
// never smaller than for independent requests. The bounds use Student's distribution, and each side has as many degrees of freedom as
// there are separate intervals of that many blocks.
//
// A test asks whether both recordings can be of one process, so both sides have one variance, by their numbers of requests. This
// protects against rare events: without it, one recording with three slow seconds and one without any would differ for certain,
// because the latter does not vary.
//
// A percentile is compared by ranks, not by its distance: the test is whether the sides have different shares of requests above a
// threshold that is, on the logarithmic scale, in the middle of both percentiles (the two-sample test of a quantile: Mood, On the
// asymptotic efficiency of certain nonparametric two-sample tests, 1954). So very slow requests and distributions with two peaks need
// no exception. The interval of one side's percentile is the latencies above which the share of requests can be that of the percentile
// (Francisco and Fuller, Quantile estimation with a complex survey design, 1991), that of the difference comes from those of both
// sides (Zou and Donner, Construction of confidence limits about effect measures, 2008), and contains 0 if the test finds no difference.
const (
	// Confidence is the confidence of one interval of a population, and of a RunsChange. It is not 95 %: a diff has several numbers for
	// every population, and with one false alarm in twenty nearly every diff would have one.
	Confidence = 0.99
	// minBlocks is the smallest number of blocks of an interval.
	minBlocks = 6
	// blockNS is the length of a report's blocks, unless the trace is long.
	blockNS = 250e6
	// minCount is the smallest number of requests of each side of an interval.
	minCount = 10
)

var quantiles = [3]float64{0.50, 0.90, 0.99}

// A side is the requests of one report, by block.
type side struct {
	blocks []sideBlock
	bounds []int64 // upper bounds of all buckets, in order
	counts []int64 // requests in each bucket
	n      float64 // requests
	meanNS float64
	lags   int
	// durationNS is the time from its first block to its last.
	durationNS float64
	// variancePerRequest is the variance of single requests.
	variancePerRequest float64
}

type sideBlock struct {
	count, total float64
	buckets      []bucketCount
	causes       map[report.CauseName]int64
}

type bucketCount struct {
	bucket int
	n      int64
}

// hasInterval reports whether a group has enough requests and blocks for an interval.
func hasInterval(g *report.Group) bool {
	filled, n := 0, 0
	for i := range g.Blocks {
		if c := g.Blocks[i].Count; c > 0 {
			filled++
			n += c
		}
	}
	return filled >= minBlocks && n >= minCount
}

// sideOf returns the side of a group, with empty blocks where the report has none; nil if the group has too few requests or blocks for an interval.
func sideOf(g *report.Group) *side {
	if !hasInterval(g) {
		return nil
	}
	s := &side{}
	index := map[int64]int{}
	start, last := int64(0), int64(-1)
	for i := range g.Blocks {
		b := &g.Blocks[i]
		if b.Count <= 0 {
			continue
		}
		// A report has no blocks without requests, but they are part of the time.
		if last >= 0 && b.DurationNS > 0 && b.StartNS > last {
			for range min((b.StartNS-last)/b.DurationNS, maxGap) {
				s.blocks = append(s.blocks, sideBlock{})
			}
		}
		last = b.StartNS + b.DurationNS
		if len(s.blocks) == 0 {
			start = b.StartNS
		}
		s.durationNS = float64(last - start)
		s.n += float64(b.Count)
		s.meanNS += float64(b.TotalNS)
		s.blocks = append(s.blocks, sideBlock{count: float64(b.Count), total: float64(b.TotalNS), causes: b.Causes})
		for _, p := range b.Histogram {
			if _, ok := index[p[0]]; !ok {
				index[p[0]] = 0
				s.bounds = append(s.bounds, p[0])
			}
		}
	}
	s.meanNS /= s.n
	slices.Sort(s.bounds)
	for i, upper := range s.bounds {
		index[upper] = i
	}
	s.counts = make([]int64, len(s.bounds))
	k := 0
	for i := range s.blocks {
		if s.blocks[i].count == 0 {
			continue
		}
		for g.Blocks[k].Count <= 0 {
			k++
		}
		for _, p := range g.Blocks[k].Histogram {
			s.counts[index[p[0]]] += p[1]
			s.blocks[i].buckets = append(s.blocks[i].buckets, bucketCount{index[p[0]], p[1]})
		}
		k++
	}
	for i, c := range s.counts {
		distance := float64(s.bounds[i]) - bucketWidth(s.bounds[i])/2 - s.meanNS
		s.variancePerRequest += float64(c) * distance * distance / s.n
	}
	s.lags = int(math.Ceil(lagFactor * math.Sqrt(float64(len(s.blocks)))))
	return s
}

const (
	// maxGap bounds the blocks without requests between two others, which come from numbers of a file.
	maxGap = 256
	// lagFactor times the cube root of the number of blocks is the number of lags: a second of a recording of 10 s.
	lagFactor = 1.3
)

// variance returns the variance per request of a mean over the side (divide by n for that of the mean): deviation returns by how much a block's sum
// differs from its expectation. Blocks may depend on each other up to s.lags blocks apart. minPart is the smallest part of the blocks' own variance
// to which their covariances can reduce it.
func (s *side) variance(minPart float64, deviation func(b *sideBlock) float64) float64 {
	z := make([]float64, len(s.blocks))
	for i := range s.blocks {
		z[i] = deviation(&s.blocks[i])
	}
	covariance := func(lag int) (sum float64) {
		for i := lag; i < len(z); i++ {
			sum += z[i] * z[i-lag]
		}
		return sum
	}
	squares := covariance(0)
	total := squares
	for lag := 1; lag <= min(s.lags, len(z)-1); lag++ {
		total += 2 * (1 - float64(lag)/float64(s.lags+1)) * covariance(lag)
	}
	// The deviations are from the side's own mean, which makes this smaller than it is: by the sum of all weights, for independent
	// blocks.
	n, window := float64(len(z)), float64(min(s.lags, len(z)-1)+1)
	total *= n / (n - window + (window*window-1)/(3*n))
	return max(total, minPart*squares*n/(n-1)) / s.n
}

// minVariancePart is the smallest part of the blocks' own variance to which regular events, such as those of a timer, reduce that of a
// sum.
const minVariancePart = 0.25

// shareAbove returns the share of requests that are slower than a threshold, within a bucket by interpolation, and its variance per
// request.
func (s *side) shareAbove(threshold float64) (share, variance float64) {
	parts := make([]float64, len(s.bounds))
	for i, upper := range s.bounds {
		parts[i] = max(0, min(1, (float64(upper)-threshold)/bucketWidth(upper)))
		share += parts[i] * float64(s.counts[i]) / s.n
	}
	return share, s.variance(minVariancePart, func(b *sideBlock) float64 {
		sum := -share * b.count
		for _, c := range b.buckets {
			sum += parts[c.bucket] * float64(c.n)
		}
		return sum
	})
}

// episodesAbove returns the number of runs of blocks in each of which a request is slower than a threshold.
func (s *side) episodesAbove(threshold float64) (episodes int) {
	wasSlow := false
	for i := range s.blocks {
		isSlow := slices.ContainsFunc(s.blocks[i].buckets, func(c bucketCount) bool {
			return c.n > 0 && float64(s.bounds[c.bucket])-bucketWidth(s.bounds[c.bucket]) >= threshold
		})
		if isSlow && !wasSlow {
			episodes++
		}
		wasSlow = isSlow
	}
	return episodes
}

// A sidePair is two sides that are compared.
type sidePair struct {
	old, new *side
	factor   float64 // Student's
}

// pairOf returns the pair of two groups; nil if one has too few requests or blocks. alpha is the probability that an interval does
// not contain the true difference.
func pairOf(old, new *report.Group, alpha float64) *sidePair {
	p := &sidePair{old: sideOf(old), new: sideOf(new)}
	if p.old == nil || p.new == nil {
		return nil
	}
	p.factor = p.studentFactor(alpha)
	return p
}

// studentFactor returns the quantile of Student's t distribution for two-sided intervals at level alpha. Its degrees of freedom
// are the independent blocks of both sides.
func (p *sidePair) studentFactor(alpha float64) float64 {
	df := 0.0
	for _, s := range []*side{p.old, p.new} {
		df += float64(len(s.blocks)) / float64(s.lags+1)
	}
	return studentQuantile(1-alpha/2, max(1, int(df)))
}

// pooledVariance returns the variance per request of both sides, from that of each, if both are of one process with at least
// the variance smallest.
func (p *sidePair) pooledVariance(oldVariance, newVariance, smallest float64) float64 {
	return max((p.old.n*oldVariance+p.new.n*newVariance)/(p.old.n+p.new.n), smallest)
}

// episodesAbove returns the episodes of both sides above a threshold.
func (p *sidePair) episodesAbove(threshold float64) *Episodes {
	old, new := p.old.episodesAbove(threshold), p.new.episodesAbove(threshold)
	return &Episodes{old, new, chance(old, new, p.old.durationNS/(p.old.durationNS+p.new.durationNS))}
}

// chance returns the probability that old+new events, each of which is in the old recording with probability part, are divided at least as
// unevenly: the two-sided sign test.
func chance(old, new int, part float64) float64 {
	n := old + new
	atMost, atLeast := 0.0, 0.0 // the probabilities of so many in the old recording
	for i, probability := 0, math.Pow(1-part, float64(n)); i <= n; i++ {
		if i <= old {
			atMost += probability
		}
		if i >= old {
			atLeast += probability
		}
		probability *= part / (1 - part) * float64(n-i) / float64(i+1)
	}
	return min(1, 2*min(atMost, atLeast))
}

// meanInterval returns the bounds of the difference (new less old) of the mean latencies, in ns; delta is the measured difference.
func (p *sidePair) meanInterval(delta float64) (low, high float64) {
	deviation := func(s *side) func(*sideBlock) float64 {
		return func(b *sideBlock) float64 { return b.total - s.meanNS*b.count }
	}
	a, b := p.old.n, p.new.n
	smallest := (a*p.old.variancePerRequest + b*p.new.variancePerRequest) / (a + b)
	distance := p.factor * math.Sqrt(p.pooledVariance(p.old.variance(minVariancePart, deviation(p.old)), p.new.variance(minVariancePart, deviation(p.new)), smallest)*(1/a+1/b))
	return clip(delta-distance, delta+distance, p.old.meanNS, p.new.meanNS)
}

// clip returns the bounds low and high of the difference new-old of two latencies, in ns, within those that are possible:
// neither latency is negative.
func clip(low, high, old, new float64) (float64, float64) {
	return max(low, min(-old, new-old)), min(high, max(new, new-old))
}

// percentileInterval returns the bounds, in ns, of the difference of a percentile, the quantile q, which is oldNS and newNS on
// the two sides.
func (p *sidePair) percentileInterval(q float64, oldNS, newNS int64) (low, high float64) {
	a, b := p.old.n, p.new.n
	old, new := float64(max(1, oldNS)), float64(max(1, newNS))
	middle := math.Sqrt(old * new)
	oldShare, oldVariance := p.old.shareAbove(middle)
	newShare, newVariance := p.new.shareAbove(middle)
	all := (a*oldShare + b*newShare) / (a + b)
	differs := math.Abs(oldShare-newShare) > p.factor*math.Sqrt(p.pooledVariance(oldVariance, newVariance, all*(1-all))*(1/a+1/b))

	// How much more the share varies than for independent requests is best known at the percentiles themselves, on both sides.
	_, oldVariance = p.old.shareAbove(old)
	_, newVariance = p.new.shareAbove(new)
	effect := p.pooledVariance(oldVariance, newVariance, q*(1-q)) / (q * (1 - q))
	oldLow, oldHigh := p.old.percentileBounds(q, p.factor, effect, old)
	newLow, newHigh := p.new.percentileBounds(q, p.factor, effect, new)
	low = new - old - math.Hypot(new-newLow, oldHigh-old)
	high = new - old + math.Hypot(newHigh-new, old-oldLow)
	if !differs {
		low, high = min(low, 0), max(high, 0)
	}
	return clip(low, high, old, new)
}

// percentileBounds returns the latencies around ns, the quantile q, at which the share of slower requests can be 1-q: within factor standard errors.
// effect is the smallest ratio of a share's variance to that of independent requests.
func (s *side) percentileBounds(q, factor, effect, ns float64) (low, high float64) {
	isPossible := func(threshold float64) bool {
		share, variance := s.shareAbove(threshold)
		return math.Abs(share-(1-q)) <= factor*math.Sqrt(max(variance, effect*share*(1-share), q*(1-q))/s.n)
	}
	bucket, _ := slices.BinarySearch(s.bounds, int64(ns))
	bucket = min(bucket, len(s.bounds)-1)
	// The first possible bucket, and the first above that is not. The percentile's own bucket is possible: it has no finer resolution.
	first := sort.Search(bucket, func(i int) bool { return isPossible(float64(s.bounds[i])) })
	last := bucket + 1 + sort.Search(len(s.bounds)-bucket-1, func(i int) bool {
		upper := s.bounds[bucket+1+i]
		return !isPossible(float64(upper) - bucketWidth(upper))
	})
	return min(ns, float64(s.bounds[first])-bucketWidth(s.bounds[first])), max(ns, float64(s.bounds[last-1]))
}

// quantile returns the quantile q of a histogram with these upper bounds and counts of buckets. It interpolates within the
// bucket that contains the rank.
func quantile(bounds, counts []int64, q float64) float64 {
	var n int64
	for _, c := range counts {
		n += c
	}
	rank, count, last := max(0, min(q, 1))*float64(n), 0.0, 0.0
	for i, c := range counts {
		if c == 0 {
			continue
		}
		last = float64(bounds[i])
		if count+float64(c) >= rank {
			return last - bucketWidth(bounds[i])*(1-(rank-count)/float64(c))
		}
		count += float64(c)
	}
	return last
}

// bucketWidth returns the width, in ns, of the bucket with an upper bound: a report has 32 buckets to each power of two.
func bucketWidth(upper int64) float64 {
	if upper <= 64 {
		return 1
	}
	return float64(int64(1) << (bits.Len64(uint64(upper-1)) - 6))
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

// studentCDF returns the probability of a value of at most t, for t >= 0, by Student's distribution with df degrees of freedom.
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
