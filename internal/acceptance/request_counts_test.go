package acceptance_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// TestRequestCounts compares the number of requests in a report with the program's own count. The programs finish all requests
// before the trace ends, so each that they count is completely in the trace.
func TestRequestCounts(t *testing.T) {
	for _, c := range []struct {
		name      string
		kind      report.Kind
		facts     []string // whose sum is the number of requests
		tolerance int      // requests that may be missing or too many, with the reason
		resent    string   // a fact that counts requests that may have been sent twice
	}{
		{name: "http1", kind: report.KindHTTP1, facts: []string{"requests"}},
		{name: "http1-close", kind: report.KindHTTP1, facts: []string{"requests"}},
		{name: "http1-tls", kind: report.KindHTTP1, facts: []string{"requests"}},
		{name: "http1-body", kind: report.KindHTTP1, facts: []string{"requests"}},
		{name: "http1-middleware", kind: report.KindHTTP1, facts: []string{"requests"}},
		// Pipelined requests that follow each other without a wait are distinguished by their writes; the last answers of a
		// connection may look like one request.
		{name: "http1-pipelined", kind: report.KindHTTP1, facts: []string{"requests"}, tolerance: 3},
		// A handler that panics ends the connection without an answer; on a connection that was in use before, net/http's
		// client then sends the request again.
		{name: "http1-hijack", kind: report.KindHTTP1, facts: []string{"upgrades", "streams", "panics"}, resent: "panics"},
		{name: "http2", kind: report.KindHTTP2, facts: []string{"requests"}},
		{name: "http2-h2c", kind: report.KindHTTP2, facts: []string{"requests"}},
		{name: "http2-xnet", kind: report.KindHTTP2, facts: []string{"requests"}},
		{name: "grpc", kind: report.KindGRPC, facts: []string{"calls"}},
		{name: "grpc-workers", kind: report.KindGRPC, facts: []string{"calls"}},
		{name: "tasks", kind: report.KindTask, facts: []string{"orders"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			data, facts := testprog.Record(t, c.name)
			rep := explainBytes(t, data, whylate.Options{})
			var want int64
			for _, f := range c.facts {
				want += facts.Facts[f]
			}
			var found, open, cut int
			var lines []string
			for _, g := range rep.Groups {
				lines = append(lines, fmt.Sprintf("%s %s: %d, %d open, %d cut", g.Kind, g.Name, g.Count, g.Open.Count, g.CutAtStart))
				if g.Kind != c.kind || c.kind == report.KindTask && g.Name != "order" {
					continue
				}
				found += g.Count
				open += g.Open.Count
				cut += g.CutAtStart
			}
			// The program may have received the answer of a request that was cut at the start before the trace began.
			if got := found + open; want == 0 || got+cut < int(want)-c.tolerance || got > int(want+facts.Facts[c.resent])+c.tolerance {
				t.Errorf("%d found + %d open + %d cut at the start; the program counts %d:\n%s", found, open, cut, want, strings.Join(lines, "\n"))
			}
			check.True(t, open+cut <= 8, "%d open and %d cut requests; there are no more than 8 clients", open, cut)
		})
	}
}
