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

// A segmentRun is one or several consecutive segments, shown as one line.
type segmentRun struct {
	start, duration int64
	segments        int
	longest         *report.Segment // the longest of them
	causes          []report.CauseName
}

// A segment shorter than 1/minRunFraction of its request gets no separate line.
const minRunFraction = 500

// joinSegments joins consecutive segments that have the same cause and site. If more than maxRuns remain, it keeps the longest, about
// half of maxRuns and none shorter than minDuration, and joins the segments between them.
func joinSegments(segs []report.Segment, maxRuns int, minDuration int64) []segmentRun {
	var out []segmentRun
	for i := range segs {
		s := &segs[i]
		if n := len(out); n > 0 && out[n-1].longest.Cause == s.Cause && out[n-1].longest.Kind == s.Kind && out[n-1].longest.Site.Equal(s.Site) && out[n-1].longest.Service == s.Service {
			out[n-1].duration += s.DurationNS
			continue
		}
		out = append(out, segmentRun{s.StartNS, s.DurationNS, 1, s, []report.CauseName{s.Cause}})
	}
	if len(out) <= maxRuns {
		return out
	}
	order := make([]int, len(out))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(out[b].duration, out[a].duration) })
	isKept := make([]bool, len(out))
	for _, i := range order[:(maxRuns+1)/2] {
		isKept[i] = out[i].duration >= minDuration
	}
	var runs []segmentRun
	for i := range out {
		n := len(runs)
		if isKept[i] || n == 0 || i > 0 && isKept[i-1] {
			runs = append(runs, out[i])
			continue
		}
		j := &runs[n-1]
		if out[i].duration > j.longest.DurationNS {
			j.longest = out[i].longest
		}
		j.duration += out[i].duration
		j.segments++
		if !slices.Contains(j.causes, out[i].longest.Cause) {
			j.causes = append(j.causes, out[i].longest.Cause)
		}
	}
	return runs
}

// chain writes a request's segments, each with a bar on the request's time scale.
func (p *page) chain(r *report.Request) {
	if len(r.Segments) == 0 {
		return
	}
	p.line(span{dim, "  slow request of "}, span{bold, words.Duration(r.LatencyNS)},
		span{dim, " at " + words.Duration(r.StartNS) + " on goroutine " + strconv.FormatUint(r.Goroutine, 10)})
	p.ids(r)
	list := joinSegments(r.Segments, maxSegments, r.LatencyNS/minRunFraction)
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
		spans := []span{{dim, "  +" + termtext.PadLeft(u.Format(s.start-r.StartNS), startWidth) + " "}, {plain, bar(s, r, barWidth)}, padLeft(plain, u.Format(s.duration), durWidth+1), {plain, "  "}}
		spans[1].style = names.CauseStyle(s.longest.Cause)
		if s.segments > 1 {
			spans[1].style = dim
			spans = append(spans, span{dim, termtext.Head(strconv.Itoa(s.segments)+" short segments: "+words.List(s.causes), p.width-widthOf(spans))})
			p.line(spans...)
			continue
		}
		spans = append(spans, padRight(names.CauseStyle(s.longest.Cause), causeName(s.longest.Cause), causeColumn-1))
		if way := s.longest.WayTo; way != "" {
			spans = append(spans, span{plain, "on the way to " + termtext.Head(way, 20) + clockError(s.longest.ClockErrorNS) + " "})
		} else if s.longest.Peer != "" {
			spans = append(spans, span{plain, termtext.Head(s.longest.Peer, max(20, p.width/2)) + " "})
		} else if s.longest.Kind != "" && s.longest.Cause != report.CauseQueue {
			spans = append(spans, span{plain, termtext.Head(s.longest.Kind, 20) + " "})
		}
		on := ""
		if s.longest.Service != "" {
			on = termtext.Head(s.longest.Service, 20) + " "
			if s.longest.ServiceGoroutine != 0 {
				on += "g" + strconv.FormatUint(s.longest.ServiceGoroutine, 10) + " "
			}
		} else if s.longest.Goroutine != 0 && s.longest.Goroutine != r.Goroutine && p.width >= 96 {
			on = "g" + strconv.FormatUint(s.longest.Goroutine, 10) + " "
		}
		spans = append(spans, span{dim, on})
		p.line(append(spans, siteSpans(s.longest.Site, p.width-widthOf(spans))...)...)
	}
}

// clockError returns the error of a time of another service's clock.
func clockError(ns int64) string {
	if ns == 0 {
		return ""
	}
	return " ±" + words.Duration(ns)
}

// ids writes the request's ids in tracing systems.
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

// bar returns a bar, width columns wide, that shows the position of a run in its request. A run shorter than a column gets a thin
// line; without a latency the bar is blank.
func bar(run *segmentRun, r *report.Request, width int) string {
	if r.LatencyNS <= 0 {
		return strings.Repeat(" ", width)
	}
	column := func(ns int64) int {
		return min(max(int(float64(ns)/float64(r.LatencyNS)*float64(width)+0.5), 0), width)
	}
	from, to := column(run.start-r.StartNS), column(run.start-r.StartNS+run.duration)
	if from == to {
		from = min(from, width-1)
		return strings.Repeat(" ", from) + "▏" + strings.Repeat(" ", width-1-from)
	}
	return strings.Repeat(" ", from) + strings.Repeat("█", to-from) + strings.Repeat(" ", width-to)
}
