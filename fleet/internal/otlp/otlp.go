// Package otlp exports the rows of a recording as OTLP metrics and its findings as OTLP logs to an OpenTelemetry Collector
// (https://opentelemetry.io/docs/specs/otlp), so that a fleet needs no database for them. It also exports a profile of the
// critical paths to Pyroscope.
package otlp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/capture/wire"
	"github.com/whylate/whylate/report"
)

// An Exporter sends to one collector or to one Pyroscope.
type Exporter struct {
	URL          string // of an OTLP receiver for HTTP, such as http://collector:4318, or of Pyroscope
	Log          *slog.Logger
	CountOutcome func(outcome string) // sent, failed, refused, partial
	Headers      http.Header
	Client       *http.Client
	// RetryDelay is the time until the first retry. It doubles at each further one.
	RetryDelay time.Duration
}

// New returns an Exporter. headers has the form of OTEL_EXPORTER_OTLP_HEADERS: name=value, separated by commas. count is called with the outcome of
// each message: "sent", "refused" or "failed". It is also called with "partial" for each request of which the collector rejects a part.
func New(url, headers string, log *slog.Logger, count func(string)) (*Exporter, error) {
	h, lines := make(http.Header), []string{}
	for pair := range strings.SplitSeq(headers, ",") {
		if pair = strings.TrimSpace(pair); pair != "" {
			lines = append(lines, strings.Replace(pair, "=", ":", 1))
		}
	}
	if err := record.AddHeaders(h, "OTEL_EXPORTER_OTLP_HEADERS", lines); err != nil {
		return nil, err
	}
	c := wire.Client(wire.DefaultTransport())
	c.Timeout = 5 * time.Second
	return &Exporter{URL: strings.TrimSuffix(url, "/"), Log: log, CountOutcome: count, Headers: h, Client: c, RetryDelay: time.Second}, nil
}

// Send sends the sums and findings of a recording. It returns an error if the collector may accept them later. If the collector
// refuses them permanently, Send logs that and returns nil.
func (e *Exporter) Send(ctx context.Context, id string, labels rows.Labels, r *rows.Rows, _ *report.Report) error {
	source := resourceOf(labels)
	scope := &common.InstrumentationScope{Name: "github.com/whylate/whylate/fleet"}
	err := e.postMessage(ctx, id, "/v1/metrics", &metrics.MetricsData{ResourceMetrics: []*metrics.ResourceMetrics{{Resource: source,
		ScopeMetrics: []*metrics.ScopeMetrics{{Scope: scope, Metrics: metricsOf(r)}}}}})
	if err != nil || len(r.Findings) == 0 {
		return err
	}
	return e.postMessage(ctx, id, "/v1/logs", &logs.LogsData{ResourceLogs: []*logs.ResourceLogs{{Resource: source,
		ScopeLogs: []*logs.ScopeLogs{{Scope: scope, LogRecords: logRecordsOf(id, r)}}}}})
}

// resourceOf returns the labels under the names of OpenTelemetry's semantic conventions.
func resourceOf(l rows.Labels) *resource.Resource {
	return &resource.Resource{Attributes: attributes("service.name", l.Service, "service.version", l.Version, "deployment.environment.name", l.Environment,
		"k8s.pod.name", l.Pod, "k8s.node.name", l.Node)}
}

// attributes builds attributes from alternating names and values. It omits empty values.
func attributes(list ...string) (out []*common.KeyValue) {
	for i := 0; i+1 < len(list); i += 2 {
		if list[i+1] != "" {
			out = append(out, &common.KeyValue{Key: list[i], Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: list[i+1]}}})
		}
	}
	return out
}

// histogramScale gives 8 buckets for each power of two, as many as the rows have.
const histogramScale = 3

