package detailed

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/report"
)

// A queueWait is the queue in which a request is during a segment, and the index in the segment's wait chain of the wait for
// it. queue is nil if it is in none.
type queueWait struct {
	queue *report.Queue
	index int
}

// findQueueWaits sets queueWaits: the segments in which the request is in a queue of its group. If the wait contains the
// request's own service time, that is the last part of it and not in the queue.
func (r *Request) findQueueWaits(group string, sp *spell.Speller) {
	r.queueWaits = make([]queueWait, len(r.Segments))
	for i := range r.Segments {
		s := &r.Segments[i]
		r.Vias[i] = sp.WithTimedWait(group, r.Vias[i], s.Code, s.Site, s.Call)
		r.queueWaits[i].queue, r.queueWaits[i].index = sp.QueueWait(group, r.Vias[i])
	}
	for end := len(r.Segments); end > 0; {
		q := r.queueWaits[end-1].queue
		start := end - 1
		for start > 0 && r.queueWaits[start-1].queue == q && r.Segments[start-1].End == r.Segments[start].Start {
			start--
		}
		if q != nil {
			r.endQueueWait(start, end, q.OwnNS)
		}
		end = start
	}
}

// endQueueWait removes the last ns of Segments[start:end] from the queue. A segment that is only partly in the queue is
// divided.
func (r *Request) endQueueWait(start, end int, ns int64) {
	for i := end - 1; i >= start && ns > 0; i-- {
		s := &r.Segments[i]
		if length := s.End - s.Start; length > ns {
			service := *s
			s.End -= ns
			service.Start = s.End
			r.Segments = slices.Insert(r.Segments, i+1, service)
			r.Vias = slices.Insert(r.Vias, i+1, r.Vias[i])
			r.queueWaits = slices.Insert(r.queueWaits, i+1, queueWait{})
			return
		} else {
			r.queueWaits[i], ns = queueWait{}, ns-length
		}
	}
}

// queueWait returns the queue of segment i, the zero value if it is in none.
func (r *Request) queueWait(i int) queueWait {
	if i >= len(r.queueWaits) {
		return queueWait{}
	}
	return r.queueWaits[i]
}

// reportSegment returns segment i in the form of the report.
func (r *Request) reportSegment(i int, sp *spell.Speller) report.Segment {
	seg := sp.Segment(&r.Segments[i], r.Vias[i], r.StarterFrame)
	if w := r.queueWait(i); w.queue != nil {
		spell.Requeue(&seg, w.queue, w.index, sp.Syms.String(r.Segments[i].Call))
	}
	return seg
}
