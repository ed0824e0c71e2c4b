package export

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/whylate/whylate/internal/output/jsontext"
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

const scopeName = "github.com/whylate/whylate"

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

// encodeSpans returns the spans of services as an ExportTraceServiceRequest: in protocol buffers for EncodingProtobuf, else as a line of JSON.
func encodeSpans(encoding string, services []resourceSpans) ([]byte, error) {
	if encoding == EncodingProtobuf {
		return encodeProtobuf(services), nil
	}
	var out otlpRequest
	for _, s := range services {
		list := make([]otlpSpan, len(s.spans))
		for i := range s.spans {
			list[i] = s.spans[i].json()
		}
		out.ResourceSpans = append(out.ResourceSpans, otlpResourceSpans{
			Resource:   otlpResource{Attributes: jsonAttributes(s.resource)},
			ScopeSpans: []otlpScopeSpans{{Scope: otlpScope{Name: scopeName}, Spans: list}},
		})
	}
	body, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("writing spans: %w", err)
	}
	return append(jsontext.Escape(body), '\n'), nil
}

// json returns the span in OTLP's JSON encoding, with ids in hexadecimal and times as decimal texts.
func (s *span) json() otlpSpan {
	o := otlpSpan{
		TraceID: hex.EncodeToString(s.trace[:]), SpanID: hex.EncodeToString(s.id[:]), Name: validUTF8(s.name), Kind: s.kind,
		StartTimeUnixNano: strconv.FormatInt(s.start, 10), EndTimeUnixNano: strconv.FormatInt(s.end, 10), Attributes: jsonAttributes(s.attributes),
	}
	if s.parent != [8]byte{} {
		o.ParentSpanID = hex.EncodeToString(s.parent[:])
	}
	return o
}

// jsonAttributes returns attributes in OTLP's JSON encoding.
func jsonAttributes(list []attribute) []otlpAttribute {
	out := make([]otlpAttribute, len(list))
	for i, a := range list {
		out[i].Key = a.key
		if a.isNumber {
			n := strconv.FormatInt(a.number, 10)
			out[i].Value.Int = &n
		} else {
			value := validUTF8(a.text)
			out[i].Value.String = &value
		}
	}
	return out
}

type otlpRequest struct {
	ResourceSpans []otlpResourceSpans `json:"resourceSpans"`
}

type otlpResourceSpans struct {
	Resource   otlpResource     `json:"resource"`
	ScopeSpans []otlpScopeSpans `json:"scopeSpans"`
}

type otlpResource struct {
	Attributes []otlpAttribute `json:"attributes"`
}

type otlpScopeSpans struct {
	Scope otlpScope  `json:"scope"`
	Spans []otlpSpan `json:"spans"`
}

type otlpScope struct {
	Name string `json:"name"`
}

type otlpSpan struct {
	TraceID           string          `json:"traceId"`
	SpanID            string          `json:"spanId"`
	ParentSpanID      string          `json:"parentSpanId,omitempty"`
	Name              string          `json:"name"`
	Kind              int             `json:"kind"`
	StartTimeUnixNano string          `json:"startTimeUnixNano"`
	EndTimeUnixNano   string          `json:"endTimeUnixNano"`
	Attributes        []otlpAttribute `json:"attributes"`
}

type otlpAttribute struct {
	Key   string    `json:"key"`
	Value otlpValue `json:"value"`
}

type otlpValue struct {
	String *string `json:"stringValue,omitempty"`
	Int    *string `json:"intValue,omitempty"` // 64-bit integers are strings in JSON
}

// Field numbers of opentelemetry-proto: trace_service.proto, trace.proto,
// resource.proto, common.proto. A test compares them with the published ones.
const (
	requestResourceSpans = 1
	resourceSpansFrom    = 1
	resourceSpansScopes  = 2
	resourceAttributes   = 1
	scopeSpansScope      = 1
	scopeSpansSpans      = 2
	scopeNameField       = 1
	spanTrace            = 1
	spanIDField          = 2
	spanParent           = 4
	spanName             = 5
	spanKind             = 6
	spanStart            = 7
	spanEnd              = 8
	spanAttributes       = 9
	keyValueKey          = 1
	keyValueValue        = 2
	valueString          = 1
	valueInt             = 3
)

// encodeProtobuf returns the spans of all services as an ExportTraceServiceRequest.
func encodeProtobuf(services []resourceSpans) []byte {
	var request message
	for i := range services {
		s := &services[i]
		var resource, scope, scopeSpans, resourceSpans message
		for _, a := range s.resource {
			resource.attribute(resourceAttributes, a)
		}
		scope.string(scopeNameField, scopeName)
		scopeSpans.bytes(scopeSpansScope, scope)
		var spanMessage message
		for k := range s.spans {
			spanMessage = spanMessage[:0]
			spanMessage.span(&s.spans[k])
			scopeSpans.bytes(scopeSpansSpans, spanMessage)
		}
		resourceSpans.bytes(resourceSpansFrom, resource)
		resourceSpans.bytes(resourceSpansScopes, scopeSpans)
		request.bytes(requestResourceSpans, resourceSpans)
	}
	return request
}

// span adds the fields of a Span.
func (m *message) span(s *span) {
	m.bytes(spanTrace, s.trace[:])
	m.bytes(spanIDField, s.id[:])
	if s.parent != [8]byte{} {
		m.bytes(spanParent, s.parent[:])
	}
	m.string(spanName, validUTF8(s.name))
	m.uint(spanKind, uint64(s.kind))
	m.fixed(spanStart, uint64(s.start))
	m.fixed(spanEnd, uint64(s.end))
	for _, a := range s.attributes {
		m.attribute(spanAttributes, a)
	}
}

// attribute adds an attribute as a KeyValue in the given field.
func (m *message) attribute(field int, a attribute) {
	var value, pair message
	if a.isNumber {
		value.uint(valueInt, uint64(a.number))
	} else {
		value.string(valueString, validUTF8(a.text))
	}
	pair.string(keyValueKey, validUTF8(a.key))
	pair.bytes(keyValueValue, value)
	m.bytes(field, pair)
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
