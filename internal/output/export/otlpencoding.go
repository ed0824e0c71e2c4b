package export

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/whylate/whylate/internal/output/jsontext"
)

const scopeName = "github.com/whylate/whylate"

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
