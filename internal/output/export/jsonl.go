package export

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"

	"github.com/whylate/whylate/internal/output/jsontext"
	"github.com/whylate/whylate/report"
)

// JSONL writes objects, one a line, distinguished by "type": input, group (with its latencies), cause (with group and band),
// finding, request, and segment, wake, lane and span (with the request's id, spans with the goroutine). Field names are those
// of the report. The requests are those that the report contains in full.
func JSONL(w io.Writer, r *report.Report) error {
	l := newJSONLines(w, r)
	for i := range r.Groups {
		g := &r.Groups[i]
		for k := range g.Slowest {
			l.writeRequest(g, &g.Slowest[k])
		}
	}
	return l.Close(0)
}

// jsonLines writes lines of JSON. It keeps the first error.
type jsonLines struct {
	noGenerations
	buf *bufio.Writer
	err error
	// fullRequests is what the report holds of a request beyond its segments.
	fullRequests map[string]*report.Request
}

// newJSONLines returns a Sink that writes the same as JSONL, but every request. It writes the lines of the report immediately.
func newJSONLines(w io.Writer, r *report.Report) *jsonLines {
	l := &jsonLines{buf: bufio.NewWriterSize(w, 1<<16), fullRequests: make(map[string]*report.Request)}
	l.writeTyped("input", r.Input, nil)
	for i := range r.Groups {
		g := r.Groups[i]
		for k := range g.Slowest {
			l.fullRequests[g.Slowest[k].ID] = &g.Slowest[k]
		}
		bands := g.Bands
		g.Bands, g.Slowest, g.Blocks, g.Typical = nil, nil, nil, nil
		l.writeTyped("group", g, nil)
		for _, b := range bands {
			for k := range b.Causes {
				l.writeTyped("cause", b.Causes[k], map[string]any{"group_id": g.ID, "group": g.Name, "band": b.Band})
			}
		}
	}
	for _, f := range r.Findings {
		l.writeTyped("finding", f, nil)
	}
	return l
}

// writeTyped writes v as a line of JSON, with a field "type" and the extra fields. It stores the first error in l.err, and does
// nothing after it.
func (l *jsonLines) writeTyped(typ string, v any, extraFields map[string]any) {
	if l.err != nil {
		return
	}
	fields, err := json.Marshal(v)
	if err != nil {
		l.err = err
		return
	}
	obj := map[string]json.RawMessage{}
	if l.err = json.Unmarshal(fields, &obj); l.err != nil {
		return
	}
	put := func(k string, v any) {
		raw, err := json.Marshal(v)
		obj[k], l.err = raw, cmp.Or(l.err, err)
	}
	put("type", typ)
	for k, v := range extraFields {
		put(k, v)
	}
	l.writeLine(obj)
}

// writeLine writes v as a line of JSON. After an error it does nothing.
func (l *jsonLines) writeLine(v any) {
	data, err := json.Marshal(v)
	if l.err = cmp.Or(l.err, err); l.err == nil {
		_, l.err = l.buf.Write(append(jsontext.Escape(data), '\n'))
	}
}

// writeRequest writes a line for the request and one for each of its segments, wakes, lanes, and the spans of goroutines,
// threads and CPUs.
func (l *jsonLines) writeRequest(g *report.Group, q *report.Request) {
	requestID := map[string]any{"request_id": q.ID}
	l.writeLine(rowOfRequest(g, q))
	for k := range q.Segments {
		if s := &q.Segments[k]; s.Joined != nil {
			l.writeTyped("segment", s, requestID)
		} else {
			l.writeLine(rowOfSegment(q.ID, s))
		}
	}
	for k := range q.Wakes {
		l.writeTyped("wake", q.Wakes[k], requestID)
	}
	for k := range q.Lanes {
		lane := q.Lanes[k]
		spans, threads := lane.Spans, lane.Threads
		lane.Spans, lane.Threads = nil, nil
		l.writeTyped("lane", lane, requestID)
		goroutine := map[string]any{"request_id": q.ID, "goroutine": lane.Goroutine}
		for i := range spans {
			l.writeTyped("span", spans[i], goroutine)
		}
		for i := range threads {
			l.writeTyped("thread_span", threads[i], goroutine)
		}
	}
	for k := range q.CPUs {
		for i := range q.CPUs[k].Spans {
			l.writeTyped("cpu_span", q.CPUs[k].Spans[i], map[string]any{"request_id": q.ID, "cpu": q.CPUs[k].CPU})
		}
	}
}

// Request implements Sink.
func (l *jsonLines) Request(q *Request) error {
	full := q.Full()
	if d := l.fullRequests[q.ID]; d != nil {
		full.Lanes, full.Wakes, full.CPUs = d.Lanes, d.Wakes, d.CPUs
	}
	l.writeRequest(q.Group, &full)
	if l.err != nil {
		return fmt.Errorf("writing lines of JSON: %w", l.err)
	}
	return nil
}

// Close implements Sink.
func (l *jsonLines) Close(int64) error {
	if err := cmp.Or(l.err, l.buf.Flush()); err != nil {
		return fmt.Errorf("writing lines of JSON: %w", err)
	}
	return nil
}

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
