package moments

import (
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// AddEvents adds to each moment the collections, stops of the world, freezes and herds that happened from its beginning until
// its last request ended, and sets its text. durationNS is the length of the trace.
func AddEvents(list []report.Moment, series *report.Series, herds []process.HerdWakeup, durationNS int64) {
	for i := range list {
		moment := &list[i]
		if series != nil {
			for _, e := range []struct {
				kind   report.MomentKind
				ranges [][2]int64
			}{{report.MomentGC, series.GC}, {report.MomentSTW, series.STW}, {report.MomentFreeze, series.Freezes}} {
				moment.With = append(moment.With, eventIfCovering(moment, e.kind, e.ranges, durationNS)...)
			}
		}
		for k := range herds {
			// A herd delays requests that arrive while it runs.
			if herd := &herds[k]; herd.FromNS <= moment.EndNS && herd.ToNS >= moment.StartNS {
				moment.With = append(moment.With, report.MomentEvent{Kind: report.MomentHerd, StartNS: herd.FromNS, DurationNS: herd.ToNS - herd.FromNS, Count: herd.Goroutines, Site: herd.Site, Text: words.Number(int64(herd.Goroutines)) + " goroutines of " + words.FuncName(herd.Start) + " woke at once"})
			}
		}
		moment.Text = momentText(moment)
	}
}

// eventIfCovering returns one event for the ranges ([start, length]) of one kind that overlap a moment; none unless they cover a
// noticeable share of the moment, and at least twice their share of the trace.
func eventIfCovering(moment *report.Moment, kind report.MomentKind, ranges [][2]int64, durationNS int64) []report.MomentEvent {
	from, to := moment.StartNS, max(moment.UntilNS, moment.StartNS+1)
	var covered, all, first, last int64
	n := 0
	for _, r := range ranges {
		all += r[1]
		if d := min(r[0]+r[1], to) - max(r[0], from); d > 0 {
			covered += d
			if n == 0 {
				first = r[0]
			}
			last = r[0] + r[1]
			n++
		}
	}
	cover := float64(covered) / float64(to-from)
	if n == 0 || cover < threshold.NoticeableShare || cover < 2*float64(all)/float64(max(durationNS, 1)) {
		return nil
	}
	sentence := map[report.MomentKind]string{report.MomentGC: "garbage was collected", report.MomentSTW: "the world was stopped", report.MomentFreeze: "the kernel held the process back"}[kind]
	return []report.MomentEvent{{Kind: kind, StartNS: first, DurationNS: last - first, Count: n, Text: sentence + " for " + words.Duration(covered) + " of it"}}
}

// momentText returns the sentence of a moment for the report.
func momentText(moment *report.Moment) string {
	s := words.Count(moment.Slow, "of the slowest requests begins", "of the slowest requests begin") + " within " + words.Duration(max(moment.EndNS-moment.StartNS, 1)) + " from " + words.Duration(moment.StartNS) + " on"
	for i := range moment.With {
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		s += sep + moment.With[i].Text
	}
	return s
}
