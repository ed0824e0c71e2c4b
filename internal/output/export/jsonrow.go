package export

import "github.com/whylate/whylate/report"

// A requestRow is the line of a request, and a segmentRow the line of a segment that does not join several. There are millions
// of them, and [jsonLines.writeTyped], which adds fields to those of any type, takes several times as long. Both ways write
// the same bytes: fields are in the order of their names.
type requestRow struct {
	DatadogSpanID string    `json:"datadog_span_id,omitempty"`
	Goroutine     uint64    `json:"goroutine"`
	Group         string    `json:"group"`
	GroupID       string    `json:"group_id"`
	ID            string    `json:"id"`
	LatencyNS     int64     `json:"latency_ns"`
	ParentSpanID  string    `json:"parent_span_id,omitempty"`
	Segments      *struct{} `json:"segments"` // null: segments have separate lines
	SpanID        string    `json:"span_id,omitempty"`
	StartNS       int64     `json:"start_ns"`
	Status        string    `json:"status,omitempty"`
	TraceID       string    `json:"trace_id,omitempty"`
	Type          string    `json:"type"`
}

type segmentRow struct {
	AheadWork        *report.Work     `json:"behind,omitempty"`
	Cause            report.CauseName `json:"cause"`
	ClockErrorNS     int64            `json:"clock_error_ns,omitempty"`
	DurationNS       int64            `json:"duration_ns"`
	Goroutine        uint64           `json:"goroutine"`
	Kind             string           `json:"kind,omitempty"`
	Peer             string           `json:"peer,omitempty"`
	RequestID        string           `json:"request_id"`
	Service          string           `json:"service,omitempty"`
	ServiceGoroutine uint64           `json:"service_goroutine,omitempty"`
	Site             *report.Site     `json:"site"`
	StartNS          int64            `json:"start_ns"`
	Type             string           `json:"type"`
	Via              []report.Via     `json:"via"`
	WayTo            string           `json:"way_to,omitempty"`
}

func rowOfRequest(g *report.Group, q *report.Request) requestRow {
	return requestRow{q.DatadogSpanID, q.Goroutine, g.Name, g.ID, q.ID, q.LatencyNS, q.ParentSpanID, nil, q.SpanID, q.StartNS, q.Status, q.TraceID, "request"}
}

func rowOfSegment(request string, s *report.Segment) segmentRow {
	return segmentRow{s.AheadWork, s.Cause, s.ClockErrorNS, s.DurationNS, s.Goroutine, s.Kind, s.Peer, request, s.Service, s.ServiceGoroutine, s.Site, s.StartNS, "segment", s.Via, s.WayTo}
}
