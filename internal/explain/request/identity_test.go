package request

import (
	"strings"
	"testing"
)

// TestIdentityOfALog reads the ids of a tracer's user logs in all known keys and formats. A malformed log changes
// nothing. It fails if a malformed log counts or half of one is read.
func TestIdentityOfALog(t *testing.T) {
	const trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for _, tc := range []struct {
		key, value    string
		ok            bool
		trace, parent bool
		datadog       uint64
	}{
		{key: "traceparent", value: "00-" + trace + "-" + span + "-01", ok: true, trace: true, parent: true},
		{key: "traceparent", value: "00-" + trace + "-" + span + "-01-later", ok: true, trace: true, parent: true}, // a later version may have more
		{key: "traceparent", value: "00-" + trace + "-" + span + "-0"},
		{key: "traceparent", value: "00_" + trace + "-" + span + "-01"},
		{key: "traceparent", value: "00-" + trace + "_" + span + "-01"},
		{key: "traceparent", value: "00-" + trace + "-" + span + "_01"},
		{key: "traceparent", value: "00-" + strings.Repeat("0", 32) + "-" + span + "-01"},
		{key: "traceparent", value: "00-" + trace + "-" + strings.Repeat("0", 16) + "-01"}, // its trace id is ignored, too
		{key: "traceparent", value: "00-" + strings.Repeat("g", 32) + "-" + span + "-01"},
		{key: "trace_id", value: trace, ok: true, trace: true},
		{key: "otel.trace_id", value: trace, ok: true, trace: true},
		{key: "trace_id", value: trace[:30]},
		{key: "spanId", value: span, ok: true, parent: true},
		{key: "span_id", value: strings.Repeat("0", 16)},
		{key: "datadog.uint64_span_id", value: "\x01\x02\x00\x00\x00\x00\x00\x00", ok: true, datadog: 0x201},
		{key: "datadog.uint64_span_id", value: "\x01\x02"},
		{key: "user", value: trace},
	} {
		var i Identity
		read := logReaderFor(tc.key)
		if ok := read != nil && read(&i, tc.value); ok != tc.ok || (i.TraceID != [16]byte{}) != tc.trace || (i.ParentSpanID != [8]byte{}) != tc.parent || i.DatadogSpanID != tc.datadog {
			t.Errorf("%s=%q: %v, %+v", tc.key, tc.value, ok, i)
		}
	}
}