// metricsOf returns the rows as metrics: deltas over the time of the recording, in seconds. The time of a cause has no latency bucket, since each
// bucket would be a series.
func metricsOf(r *rows.Rows) []*metrics.Metric {
	start, end := uint64(r.Start.UnixNano()), uint64(r.Start.UnixNano()+r.DurationNS)
	type key struct{ group, cause string }
	latencyCounts, groupSeconds, causeSeconds := make(map[string]map[int32]uint64), make(map[string]float64), make(map[key]float64)
	for _, s := range r.Sums {
		if latencyCounts[s.Group] == nil {
			latencyCounts[s.Group] = make(map[int32]uint64)
		}
		if s.Cause == "" {
			latencyCounts[s.Group][bucketIndex(s.Bucket)] += uint64(s.N)
			continue
		}
		groupSeconds[s.Group] += float64(s.NS) / 1e9
		causeSeconds[key{s.Group, s.Cause}] += float64(s.NS) / 1e9
	}
	var requests []*metrics.ExponentialHistogramDataPoint
	for group, counts := range latencyCounts {
		p := &metrics.ExponentialHistogramDataPoint{Attributes: attributes("whylate.group", group), StartTimeUnixNano: start, TimeUnixNano: end, Sum: proto.Float64(groupSeconds[group]), Scale: histogramScale}
		first, last := int32(math.MaxInt32), int32(math.MinInt32)
		for i, n := range counts {
			first, last, p.Count = min(first, i), max(last, i), p.Count+n
		}
		if p.Count == 0 {
			continue
		}
		p.Positive = &metrics.ExponentialHistogramDataPoint_Buckets{Offset: first, BucketCounts: make([]uint64, last-first+1)}
		for i, n := range counts {
			p.Positive.BucketCounts[i-first] = n
		}
		requests = append(requests, p)
	}
	number := func(v float64, labels ...string) *metrics.NumberDataPoint {
		return &metrics.NumberDataPoint{Attributes: attributes(labels...), StartTimeUnixNano: start, TimeUnixNano: end, Value: &metrics.NumberDataPoint_AsDouble{AsDouble: v}}
	}
	var causes []*metrics.NumberDataPoint
	for k, v := range causeSeconds {
		causes = append(causes, number(v, "whylate.group", k.group, "whylate.cause", k.cause))
	}
	const delta = metrics.AggregationTemporality_AGGREGATION_TEMPORALITY_DELTA
	sum := func(name, unit, description string, points ...*metrics.NumberDataPoint) *metrics.Metric {
		return &metrics.Metric{Name: name, Unit: unit, Description: description, Data: &metrics.Metric_Sum{Sum: &metrics.Sum{DataPoints: points, AggregationTemporality: delta, IsMonotonic: true}}}
	}
	return []*metrics.Metric{
		{Name: "whylate.request.duration", Unit: "s", Description: "Latency of recorded requests.",
			Data: &metrics.Metric_ExponentialHistogram{ExponentialHistogram: &metrics.ExponentialHistogram{DataPoints: requests, AggregationTemporality: delta}}},
		sum("whylate.cause.time", "s", "Time that recorded requests spent on a cause.", causes...),
		sum("whylate.recordings", "{recording}", "Recordings that were explained.", number(1)),
		sum("whylate.recorded.time", "s", "Time that was recorded.", number(float64(r.DurationNS)/1e9)),
	}
}

// bucketIndex returns the index of the exponential histogram's bucket that contains the middle of the rows' bucket with the
// given upper bound in ns. A quantile is therefore exact to two buckets.
func bucketIndex(upper int64) int32 {
	return int32(math.Ceil(math.Log2(float64(rows.LowerBound(upper)+upper)/2e9)*(1<<histogramScale))) - 1
}

// severities maps the severities of findings to those of OTLP.
var severities = map[string]logs.SeverityNumber{"high": logs.SeverityNumber_SEVERITY_NUMBER_ERROR, "medium": logs.SeverityNumber_SEVERITY_NUMBER_WARN, "low": logs.SeverityNumber_SEVERITY_NUMBER_INFO}

