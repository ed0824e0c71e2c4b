package export

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/whylate/whylate/report"
)

// Encodings of OTLP.
const (
	EncodingJSON     = "json"
	EncodingProtobuf = "protobuf"
)

// Kinds of span (opentelemetry-proto, trace.proto).
const (
	spanInternal = 1
	spanServer   = 2
	spanConsumer = 5
)

// A span is one OpenTelemetry span. Times are Unix ns.
type span struct {
	trace      [16]byte
	id, parent [8]byte
	service    string // of several
	name       string
	kind       int
	start, end int64
	attributes []attribute
}

type attribute struct {
	key, text string
	number    int64
	isNumber  bool
}

func stringAttribute(key, value string) attribute { return attribute{key: key, text: value} }

func integerAttribute(key string, value int64) attribute {
	return attribute{key: key, number: value, isNumber: true}
}

// codeAttributes returns the attributes of a site, by the semantic conventions.
func codeAttributes(s *report.Site) []attribute {
	out := []attribute{stringAttribute("code.function.name", s.Func), stringAttribute("code.file.path", s.File), integerAttribute("code.line.number", int64(s.Line))}
	if c := s.CalledFrom; c != nil {
		out = append(out, stringAttribute("whylate.called_from.function.name", c.Func), stringAttribute("whylate.called_from.file.path", c.File), integerAttribute("whylate.called_from.line.number", int64(c.Line)))
	}
	return out
}

// A spanMaker converts requests to spans.
type spanMaker struct {
	r        *report.Report
	start    int64 // of the trace of the first service, Unix ns
	services map[string]service
}

// newSpanMaker returns a maker of spans from a report. It returns an error if the report does not have the time of day at which
// the trace began.
func newSpanMaker(r *report.Report) (*spanMaker, error) {
	if r.Input.Start == nil {
		return nil, errors.New("writing spans: the trace does not have the time of day at which it began, which spans need (traces have it from Go 1.25 on)")
	}
	// UnixNano is defined for the years 1678 to 2262.
	if y := r.Input.Start.Year(); y < 1970 || y > 2261 {
		return nil, fmt.Errorf("writing spans: the trace began in the year %d, which spans cannot express", y)
	}
	m := &spanMaker{r, r.Input.Start.UnixNano(), make(map[string]service)}
	for _, s := range servicesOf(r) {
		m.services[s.name] = s
	}
	return m, nil
}

// resource returns the attributes of a service of the report. If service is "", its name is name, or, if that is "" too, the input's.
func (m *spanMaker) resource(service, name string) []attribute {
	version := m.r.Input.Go
	if s, ok := m.services[service]; ok {
		version = s.input.Go
	}
	return []attribute{stringAttribute("service.name", cmp.Or(service, name, m.r.Input.Name)), stringAttribute("telemetry.sdk.language", "go"), stringAttribute("process.runtime.version", version)}
}

