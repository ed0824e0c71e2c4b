package rows

import (
	"github.com/whylate/whylate/report"
)

// PredictedWin returns the time in ns that a fix would save for all requests of a group together. It is the smaller of two upper
// bounds:
//   - The prediction has the gain at the median, the 99th percentile and the maximum. Linear interpolation between them overestimates a
//     fault that affects few requests.
//   - The finding has the cause's share of the group's time, which overestimates the gain if another wait takes its place.
//
// Without a prediction the win is 0.
func PredictedWin(f *report.Finding, g *report.Group) int64 {
	p := f.Predicted
	if p == nil {
		return 0
	}
	gain := func(before *int64, after int64) float64 {
		if before == nil {
			return 0
		}
		return max(0, float64(*before)-float64(after))
	}
	medianGain, p99Gain := gain(p.WasP50NS, p.P50NS.Est), gain(p.WasP99NS, p.P99NS.Est)
	maxGain := p99Gain
	if p.MaxNS != nil {
		maxGain = max(p99Gain, gain(p.WasMaxNS, p.MaxNS.Est))
	}
	meanGain := 0.5*medianGain + 0.49*(medianGain+p99Gain)/2 + 0.01*(p99Gain+maxGain)/2
	return clampFloat(min(meanGain*float64(g.Count), f.Share*float64(g.TotalNS)), maxNS)
}
