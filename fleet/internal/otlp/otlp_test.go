package otlp

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"

	"github.com/whylate/whylate/fleet/internal/enginetest"
	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testfull"
)

// A receiver is a collector that decodes messages with the published definitions.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	answers  []func(w http.ResponseWriter)
	requests []*http.Request
	metrics  []*metrics.ResourceMetrics
	logs     []*logs.ResourceLogs
	received chan struct{}
}

func newReceiver(t *testing.T, answers ...func(w http.ResponseWriter)) *receiver {
	r := &receiver{answers: answers, received: make(chan struct{}, 100)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		body, err := io.ReadAll(q.Body)
		if err != nil || q.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Error(err, q.Header)
		}
		r.requests = append(r.requests, q)
		if len(r.answers) > 0 {
			answer := r.answers[0]
			r.answers = r.answers[1:]
			answer(w)
			return
		}
		switch q.URL.Path {
		case "/v1/metrics":
			var m metrics.MetricsData
			if err := proto.Unmarshal(body, &m); err != nil {
				t.Error(err)
			}
			r.metrics = append(r.metrics, m.ResourceMetrics...)
		case "/v1/logs":
			var l logs.LogsData
			if err := proto.Unmarshal(body, &l); err != nil {
				t.Error(err)
			}
			r.logs = append(r.logs, l.ResourceLogs...)
		default:
			t.Error(q.URL)
		}
		r.received <- struct{}{}
	}))
	t.Cleanup(r.Close)
	return r
}

func newExporter(t *testing.T, url string) (*Exporter, map[string]int) {
	t.Helper()
	counts := make(map[string]int)
	e := must.Have(New(url+"/", "authorization=Bearer secret, x-tenant=shop", slog.New(slog.NewTextHandler(t.Output(), nil)), func(o string) { counts[o]++ }))(t)
	e.RetryDelay = time.Millisecond
	return e, counts
}

func sum(group, cause string, bucket, n, ns int64) rows.Sum {
	return rows.Sum{Group: group, Cause: cause, Bucket: bucket, N: n, NS: ns}
}

var (
	recordingStart = time.Unix(1_800_000_000, 5).UTC()
	labels         = rows.Labels{Service: "shop", Version: "v2", Pod: "shop-1", Node: "n1"}
	sample         = &rows.Rows{Start: recordingStart, DurationNS: 2e9, Requests: 12, Cause: "lock",
		Sums: []rows.Sum{sum("GET /", "", 1<<20, 10, 0), sum("GET /", "", 1<<24, 2, 0), sum("GET /", "lock", 1<<24, 0, 20e6), sum("GET /", "cpu", 1<<20, 0, 5e6), sum("GET /", "cpu", 1<<24, 0, 1e6),
			sum("GET /cart", "", 9<<17, 3, 0)},
		Findings: []rows.Finding{{Problem: "p1", Group: "GET /", Code: "WL2002", Cause: "lock", Severity: "high", Title: "a lock", Site: "main.f (f.go:1)", Fix: "free it", Requests: 12, WinNS: 15e6}}}
)

// checkSample checks that the received messages describe the sample.
func (r *receiver) checkSample(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	must.True(t, len(r.metrics) == 1 && len(r.logs) == 1, "%d metrics, %d logs", len(r.metrics), len(r.logs))
	var attributes []string
	for _, a := range r.metrics[0].Resource.Attributes {
		attributes = append(attributes, a.Key+"="+a.Value.GetStringValue())
	}
	if got := strings.Join(attributes, " "); got != "service.name=shop service.version=v2 k8s.pod.name=shop-1 k8s.node.name=n1" {
		t.Error(got)
	}
	var got []string
	for _, m := range r.metrics[0].ScopeMetrics[0].Metrics {
		for _, p := range m.GetExponentialHistogram().GetDataPoints() {
			line := fmt.Sprintf("%s %s %d %.3f", m.Name, p.Attributes[0].Value.GetStringValue(), p.Count, p.GetSum())
			for i, n := range p.Positive.BucketCounts {
				if n > 0 {
					upper := math.Pow(2, float64(p.Positive.Offset+int32(i)+1)/math.Pow(2, float64(p.Scale)))
					line += fmt.Sprintf(" %d<=%.5f", n, upper)
				}
			}
			if p.StartTimeUnixNano != uint64(recordingStart.UnixNano()) || p.TimeUnixNano != uint64(recordingStart.Add(2*time.Second).UnixNano()) || m.GetExponentialHistogram().AggregationTemporality != metrics.AggregationTemporality_AGGREGATION_TEMPORALITY_DELTA {
				t.Error(p)
			}
			got = append(got, line)
		}
		for _, p := range m.GetSum().GetDataPoints() {
			line := m.Name
			for _, a := range p.Attributes {
				line += " " + a.Value.GetStringValue()
			}
			got = append(got, fmt.Sprintf("%s %.3f", line, p.GetAsDouble()))
		}
	}
	slices.Sort(got)
	// The buckets of the rows are [0.98 ms, 1.05 ms), [15.7 ms, 16.8 ms) and [1.05 ms, 1.18 ms).
	if want := []string{"whylate.cause.time GET / cpu 0.006", "whylate.cause.time GET / lock 0.020", "whylate.recorded.time 2.000", "whylate.recordings 1.000",
		"whylate.request.duration GET / 12 0.026 10<=0.00106 2<=0.01704", "whylate.request.duration GET /cart 3 0.000 3<=0.00116"}; !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	l := r.logs[0].ScopeLogs[0].LogRecords
	if len(l) != 1 || l[0].Body.GetStringValue() != "a lock" || l[0].SeverityNumber != logs.SeverityNumber_SEVERITY_NUMBER_ERROR || l[0].EventName != "whylate.finding" || len(l[0].Attributes) != 9 {
		t.Errorf("%v", l)
	}
}

