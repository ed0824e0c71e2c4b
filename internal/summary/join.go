package summary

import (
	"iter"
	"sort"

	"github.com/whylate/whylate/internal/cause"
	"github.com/whylate/whylate/report"
)

// maxSegments bounds the segments of a slow request in a report.
const maxSegments = 2000

// stretches divides a path into at most most parts, as index ranges. Neighbours
// are joined as long as together they last no longer than some time, the
// shortest that is enough: the whole path stays in sight, at one resolution,
// and what is longer than that time stays as it is.
func stretches(segs []cause.Segment, most int) iter.Seq2[int, int] {
	if len(segs) <= most {
		return parts(segs, -1)
	}
	total := segs[len(segs)-1].End - segs[0].Start
	count := func(limit int64) (n int) {
		for range parts(segs, limit) {
			n++
		}
		return n
	}
	// Two neighbouring parts last longer than the limit together, so limits
	// beyond twice the mean are always enough.
	limit := sort.Search(int(2*total/int64(most)+1), func(limit int) bool { return count(int64(limit)) <= most })
	return parts(segs, int64(limit))
}

func parts(segs []cause.Segment, limit int64) iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		for from := 0; from < len(segs); {
			to := from + 1
			for to < len(segs) && segs[to].End-segs[from].Start <= limit {
				to++
			}
			if !yield(from, to) {
				return
			}
			from = to
		}
	}
}

// joined is one segment for segments from to to-1 of s. It says of which
// causes they are; only what they have in common is said of the whole.
func (t *Tables) joined(s *Slow, from, to int, v View) report.Segment {
	list := s.Segments[from:to]
	j := &report.Joined{Count: len(list), Causes: map[report.CauseName]int64{}}
	same, longest := true, from
	ran := map[uint64]int64{}
	for i := range list {
		g := &list[i]
		j.Causes[causeName(g.Cause)] += g.End - g.Start
		ran[g.G] += g.End - g.Start
		same = same && g.Cause == list[0].Cause && g.Site == list[0].Site
		if l := &s.Segments[longest]; g.End-g.Start > l.End-l.Start {
			longest = from + i
		}
	}
	seg := t.segment(s, longest, v)
	seg.StartNS, seg.DurationNS, seg.Joined = list[0].Start-v.Start, list[len(list)-1].End-list[0].Start, j
	for g, ns := range ran {
		if ns > ran[seg.Goroutine] || ns == ran[seg.Goroutine] && g < seg.Goroutine {
			seg.Goroutine = g
		}
	}
	if !same {
		seg.Site, seg.Via, seg.Kind = nil, []report.Via{}, ""
	}
	if len(j.Causes) > 1 {
		seg.Cause = report.CauseOther
	}
	return seg
}
