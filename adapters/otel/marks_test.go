package otel

import (
	"bytes"
	"context"
	"runtime/trace"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"
)

// TestMarks tests that the spans of requests are written into the trace, and no
// others.
func TestMarks(t *testing.T) {
	if trace.IsEnabled() {
		t.Skip("a trace is being recorded already")
	}
	p := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(Marks()))
	tracer := p.Tracer("test")
	var b bytes.Buffer
	if err := trace.Start(&b); err != nil {
		t.Fatal(err)
	}
	remote := oteltrace.ContextWithRemoteSpanContext(context.Background(), oteltrace.NewSpanContext(oteltrace.SpanContextConfig{
		TraceID: oteltrace.TraceID{0xab}, SpanID: oteltrace.SpanID{0xcd}, TraceFlags: oteltrace.FlagsSampled, Remote: true,
	}))
	ctx, server := tracer.Start(remote, "server", oteltrace.WithSpanKind(oteltrace.SpanKindServer))
	_, inner := tracer.Start(ctx, "inner")
	_, consumer := tracer.Start(ctx, "consumer", oteltrace.WithSpanKind(oteltrace.SpanKindConsumer))
	_, root := tracer.Start(context.Background(), "root")
	trace.Stop()
	text := b.String()
	for _, c := range []struct {
		span     oteltrace.Span
		reported bool
	}{{server, true}, {inner, false}, {consumer, true}, {root, true}} {
		id := c.span.SpanContext()
		if got := strings.Contains(text, "00-"+id.TraceID().String()+"-"+id.SpanID().String()+"-01"); got != c.reported {
			t.Errorf("span %s: told %v", id.SpanID(), got)
		}
	}
	if !strings.Contains(text, "whylate.mark/1 span") {
		t.Error("the log has another key")
	}
}
