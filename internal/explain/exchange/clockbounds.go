package exchange

import (
	"cmp"
	"math"
	"slices"
)

// Bounds are facts about the offset of a server's clock, by time of that clock: a request was not read before it was sent, and an
// answer did not arrive before it was written. The clocks of two machines also run at different rates, so the offset is a line. The lines
// that contradict no bound are a polygon in the space of (offset, rate).
type bounds struct {
	offset, ref int64 // the origin of points
	// lows and highs are the points above and below which the line is: only those of the convex hulls.
	lows, highs []boundPoint
	isChanged   bool
	vertices    []offsetLine // of the polygon
	excess      float64      // ns by which the line contradicts some bounds
}

// A boundPoint is a bound of the offset at a time.
type boundPoint struct{ time, offset float64 }

// An offsetLine is an offset at time 0, and its growth in ns each ns.
type offsetLine struct{ offset, rate float64 }

// offsetAt returns the line's offset at a time.
func (l offsetLine) offsetAt(time float64) float64 { return l.offset + l.rate*time }

// maxRate is the greatest difference of the rates of two clocks: NTP changes a rate by at most 500 ppm.
const maxRate = 500e-6

// maxExcessNS is by how much a line may contradict bounds: clocks do not keep one rate.
const maxExcessNS = 20e3

// tryAdd calls add, which adds bounds. If they contradict the earlier bounds by more than maxExcessNS, it removes them and
// returns false.
func (b *bounds) tryAdd(add func()) bool {
	old := b.clone()
	if add(); b.solve() && b.excess > maxExcessNS {
		*b = *old
		return false
	}
	return true
}

// clone returns a copy whose bounds can be changed.
func (b *bounds) clone() *bounds {
	out := *b
	out.lows, out.highs = slices.Clone(b.lows), slices.Clone(b.highs)
	return &out
}

// add adds the bounds that follow if request r answers exchange x: r was not read before x was sent, and the answer did not
// arrive before it was written.
func (b *bounds) add(r *Request, x Exchange) {
	low, high := r.offsetRange(x)
	if x.Sent != math.MinInt64 {
		b.lows = append(b.lows, b.point(x.Sent-low, low))
	}
	b.highs = append(b.highs, b.point(r.AnswerTime, high))
}

// point returns a bound of ns at time t, relative to the origin of the points, for a caller that adds it: the first one sets the
// origin.
func (b *bounds) point(t, ns int64) boundPoint {
	if !b.isChanged && b.vertices == nil {
		b.ref = t
	}
	b.isChanged = true
	return boundPoint{float64(t - b.ref), float64(ns - b.offset)}
}

// solve computes the polygon of lines that contradict no bound. If there is none, it allows every bound an error that it doubles
// until there is one (excess). It returns false if bounds from one of the two sides are missing.
func (b *bounds) solve() bool {
	if !b.isChanged {
		return b.vertices != nil
	}
	b.lows, b.highs = hull(b.lows, 1), hull(b.highs, -1)
	if len(b.lows) == 0 || len(b.highs) == 0 {
		return false
	}
	b.isChanged = false
	for excess := 1.0; ; excess *= 2 { // 1 ns: times are rounded
		if b.vertices = b.linesWithin(excess); b.vertices != nil {
			b.excess = excess
			return true
		}
	}
}

// hull returns the upper convex hull of points if sign is 1, the lower one if it is -1, in the order of time. The result is in
// the memory of points, whose content is lost.
func hull(points []boundPoint, sign float64) []boundPoint {
	slices.SortFunc(points, func(a, b boundPoint) int { return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.offset, b.offset)) })
	out := points[:0]
	for _, p := range points {
		for n := len(out); n > 0; n = len(out) {
			isInside := out[n-1].time == p.time && sign*out[n-1].offset <= sign*p.offset
			if n > 1 && !isInside {
				a, b := out[n-2], out[n-1]
				isInside = sign*((b.offset-a.offset)*(p.time-a.time)-(p.offset-a.offset)*(b.time-a.time)) <= 0
			}
			if !isInside {
				break
			}
			out = out[:n-1]
		}
		if n := len(out); n == 0 || out[n-1].time != p.time {
			out = append(out, p)
		}
	}
	return out
}

// linesWithin returns the vertices of the polygon of lines that contradict each bound by at most excess ns and whose rate is at
// most maxRate; nil if it is empty.
func (b *bounds) linesWithin(excess float64) (out []offsetLine) {
	points := make([]boundPoint, 0, len(b.lows)+len(b.highs))
	for _, p := range b.lows {
		points = append(points, boundPoint{p.time, p.offset - excess})
	}
	for _, p := range b.highs {
		points = append(points, boundPoint{p.time, p.offset + excess})
	}
	const rounding = 0.01
	add := func(p boundPoint, rate float64) {
		line := offsetLine{p.offset - rate*p.time, rate}
		for i, p := range points {
			if d := line.offsetAt(p.time) - p.offset; i < len(b.lows) && d < -rounding || i >= len(b.lows) && d > rounding {
				return
			}
		}
		out = append(out, line)
	}
	for i, p := range points {
		add(p, maxRate)
		add(p, -maxRate)
		for _, q := range points[i+1:] {
			if rate := (q.offset - p.offset) / (q.time - p.time); rate > -maxRate && rate < maxRate {
				add(p, rate)
			}
		}
	}
	return out
}

// center returns the mean of the polygon's vertices: a line in the middle of the possible ones.
func (b *bounds) center() (out offsetLine) {
	for _, v := range b.vertices {
		out.offset += v.offset / float64(len(b.vertices))
		out.rate += v.rate / float64(len(b.vertices))
	}
	return out
}

// slack returns the greatest error, in ns, of an offset line between the server's times from and to: its distance from the other
// lines of the polygon.
func (b *bounds) slack(line offsetLine, from, to int64) int64 {
	out := 0.0
	for _, t := range []float64{float64(from - b.ref), float64(to - b.ref)} {
		for _, v := range b.vertices {
			out = max(out, v.offsetAt(t)-line.offsetAt(t), line.offsetAt(t)-v.offsetAt(t))
		}
	}
	return int64(out+b.excess) + 1
}
