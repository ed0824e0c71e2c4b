package export

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/whylate/whylate/report"
)

// OTLP writes the slow requests as OpenTelemetry spans in OTLP/JSON, from the report alone. See NewSpans.
func OTLP(w io.Writer, r *report.Report) error {
	s, err := NewSpans(r, EncodingJSON, false, ToWriter(w))
	if err != nil {
		return err
	}
	return s.FromReport(r)
}

// Bounds of one message of spans. Receivers refuse messages that are too
// large: the collector's limit is 20 MiB for HTTP and 4 MiB for gRPC.
const (
	maxBatchSpans = 2000
	maxBatchBytes = 1 << 20
)

// Spans writes requests as OpenTelemetry spans: a trace for each, whose root is the request and whose children are the
// segments of the critical path. Times are wall-clock times.
//
// If a tracer wrote its ids into the trace (a user log with the key traceparent, or trace_id and span_id, in the request's
// task or on its goroutine), the request becomes a child of that span in that trace. Other ids depend on the report alone, so
// that writing it twice gives the same spans.
//
// Of a report of several services, spans below the request are of those that it waited for.
//
// Spans are written in messages of at most 2000 spans and about 1 MiB. As JSON there is one message a line, as in the
// collector's files; as protocol buffers the messages follow each other, and together they are one message.
type Spans struct {
	noGenerations
	maker        *spanMaker
	emit         func(body []byte, spans int) error
	allRequests  bool
	slowRequests map[string]bool
	batch        []span
	batchBytes   int
	encoding     string
	// Service is the service's name; the input's if empty.
	Service string
	// Joined counts the requests that carry the id of a trace that is known
	// elsewhere.
	Joined int
}

// NewSpans returns a Sink that passes its messages to emit: those of all requests, or only of those that the report contains
// in full. It fails if the report does not have the time of day.
func NewSpans(r *report.Report, encoding string, all bool, emit func(body []byte, spans int) error) (*Spans, error) {
	m, err := newSpanMaker(r)
	if err != nil {
		return nil, err
	}
	s := &Spans{maker: m, emit: emit, allRequests: all, slowRequests: make(map[string]bool), encoding: encoding}
	for i := range r.Groups {
		for k := range r.Groups[i].Slowest {
			s.slowRequests[r.Groups[i].Slowest[k].ID] = true
		}
	}
	return s, nil
}

// FromReport writes the requests that the report contains in full.
func (s *Spans) FromReport(r *report.Report) error {
	for i := range r.Groups {
		g := &r.Groups[i]
		for k := range g.Slowest {
			if err := s.addSpans(s.maker.spans(g, &g.Slowest[k])); err != nil {
				return err
			}
		}
	}
	return s.Close(0)
}

// Request implements Sink. It ignores requests that NewSpans has not selected.
func (s *Spans) Request(q *Request) error {
	if !s.allRequests && !s.slowRequests[q.ID] {
		return nil
	}
	full := q.Full()
	if full.TraceID != "" {
		s.Joined++
	}
	return s.addSpans(s.maker.spans(q.Group, &full))
}

// addSpans adds spans to the batch, and flushes it each time that it is full.
func (s *Spans) addSpans(spans []span) error {
	for i := range spans {
		size := spans[i].size()
		if len(s.batch) > 0 && (len(s.batch) == maxBatchSpans || s.batchBytes+size > maxBatchBytes) {
			if err := s.flush(); err != nil {
				return err
			}
		}
		s.batch = append(s.batch, spans[i])
		s.batchBytes += size
	}
	return nil
}

// size returns about how many bytes a span has as JSON, the larger encoding.
func (s *span) size() int {
	n := 260 + len(s.name)
	for _, a := range s.attributes {
		n += 50 + len(a.key) + len(a.text)
	}
	return n
}

// flush encodes the batch, empties it, and passes it to emit with its number of spans. An empty batch is not passed.
func (s *Spans) flush() error {
	if len(s.batch) == 0 {
		return nil
	}
	body, err := encodeSpans(s.encoding, s.maker.divide(s.batch, s.Service))
	if err != nil {
		return err
	}
	n := len(s.batch)
	s.batch, s.batchBytes = s.batch[:0], 0
	return s.emit(body, n)
}

// Close implements Sink.
func (s *Spans) Close(int64) error { return s.flush() }

// ToWriter returns an emit function for NewSpans that writes to w.
func ToWriter(w io.Writer) func([]byte, int) error {
	return func(body []byte, _ int) error {
		if _, err := w.Write(body); err != nil {
			return fmt.Errorf("writing spans: %w", err)
		}
		return nil
	}
}

func sortedKeys[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