// TestSend: sums and findings arrive unchanged, with the configured headers.
func TestSend(t *testing.T) {
	r := newReceiver(t)
	e, counts := newExporter(t, r.URL)
	must.Do(t, e.Send(t.Context(), "id", labels, sample, nil))
	r.checkSample(t)
	check.True(t, e.Client.Timeout >= time.Second && e.Client.Timeout <= 10*time.Second, "a collector that does not answer is left after %v", e.Client.Timeout)
	if h := r.requests[0].Header; h.Get("Authorization") != "Bearer secret" || h.Get("X-Tenant") != "shop" || counts["sent"] != 2 {
		t.Error(h, counts)
	}
}

// TestFailures: a failed request is sent again, a refused one is not, and a partial rejection is counted.
func TestFailures(t *testing.T) {
	status := func(code int) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { w.WriteHeader(code) }
	}
	partial := func(w http.ResponseWriter) { _, _ = w.Write([]byte("\x0a\x07\x08\x05\x12\x03why")) } // {1: {1: 5, 2: "why"}}
	for _, c := range []struct {
		situation string
		answers   []func(http.ResponseWriter)
		ok        bool
		counts    map[string]int
	}{
		{"busy, then not", []func(http.ResponseWriter){status(503), status(429)}, true, map[string]int{"sent": 2}},
		{"down", []func(http.ResponseWriter){status(503), status(502), status(500)}, false, map[string]int{"failed": 1}},
		{"no credentials", []func(http.ResponseWriter){status(401), status(401), status(401)}, false, map[string]int{"failed": 1}},
		{"refused", []func(http.ResponseWriter){status(400), status(413)}, true, map[string]int{"refused": 2}},
		{"a redirect", []func(http.ResponseWriter){status(302), status(302), status(302)}, false, map[string]int{"failed": 1}},
		{"in part", []func(http.ResponseWriter){partial, status(200)}, true, map[string]int{"sent": 2, "partial": 1}},
		{"no message", []func(http.ResponseWriter){func(w http.ResponseWriter) { _, _ = io.WriteString(w, "\x0a\xff\xff\xff") }}, true, map[string]int{"sent": 2}},
	} {
		e, counts := newExporter(t, newReceiver(t, c.answers...).URL)
		if err := e.Send(t.Context(), "id", labels, sample, nil); (err == nil) != c.ok || fmt.Sprint(counts) != fmt.Sprint(c.counts) {
			t.Errorf("%s: %v, %v", c.situation, err, counts)
		}
	}
	e, _ := newExporter(t, "http://127.0.0.1:1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check.Error(t, e.Send(ctx, "id", labels, sample, nil), "no error without a receiver")
}

// TestCollector: an OpenTelemetry Collector accepts the messages and forwards the same values.
func TestCollector(t *testing.T) {
	testfull.Need(t, "builds a collector")
	r := newReceiver(t)
	c := enginetest.Collector(t, r.URL)
	e, counts := newExporter(t, c.Address)
	if err := e.Send(t.Context(), "id", labels, sample, nil); err != nil || counts["sent"] != 2 || counts["partial"] != 0 {
		t.Fatal(err, counts)
	}
	<-r.received
	<-r.received
	r.checkSample(t)
}
