package compare

import (
	"math"

	"github.com/whylate/whylate/report"
)

// The smallest changes that are evidence, relative to the latency, whatever the interval is: an interval shows how much latency varies
// within recordings, and not between them. On a machine on which threads rarely wait for a CPU, two starts of one service differ by
// about 1 % in values that are constant within each, and percentiles of blocks come from buckets that are 3 % wide. Where other
// processes use the CPUs, or it is unknown, means and medians of recordings of one program seconds apart differ by up to 15 %, other
// percentiles by up to 20 % (docs/internals/diff.md).
const (
	minMeanChange       = 0.02
	minPercentileChange = 0.032
	minNoisyMiddle      = 0.15
	minNoisyTail        = 0.20
	// quietPressure is the largest share of time in which a thread of any process waits for a CPU of a quiet machine.
	quietPressure = 0.05
	// minHintRatio is the smallest ratio of two latencies that a reader takes for a change.
	minHintRatio = 1.5
	// hintAlpha is the probability that the interval of a hint does not contain the true difference.
	hintAlpha = 0.1
	// maxHintChance is a little more than 1/8, the chance of four episodes on one side and none on the other: few recordings are as long as another.
	maxHintChance = 0.15
)

// isQuiet reports whether the kernel's counters show that threads rarely waited for a CPU, in the process and on the machine.
func isQuiet(r *report.Report) bool {
	pressure := r.Host != nil && r.Host.Lost.PressureNS != nil && float64(*r.Host.Lost.PressureNS) < quietPressure*float64(r.Input.DurationNS)
	return pressure && r.WithoutCPU() < quietPressure
}

// A test is the requirements of evidence.
type test struct {
	alpha float64 // the probability that an interval does not contain the true difference
	quiet bool    // both recordings are from a quiet machine
}

// minChange returns the smallest change of a latency, such as "p99", that is evidence, as a share of the latency.
func (t test) minChange(name string) float64 {
	switch isMiddle := name == "mean" || name == "p50"; {
	case !t.quiet && isMiddle:
		return minNoisyMiddle
	case !t.quiet:
		return minNoisyTail
	case name == "mean":
		return minMeanChange
	}
	return minPercentileChange
}

// compareGroups compares the latencies and causes of a group in two reports. t has the level of significance and the smallest
// changes that count as evidence.
func compareGroups(old, new *report.Group, t test) Group {
	g := Group{
		ID: new.ID, Name: new.Name, Kind: new.Kind, Unit: new.Unit, OldCount: old.Count, NewCount: new.Count, OldOpen: old.Open.Count, NewOpen: new.Open.Count,
		Confidence: 1 - t.alpha, Causes: []Row{}, Tail: []Row{},
	}
	pair := pairOf(old, new, t.alpha)
	oldLatencies, newLatencies := latencies(old), latencies(new)
	for i, c := range g.Numbers() {
		*c.Change = Change{Old: oldLatencies[i], New: newLatencies[i]}
		if oldLatencies[i] == nil || newLatencies[i] == nil {
			continue
		}
		delta := *newLatencies[i] - *oldLatencies[i]
		c.Delta = &delta
		if pair == nil {
			continue
		}
		interval := func(p *sidePair) (low, high float64) {
			if c.Name == "mean" {
				return p.meanInterval(float64(delta))
			}
			return p.percentileInterval(quantiles[i-1], *oldLatencies[i], *newLatencies[i])
		}
		low, high := interval(pair)
		c.Low, c.High = roundBound(low), roundBound(high)
		c.Evidence = (low > 0 || high < 0) && math.Abs(float64(delta)) > t.minChange(c.Name)*float64(max(*oldLatencies[i], *newLatencies[i]))
		old, new := float64(*oldLatencies[i]), float64(*newLatencies[i])
		if !c.Evidence && max(old, new) >= minHintRatio*min(old, new) {
			low, high = interval(&sidePair{pair.old, pair.new, pair.studentFactor(hintAlpha)})
			c.Probable = low > 0 || high < 0
			if c.Name != "mean" {
				c.Episodes = pair.episodesAbove(math.Sqrt(old * new))
				c.Probable = c.Probable || c.Episodes.Chance <= maxHintChance
			}
		}
		g.Changed = g.Changed || c.Evidence
	}
	g.Causes = append(g.Causes, compareRows(old.All(), new.All())...)
	// The smallest change of a row is a part of the whole latency.
	var largerMean int64
	for _, l := range []*int64{old.LatencyNS.Mean, new.LatencyNS.Mean} {
		if l != nil {
			largerMean = max(largerMean, *l)
		}
	}
	if pair != nil {
		pair.setRowIntervals(g.Causes, old.All(), new.All(), t.alpha, t.minChange("mean")*float64(largerMean))
	}
	for i := range g.Causes {
		g.Changed = g.Changed || g.Causes[i].Evidence
	}
	if old.LatencyNS.P99 != nil && new.LatencyNS.P99 != nil {
		g.Tail = append(g.Tail, compareRows(slowestBand(old), slowestBand(new))...)
	}
	return g
}