// logRecordsOf returns one log record for each finding of the recording id.
func logRecordsOf(id string, r *rows.Rows) (out []*logs.LogRecord) {
	for _, f := range r.Findings {
		a := attributes("whylate.problem", f.Problem, "whylate.group", f.Group, "whylate.code", f.Code, "whylate.cause", f.Cause, "whylate.site", f.Site, "whylate.fix", f.Fix, "whylate.recording", id)
		a = append(a, &common.KeyValue{Key: "whylate.requests", Value: &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: f.Requests}}},
			&common.KeyValue{Key: "whylate.win", Value: &common.AnyValue{Value: &common.AnyValue_DoubleValue{DoubleValue: float64(f.WinNS) / 1e9}}}) // seconds, in this recording
		out = append(out, &logs.LogRecord{TimeUnixNano: uint64(r.Start.UnixNano()), ObservedTimeUnixNano: uint64(time.Now().UnixNano()), EventName: "whylate.finding", Attributes: a,
			SeverityNumber: severities[f.Severity], SeverityText: f.Severity, Body: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: f.Title}}})
	}
	return out
}

// errRefused is the error of a request that the receiver would refuse again.
var errRefused = errors.New("the receiver refuses it")

// postMessage encodes a message of recording id as protobuf and posts it to a path of the receiver.
func (e *Exporter) postMessage(ctx context.Context, id, path string, m proto.Message) error {
	body, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	return e.post(ctx, id, path, "application/x-protobuf", body)
}

// post sends the body to a path of the receiver, with two retries, and counts the outcome. id is the recording's, for the log.
// A body that the receiver refuses is only logged: the error is then nil.
func (e *Exporter) post(ctx context.Context, id, path, contentType string, body []byte) (err error) {
	delay := e.RetryDelay
	for range 3 {
		if err = e.postOnce(ctx, id, path, contentType, body); err == nil || errors.Is(err, errRefused) {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(delay):
			delay *= 2
		}
	}
	switch {
	case err == nil:
		e.CountOutcome("sent")
	case errors.Is(err, errRefused):
		e.CountOutcome("refused")
		e.Log.Error("export", "recording", id, "path", path, "error", err)
		return nil
	default:
		e.CountOutcome("failed")
	}
	return err
}

// postOnce sends the body once to a path of the receiver. It logs and counts a partial rejection; id is the recording's, for
// the log. The error wraps errRefused if a retry is of no use.
func (e *Exporter) postOnce(ctx context.Context, id, path, contentType string, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	for name, values := range e.Headers {
		r.Header[name] = slices.Clone(values)
	}
	r.Header.Set("Content-Type", contentType)
	res, err := e.Client.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer, err := wire.ReadFirst(res.Body, 64<<10)
	switch {
	case res.StatusCode == http.StatusBadRequest || res.StatusCode == http.StatusRequestEntityTooLarge:
		return fmt.Errorf("%w: %s", errRefused, res.Status)
	case res.StatusCode/100 != 2:
		return fmt.Errorf("the receiver answers %s", res.Status)
	case err != nil && !errors.Is(err, io.EOF):
		return err
	}
	if n, reason := parseRejection(answer); n > 0 && contentType == "application/x-protobuf" {
		e.CountOutcome("partial")
		e.Log.Error("export: the collector rejects a part", "recording", id, "path", path, "rejected", n, "error", reason)
	}
	return nil
}

// parseRejection parses the answer of a collector: field 1 is a message with the number of rejected points or records (field 1)
// and the reason (field 2). The generated code for it would import gRPC.
func parseRejection(b []byte) (n uint64, reason string) {
	rejection := fieldContent(b, 1)
	if countField := fieldContent(rejection, 1); countField != nil {
		n, _ = protowire.ConsumeVarint(countField)
	}
	return n, string(fieldContent(rejection, 2))
}

// fieldContent returns the content of a field of a protobuf message, nil if the field is absent.
func fieldContent(b []byte, want protowire.Number) []byte {
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil
		}
		size := protowire.ConsumeFieldValue(num, kind, b[n:])
		if size < 0 {
			return nil
		}
		if num == want {
			if kind == protowire.BytesType {
				out, _ := protowire.ConsumeBytes(b[n:])
				return out
			}
			return b[n : n+size]
		}
		b = b[n+size:]
	}
	return nil
}
