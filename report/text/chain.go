package text

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// A stretch is one or several segments in a row, shown as one line.
type stretch struct {
	start, duration int64
	parts           int
	seg             *report.Segment // the longest of them
	causes          []report.CauseName
}

// shortest is the part of a request below which a segment is not worth a line of its own.
const shortest = 500

// stretches joins segments in a row that have the same cause and site. If more than most remain, it keeps about half as
// many of the longest, none of them shorter than least, and joins what lies between them.
func stretches(segs []report.Segment, most int, least int64) []stretch {
	var out []stretch
	for i := range segs {
		s := &segs[i]
		if n := len(out); n > 0 && out[n-1].seg.Cause == s.Cause && out[n-1].seg.Kind == s.Kind && out[n-1].seg.Site.Equal(s.Site) {
			out[n-1].duration += s.DurationNS
			continue
		}
		out = append(out, stretch{s.StartNS, s.DurationNS, 1, s, []report.CauseName{s.Cause}})
	}
	if len(out) <= most {
		return out
	}
	order := make([]int, len(out))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(out[b].duration, out[a].duration) })
	keep := make([]bool, len(out))
	for _, i := range order[:(most+1)/2] {
		keep[i] = out[i].duration >= least
	}
	var joined []stretch
	for i := range out {
		n := len(joined)
		if keep[i] || n == 0 || i > 0 && keep[i-1] {
			joined = append(joined, out[i])
			continue
		}
		j := &joined[n-1]
		if out[i].duration > j.seg.DurationNS {
			j.seg = out[i].seg
		}
		j.duration += out[i].duration
		j.parts++
		if !slices.Contains(j.causes, out[i].seg.Cause) {
			j.causes = append(j.causes, out[i].seg.Cause)
		}
	}
	return joined
}

// chain shows a request as its segments on one scale.
func (p *page) chain(g *report.Group, r *report.Request) {
	if len(r.Segments) == 0 {
		return
	}
	p.line(span{dim, "  slow request of "}, span{bold, words.Duration(r.LatencyNS)},
		span{dim, " at " + words.Duration(r.StartNS) + " on goroutine " + strconv.FormatUint(r.Goroutine, 10)})
	p.ids(r)
	list := stretches(r.Segments, maxSegments, r.LatencyNS/shortest)
	barWidth := 14
	switch {
	case p.width >= 116:
		barWidth = 28
	case p.width >= 96:
		barWidth = 20
	}
	u := words.UnitFor(r.LatencyNS)
	startWidth, durWidth := 0, 0
	for _, s := range list {
		startWidth = max(startWidth, termtext.Width(u.Format(s.start-r.StartNS)))
		durWidth = max(durWidth, termtext.Width(u.Format(s.duration)))
	}
	for i := range list {
		s := &list[i]
		spans := []span{{dim, "  +" + termtext.PadLeft(u.Format(s.start-r.StartNS), startWidth) + " "}, {plain, bar(s, r, barWidth)}, right(plain, u.Format(s.duration), durWidth+1), {plain, "  "}}
		spans[1].style = names.CauseStyle(s.seg.Cause)
		if s.parts > 1 {
			spans[1].style = dim
			spans = append(spans, span{dim, termtext.Head(strconv.Itoa(s.parts)+" short segments: "+words.List(s.causes), p.width-widthOf(spans))})
			p.line(spans...)
			continue
		}
		spans = append(spans, left(names.CauseStyle(s.seg.Cause), causeName(s.seg.Cause), causeColumn-1))
		if s.seg.Kind != "" {
			spans = append(spans, span{plain, termtext.Head(s.seg.Kind, 20) + " "})
		}
		on := ""
		if s.seg.Goroutine != 0 && s.seg.Goroutine != r.Goroutine && p.width >= 96 {
			on = "g" + strconv.FormatUint(s.seg.Goroutine, 10) + " "
		}
		spans = append(spans, span{dim, on})
		p.line(append(spans, place(s.seg.Site, p.width-widthOf(spans))...)...)
	}
}

// ids says by which names a tracing system knows a request.
func (p *page) ids(r *report.Request) {
	var ids []string
	for _, id := range []struct{ name, value string }{{"trace", r.TraceID}, {"span", r.SpanID}, {"parent span", r.ParentSpanID}, {"Datadog span", r.DatadogSpanID}} {
		if id.value != "" {
			ids = append(ids, id.name+" "+termtext.Head(id.value, 40))
		}
	}
	if r.Status != "" {
		ids = append(ids, "status "+termtext.Head(r.Status, 40))
	}
	if len(ids) > 0 {
		p.paragraph(span{dim, "  "}, 4, span{dim, strings.Join(ids, ", ")})
	}
}

// bar draws where in a request a stretch lies.
func bar(s *stretch, r *report.Request, width int) string {
	if r.LatencyNS <= 0 {
		return strings.Repeat(" ", width)
	}
	at := func(ns int64) int {
		return min(max(int(float64(ns)/float64(r.LatencyNS)*float64(width)+0.5), 0), width)
	}
	from, to := at(s.start-r.StartNS), at(s.start-r.StartNS+s.duration)
	if from == to {
		from = min(from, width-1)
		return strings.Repeat(" ", from) + "▏" + strings.Repeat(" ", width-1-from)
	}
	return strings.Repeat(" ", from) + strings.Repeat("█", to-from) + strings.Repeat(" ", width-to)
}
