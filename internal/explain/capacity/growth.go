package capacity

import (
	"cmp"
	"math"
	"slices"

	"github.com/whylate/whylate/report"
)

// AddGrowth corrects the saturation loads of a capacity by a second recording with less load, extrapolating the line through
// both. If a request needs less of a resource at more load, the process uses a part without any requests: use = c0 + c1 X. If
// it needs more, the demand itself grows with the load: D = d0 + d1 X. It does nothing if the loads differ by less than a
// fifth.
func AddGrowth(c, low *report.Capacity) {
	if low.LoadPerS <= 0 || c.LoadPerS < 1.2*low.LoadPerS {
		return // the difference is noise
	}
	for i := range c.Limits {
		l := &c.Limits[i]
		k := slices.IndexFunc(low.Limits, func(o report.Limit) bool { return o.Kind == l.Kind && o.Site.Matches(l.Site) })
		if k < 0 {
			continue
		}
		o := &low.Limits[k]
		l.Growth = &report.Growth{LoadPerS: [2]float64{low.LoadPerS, c.LoadPerS}, DemandNS: [2]int64{o.DemandNS, l.DemandNS}}
		d0, d1 := float64(o.DemandNS), float64(l.DemandNS)
		capacity := l.Servers * 1e9 // in use, in ns a second
		saturates := l.SaturatesPerS
		switch slope := (d1 - d0) / (c.LoadPerS - low.LoadPerS); {
		case slope > 0:
			base := d0 - slope*low.LoadPerS // X (base + slope X) = capacity
			saturates = (math.Sqrt(base*base+4*slope*capacity) - base) / (2 * slope)
		case slope < 0:
			perRequest := (d1*c.LoadPerS - d0*low.LoadPerS) / (c.LoadPerS - low.LoadPerS)
			if idle := (d0 - perRequest) * low.LoadPerS; perRequest > 0 && idle < capacity {
				saturates = (capacity - idle) / perRequest
			}
		}
		factor := saturates / l.SaturatesPerS
		l.SaturatesPerS = roundToThreeDigits(saturates)
		l.SaturatesLow, l.SaturatesHigh = roundToThreeDigits(l.SaturatesLow*min(1, factor)), roundToThreeDigits(l.SaturatesHigh*max(1, factor))
	}
	slices.SortStableFunc(c.Limits, func(x, y report.Limit) int { return cmp.Compare(x.SaturatesPerS, y.SaturatesPerS) })
	c.Text = Text(c)
}
