package otel

import (
	"context"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/whylate/whylate/service/mark"
)

// Marks returns a span processor that writes a request's trace id and span id into
// its mark (service/mark):
//
//	sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(otel.Marks()), ...)
//
// It reports spans of servers and consumers, and of those without a parent in
// this process, when they start, on the goroutine that starts them: the request
// whose mark has begun there, or begins there next. Without an execution trace it
// does nothing.
func Marks() sdktrace.SpanProcessor { return marks{} }

type marks struct{}

// OnStart implements sdktrace.SpanProcessor.
func (marks) OnStart(_ context.Context, s sdktrace.ReadWriteSpan) {
	parent := s.Parent()
	if k := s.SpanKind(); k == trace.SpanKindServer || k == trace.SpanKindConsumer || !parent.IsValid() || parent.IsRemote() {
		id := s.SpanContext()
		mark.Span(id.TraceID(), id.SpanID())
	}
}

// OnEnd implements sdktrace.SpanProcessor.
func (marks) OnEnd(sdktrace.ReadOnlySpan) {}

// Shutdown implements sdktrace.SpanProcessor.
func (marks) Shutdown(context.Context) error { return nil }

// ForceFlush implements sdktrace.SpanProcessor.
func (marks) ForceFlush(context.Context) error { return nil }
