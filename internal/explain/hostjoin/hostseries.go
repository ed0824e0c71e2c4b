package hostjoin

import (
	"iter"

	"github.com/whylate/whylate/report"
)

// maxSeries bounds the number of points of each series.
const maxSeries = 500

// addSeries sets the report's series of host counters over time.
func (v *view) addSeries(out *report.HostSeries) {
	out.ThrottledNS, out.RunDelayNS, out.CPUNS, out.RSSBytes = v.growthSeries(v.throttledSteps()), v.growthSeries(v.delaySteps()), v.growthSeries(v.cpuSteps()), v.rssSeries()
	out.Retransmitted = [][2]int64{}
	for _, e := range v.s.Events {
		if e.Retransmitted == 0 || e.Peer || !v.contains(e.Poll) {
			continue
		}
		if len(out.Retransmitted) == maxSeries {
			break
		}
		out.Retransmitted = append(out.Retransmitted, [2]int64{v.traceTime(e.Poll), e.Retransmitted})
	}
}

// growthSeries returns the growth of a counter as [time, growth], one point for each pointWidth. The time is the end of its last
// step, in ns since the start of the trace.
func (v *view) growthSeries(steps iter.Seq[step]) [][2]int64 {
	width, list := v.pointWidth(), [][2]int64{}
	for d := range steps {
		n, t := d.growthIn(v.from, v.to), min(d.to, v.to)-v.start
		if k := len(list) - 1; k >= 0 && t/width == list[k][0]/width {
			list[k] = [2]int64{t, list[k][1] + n}
			continue
		}
		list = append(list, [2]int64{t, n})
	}
	return list
}

// pointWidth returns the time between two points of a series.
func (v *view) pointWidth() int64 { return max((v.to-v.from)/maxSeries, v.s.IntervalNS, 1) }

// rssSeries returns the process's largest resident memory in each pointWidth as [time, bytes]; the time is that of the first
// sample in it, in ns since the trace's start. It is not nil.
func (v *view) rssSeries() [][2]int64 {
	width, list := v.pointWidth(), [][2]int64{}
	for i := range v.s.Points {
		p := &v.s.Points[i]
		if p.RSSBytes == nil || !v.contains(p.MonoNS) {
			continue
		}
		t := v.traceTime(p.MonoNS)
		if k := len(list) - 1; k >= 0 && t/width == list[k][0]/width {
			list[k][1] = max(list[k][1], *p.RSSBytes)
			continue
		}
		list = append(list, [2]int64{t, *p.RSSBytes})
	}
	return list
}
