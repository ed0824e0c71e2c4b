package export

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/whylate/whylate/report"
)

// OTLP writes the slow requests as OpenTelemetry spans: a trace for each, its
// root the request, its children the segments of the critical path. The format
// is OTLP/JSON (opentelemetry-proto, ExportTraceServiceRequest), which
// collectors take over HTTP and from files. Times are wall-clock times; it
// fails if the report does not know them. Ids depend on the report alone, so
// that writing it twice gives the same spans.
func OTLP(w io.Writer, r *report.Report) error {
	if r.Input.Start == nil {
		return errors.New("writing spans: the trace does not say at what time of day it began (traces of Go before 1.25 do not), and spans need that")
	}
	// UnixNano is defined for the years 1678 to 2262.
	if y := r.Input.Start.Year(); y < 1970 || y > 2261 {
		return fmt.Errorf("writing spans: the trace began in the year %d, which spans cannot say", y)
	}
	start := r.Input.Start.UnixNano()
	spans := []otlpSpan{}
	for i := range r.Groups {
		g := &r.Groups[i]
		for k := range g.Slowest {
			spans = appendSpans(spans, r, g, &g.Slowest[k], start)
		}
	}
	out := otlpRequest{ResourceSpans: []otlpResourceSpans{{
		Resource:   otlpResource{Attributes: []otlpAttribute{text("service.name", r.Input.Name), text("telemetry.sdk.language", "go"), text("process.runtime.version", r.Input.Go)}},
		ScopeSpans: []otlpScopeSpans{{Scope: otlpScope{Name: "github.com/whylate/whylate"}, Spans: spans}},
	}}}
	enc := json.NewEncoder(w)
	if err := enc.Encode(out); err != nil {
		return fmt.Errorf("writing spans: %w", err)
	}
	return nil
}

// Kinds of span.
const (
	spanInternal = 1
	spanServer   = 2
)

func appendSpans(spans []otlpSpan, r *report.Report, g *report.Group, q *report.Request, start int64) []otlpSpan {
	seed := fmt.Sprintf("%s\x00%s\x00%s", r.Input.Name, r.Input.Start.Format(time.RFC3339Nano), q.ID)
	trace := sha256.Sum256([]byte(seed))
	traceID := hex.EncodeToString(trace[:16])
	spanID := func(n int) string {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d", seed, n))
		return hex.EncodeToString(sum[:8])
	}
	nano := func(ns int64) string { return strconv.FormatInt(start+ns, 10) }
	kind := spanInternal
	switch g.Kind {
	case report.KindHTTP1, report.KindHTTP2, report.KindGRPC:
		kind = spanServer
	}
	root := otlpSpan{
		TraceID: traceID, SpanID: spanID(0), Name: g.Name, Kind: kind, StartTimeUnixNano: nano(q.StartNS), EndTimeUnixNano: nano(q.StartNS + q.LatencyNS),
		Attributes: []otlpAttribute{text("whylate.group", g.ID), text("whylate.kind", g.Kind), text("whylate.request", q.ID), integer("whylate.goroutine", int64(q.Goroutine))},
	}
	if g.Entry != nil {
		root.Attributes = append(root.Attributes, code(g.Entry)...)
	}
	spans = append(spans, root)
	for i := range q.Segments {
		s := &q.Segments[i]
		span := otlpSpan{
			TraceID: traceID, SpanID: spanID(i + 1), ParentSpanID: root.SpanID, Name: s.Cause, Kind: spanInternal, StartTimeUnixNano: nano(s.StartNS), EndTimeUnixNano: nano(s.StartNS + s.DurationNS),
			Attributes: []otlpAttribute{text("whylate.cause", s.Cause), integer("whylate.goroutine", int64(s.Goroutine))},
		}
		if s.Site != nil {
			span.Name += " " + s.Site.Func
			span.Attributes = append(span.Attributes, code(s.Site)...)
		}
		if len(s.Via) > 0 {
			span.Attributes = append(span.Attributes, text("whylate.via", viaText(s.Via)))
		}
		if s.Kind != "" {
			span.Attributes = append(span.Attributes, text("whylate.cause_kind", s.Kind))
		}
		spans = append(spans, span)
	}
	return spans
}

// code are the attributes of a place in source code, by the semantic
// conventions.
func code(s *report.Site) []otlpAttribute {
	return []otlpAttribute{text("code.function.name", s.Func), text("code.file.path", s.File), integer("code.line.number", int64(s.Line))}
}

func text(key, value string) otlpAttribute {
	return otlpAttribute{Key: key, Value: otlpValue{String: &value}}
}

func integer(key string, value int64) otlpAttribute {
	v := strconv.FormatInt(value, 10)
	return otlpAttribute{Key: key, Value: otlpValue{Int: &v}}
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
