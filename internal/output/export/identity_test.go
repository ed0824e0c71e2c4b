package export_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"runtime/trace"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/output/export"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// TestJoinedTraces: requests become part of the traces whose ids a tracer wrote into the execution trace.
func TestJoinedTraces(t *testing.T) {
	if trace.IsEnabled() {
		t.Skip("a trace is being recorded already")
	}
	traceID := func(i int) string { return fmt.Sprintf("%032x", 0xabc000+i) }
	spanID := func(i int) string { return fmt.Sprintf("%016x", 0xdef000+i) }
	// Each method of writing ids has tasks with a different name.
	ways := map[string]func(ctx context.Context, i int){
		"traceparent": func(ctx context.Context, i int) { trace.Log(ctx, "traceparent", "00-"+traceID(i)+"-"+spanID(i)+"-01") },
		"two logs": func(ctx context.Context, i int) {
			trace.Log(ctx, "trace_id", traceID(i))
			trace.Log(ctx, "span_id", spanID(i))
		},
		"otel": func(ctx context.Context, i int) {
			trace.Log(ctx, "otel.trace_id", strings.ToUpper(traceID(i)))
			trace.Log(ctx, "otel.span_id", spanID(i))
		},
		"datadog": func(ctx context.Context, i int) {
			var b [8]byte
			binary.LittleEndian.PutUint64(b[:], 1<<63+uint64(i))
			trace.Log(ctx, "datadog.uint64_span_id", string(b[:]))
		},
		"nothing": func(context.Context, int) {},
		"nonsense": func(ctx context.Context, i int) {
			trace.Log(ctx, "traceparent", "00-xyz")
			trace.Log(ctx, "traceparent", "00-"+strings.Repeat("0", 32)+"-"+spanID(i)+"-01")
			trace.Log(ctx, "trace_id", "7")
			trace.Log(ctx, "datadog.uint64_span_id", "short")
		},
	}
	var out bytes.Buffer
	must.Do(t, trace.Start(&out))
	// A tracer's hook writes before the task begins: of a child, in its parent.
	hooked := func(i int) {
		trace.Log(context.Background(), "traceparent", "00-"+traceID(i)+"-"+spanID(i)+"-01")
		ctx, outer := trace.NewTask(context.Background(), "hook, outer")
		trace.Log(ctx, "traceparent", "00-"+traceID(i)+"-"+spanID(1000+i)+"-01")
		_, inner := trace.NewTask(ctx, "hook, inner")
		time.Sleep(50 * time.Microsecond)
		inner.End()
		outer.End()
	}
	const perName = 20
	for i := range perName {
		for name, log := range ways {
			ctx, task := trace.NewTask(context.Background(), name)
			log(ctx, i)
			time.Sleep(50 * time.Microsecond)
			task.End()
		}
		hooked(i)
	}
	trace.Stop()
	var joined int
	var spans *export.Spans
	written, rep := replayed(t, out.Bytes(), func(w io.Writer, r *report.Report) export.Sink {
		s := must.Have(export.NewSpans(r, export.EncodingJSON, true, export.ToWriter(w)))(t)
		spans = s
		return s
	})
	joined = spans.Joined
	if rep.Input.Start == nil {
		t.Skip("this Go version's traces do not know the time of day")
	}
	seen := map[string]map[int]bool{}
	for _, s := range spansOfJSON(t, written) {
		if s.attributes["whylate.request"] == "" {
			continue
		}
		n := -1
		for i := range perName {
			switch s.name {
			case "traceparent", "two logs", "otel", "hook, outer":
				if s.trace == traceID(i) && s.parent == spanID(i) {
					n = i
				}
			case "datadog":
				if s.attributes["dd.span_id"] == strconv.FormatUint(1<<63+uint64(i), 10) && s.parent == "" {
					n = i
				}
			default:
				if s.parent == "" && s.trace != "" && s.attributes["dd.span_id"] == "" {
					n = len(seen[s.name])
				}
			}
		}
		if seen[s.name] == nil {
			seen[s.name] = map[int]bool{}
		}
		check.True(t, n >= 0 && !seen[s.name][n], "a request of %s has trace %s, parent %q, %v", s.name, s.trace, s.parent, s.attributes)
		seen[s.name][n] = true
	}
	ways["hook, outer"] = nil
	for name := range ways {
		check.Equal(t, len(seen[name]), perName, "%s: requests with ids of their own", name)
	}
	check.Equal(t, joined, 4*perName, "requests are joined")
}
