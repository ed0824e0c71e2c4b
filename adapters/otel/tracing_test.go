package otel

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/whylate/whylate/service/flight"
	"github.com/whylate/whylate/service/mark"
)

// TestWithTracing runs a recorder in a service that sends spans in batches: every span
// is exported, and a slow request's recording names its span, so that one leads to the
// other.
func TestWithTracing(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	p := sdktrace.NewTracerProvider(sdktrace.WithBatcher(spans, sdktrace.WithBatchTimeout(time.Millisecond)), sdktrace.WithSpanProcessor(Marks()))
	tracer := p.Tracer("test")
	dir := t.TempDir()
	recordings := make(chan string, 1)
	r, err := flight.Start(flight.Options{Dir: dir, Budget: -1, Slow: time.Second, Tail: time.Millisecond, Sink: func(_ context.Context, name string, _ io.Reader) error {
		recordings <- name
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Stop()
	if s := r.State(); !s.Recording {
		t.Skip(s.Why)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{how}", func(w http.ResponseWriter, q *http.Request) {
		_, span := tracer.Start(q.Context(), "GET", oteltrace.WithSpanKind(oteltrace.SpanKindServer))
		defer span.End()
		if q.PathValue("how") == "slow" {
			time.Sleep(1001 * time.Millisecond)
		}
		fmt.Fprint(w, span.SpanContext().SpanID())
	})
	h := mark.Handler(mux)
	get := func(path string) string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Body.String()
	}
	const quick = 100
	for range quick {
		get("/quick")
	}
	slow := get("/slow")
	var name string
	select {
	case name = <-recordings:
	case <-time.After(30 * time.Second):
		t.Fatalf("nothing is kept: %+v", r.State())
	}
	if err := p.ForceFlush(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := len(spans.GetSpans()); n != quick+1 {
		t.Errorf("%d spans are exported", n)
	}
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	f, err := z.Open("trace")
	if err != nil {
		t.Fatal(err)
	}
	if data, err = io.ReadAll(f); err != nil || !bytes.Contains(data, []byte("-"+slow+"-01")) || !bytes.Contains(data, []byte("whylate.mark/1 end http 2xx GET /{how}")) {
		t.Errorf("the recording does not name span %s, or no request: %v", slow, err)
	}
	if err := p.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if s := r.State(); !s.Recording || s.Failed != 0 {
		t.Errorf("the state is %+v", s)
	}
}