// spans returns the span of a request, then those of the calls of other services on its path, then those of its segments, each a child of its call's
// or the request's. Their ids depend on the report alone, so that writing them twice gives the same spans. If a tracing system has a span of the
// request, the request becomes its child.
func (m *spanMaker) spans(g *report.Group, q *report.Request) []span {
	seed := fmt.Sprintf("%s\x00%s\x00%s", m.r.Input.Name, m.r.Input.Start.Format(time.RFC3339Nano), q.ID)
	sum := sha256.Sum256([]byte(seed))
	var trace [16]byte
	copy(trace[:], sum[:])
	spanID := func(n int) (id [8]byte) {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d", seed, n))
		copy(id[:], sum[:])
		return id
	}
	kind := spanInternal
	switch {
	case g.Kind.IsCall():
		kind = spanServer
	case g.Kind.Protocol() != "":
		kind = spanConsumer
	}
	switch g.WorkKind {
	case "http", "grpc":
		kind = spanServer
	case "message":
		kind = spanConsumer
	}
	start := m.start + m.services[g.Service].startNS
	root := span{
		trace: trace, id: spanID(0), service: g.Service, name: g.Name, kind: kind, start: start + q.StartNS, end: start + q.StartNS + q.LatencyNS,
		attributes: []attribute{stringAttribute("whylate.group", g.ID), stringAttribute("whylate.kind", string(g.Kind)), stringAttribute("whylate.request", q.ID), integerAttribute("whylate.goroutine", int64(q.Goroutine))},
	}
	if g.Entry != nil {
		root.attributes = append(root.attributes, codeAttributes(g.Entry)...)
	}
	joinTrace(&root, q)
	out := make([]span, 0, 1+len(q.Segments))
	out = append(out, root)
	// What other services did is below the spans of their calls.
	callOf := make(map[int]int)
	calls := servedCalls(q)
	for i, c := range calls {
		call := span{trace: root.trace, id: spanID(len(q.Segments) + 1 + i), parent: root.id, service: c.service, name: c.service, kind: spanServer, start: start + c.start, end: start + c.end}
		if p := g.Peer; p != nil && p.Recording == c.service && p.Name != "" {
			call.name = p.Name
		}
		if c.parent >= 0 {
			call.parent = spanID(len(q.Segments) + 1 + c.parent)
		}
		for _, k := range c.segments {
			callOf[k] = i
		}
		out = append(out, call)
	}
	for i := range q.Segments {
		s := &q.Segments[i]
		goroutine := s.Goroutine
		if s.Service != "" {
			goroutine = s.ServiceGoroutine
		}
		child := span{
			trace: root.trace, id: spanID(i + 1), parent: root.id, service: g.Service, name: string(s.Cause), kind: spanInternal, start: start + s.StartNS, end: start + s.StartNS + s.DurationNS,
			attributes: []attribute{stringAttribute("whylate.cause", string(s.Cause)), integerAttribute("whylate.goroutine", int64(goroutine))},
		}
		if s.Site != nil {
			child.name += " " + s.Site.Func
			child.attributes = append(child.attributes, codeAttributes(s.Site)...)
		}
		if len(s.Via) > 0 {
			child.attributes = append(child.attributes, stringAttribute("whylate.via", viaText(s.Via)))
		}
		if k, ok := callOf[i]; ok {
			child.parent, child.service = spanID(len(q.Segments)+1+k), calls[k].service
		}
		if s.WayTo != "" {
			child.attributes = append(child.attributes, stringAttribute("whylate.way_to", s.WayTo), integerAttribute("whylate.clock_error_ns", s.ClockErrorNS))
		}
		if s.Kind != "" {
			child.attributes = append(child.attributes, stringAttribute("whylate.cause_kind", s.Kind))
		}
		if s.Joined != nil {
			for _, c := range sortedKeys(s.Joined.Causes) {
				child.attributes = append(child.attributes, integerAttribute("whylate.joined."+string(c)+"_ns", s.Joined.Causes[c]))
			}
		}
		out = append(out, child)
	}
	return out
}

// A resourceSpans is the spans of one service.
type resourceSpans struct {
	resource []attribute
	spans    []span
}

// divide divides spans by service, in the order of each one's first span. name is that of the only service; if it is empty, the input has the name.
func (m *spanMaker) divide(spans []span, name string) (out []resourceSpans) {
	numbers := make(map[string]int)
	for i := range spans {
		k, ok := numbers[spans[i].service]
		if !ok {
			k = len(out)
			numbers[spans[i].service] = k
			out = append(out, resourceSpans{resource: m.resource(spans[i].service, name)})
		}
		out[k].spans = append(out[k].spans, spans[i])
	}
	return out
}

// joinTrace sets, in a request's span, the trace that a tracing system has of the request, its parent there, and its status. The parent is the
// request's span in that trace, if known, because the tracer exports it; else the caller's span. Without such a trace it keeps the ids.
func joinTrace(root *span, q *report.Request) {
	if trace, err := hex.DecodeString(q.TraceID); err == nil && len(trace) == len(root.trace) {
		copy(root.trace[:], trace)
		if parent, err := hex.DecodeString(cmp.Or(q.SpanID, q.ParentSpanID)); err == nil {
			copy(root.parent[:], parent)
		}
	}
	if q.DatadogSpanID != "" {
		root.attributes = append(root.attributes, stringAttribute("dd.span_id", q.DatadogSpanID))
	}
	if q.Status != "" {
		root.attributes = append(root.attributes, stringAttribute("whylate.status", q.Status))
	}
}
