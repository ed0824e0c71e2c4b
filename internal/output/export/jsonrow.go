package export

import "github.com/whylate/whylate/report"

// A requestRow is the line of a request, and a segmentRow that of a segment which is not joined of several: there are millions, for
// which [lines.line] takes several times as long, because what it puts together is a type's fields and some more. Both write the
// same bytes: fields are in order of their names.
type requestRow struct {
	DatadogSpanID string    `json:"datadog_span_id,omitempty"`
	Goroutine     uint64    `json:"goroutine"`
	Group         string    `json:"group"`
	GroupID       string    `json:"group_id"`
	ID            string    `json:"id"`
	LatencyNS     int64     `json:"latency_ns"`
	ParentSpanID  string    `json:"parent_span_id,omitempty"`
	Segments      *struct{} `json:"segments"` // lines of their own
	SpanID        string    `json:"span_id,omitempty"`
	StartNS       int64     `json:"start_ns"`
	Status        string    `json:"status,omitempty"`
	TraceID       string    `json:"trace_id,omitempty"`
	Type          string    `json:"type"`
}

type segmentRow struct {
	Cause      report.CauseName `json:"cause"`
	DurationNS int64            `json:"duration_ns"`
	Goroutine  uint64           `json:"goroutine"`
	Kind       string           `json:"kind,omitempty"`
	RequestID  string           `json:"request_id"`
	Site       *report.Site     `json:"site"`
	StartNS    int64            `json:"start_ns"`
	Type       string           `json:"type"`
	Via        []report.Via     `json:"via"`
}

func rowOfRequest(g *report.Group, q *report.Request) requestRow {
	return requestRow{q.DatadogSpanID, q.Goroutine, g.Name, g.ID, q.ID, q.LatencyNS, q.ParentSpanID, nil, q.SpanID, q.StartNS, q.Status, q.TraceID, "request"}
}

func rowOfSegment(request string, s *report.Segment) segmentRow {
	return segmentRow{s.Cause, s.DurationNS, s.Goroutine, s.Kind, request, s.Site, s.StartNS, "segment", s.Via}
}
