// Package metrics defines the metrics that a fleet exposes to Prometheus about itself.
package metrics

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/whylate/whylate/fleet/internal/store"
)

// Metrics are the metrics of all roles of a process.
type Metrics struct {
	ReceivedRecordings *prometheus.CounterVec // by answer
	ReceivedBytes      prometheus.Counter
	IngestSeconds      prometheus.Histogram
	Explanations       *prometheus.CounterVec // by outcome
	ExplainSeconds     prometheus.Histogram
	DroppedFiles       *prometheus.CounterVec // by reason
	FoldedRecordings   prometheus.Counter
	DeniedRequests     *prometheus.CounterVec // readers, by reason
	WebhookAttempts    *prometheus.CounterVec // by outcome
	ScrapeAttempts     *prometheus.CounterVec // by outcome
	TracedSeconds      prometheus.Counter
	ExportedMessages   *prometheus.CounterVec // by outcome
	registry           *prometheus.Registry
}

// New registers all metrics. If st is not nil, each scrape also queries it for the state of recordings, webhooks and findings.
func New(st *store.Store) *Metrics {
	m := &Metrics{
		ReceivedRecordings: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "whylate_fleet_received_total",
			Help: "Recordings sent, by answer: accepted, or why not."}, []string{"answer"}),
		ReceivedBytes: prometheus.NewCounter(prometheus.CounterOpts{Name: "whylate_fleet_received_bytes_total", Help: "Size of accepted recordings, unpacked."}),
		IngestSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "whylate_fleet_ingest_seconds", Help: "Time from a request's head to its answer.",
			Buckets: prometheus.ExponentialBuckets(0.002, 2, 14)}),
		Explanations: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "whylate_fleet_explained_total",
			Help: "Explanations that ended, by outcome: done, failed (and tried again), poison."}, []string{"outcome"}),
		ExplainSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "whylate_fleet_explain_seconds", Help: "Time that explaining a recording took.",
			Buckets: prometheus.ExponentialBuckets(0.02, 2, 14)}),
		DroppedFiles: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "whylate_fleet_dropped_total",
			Help: "Files that retention removed, by reason: age, bytes, orphan."}, []string{"reason"}),
		FoldedRecordings: prometheus.NewCounter(prometheus.CounterOpts{Name: "whylate_fleet_folded_total",
			Help: "Recordings whose labels, groups or findings were counted as (other), because the service has too many."}),
		DeniedRequests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "whylate_fleet_denied_total",
			Help: "Requests of readers that were refused, by reason: token, host."}, []string{"reason"}),
		WebhookAttempts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "whylate_fleet_webhooks_total",
			Help: "Attempts to deliver a webhook, by outcome: delivered, failed (and tried again), refused (a private address), given-up."}, []string{"outcome"}),
		ScrapeAttempts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "whylate_fleet_scraped_total",
			Help: "Attempts to record a target, by outcome: taken, busy (another trace runs), refused (a private address, or a redirect), failed, kept-out (by a bound of the service), too-many (discovery finds more than is kept)."}, []string{"outcome"}),
		ExportedMessages: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "whylate_fleet_exported_total",
			Help: "Messages for the OpenTelemetry Collector, by outcome: sent, failed (and tried again), refused (and lost), partial (a part is lost)."}, []string{"outcome"}),
		TracedSeconds: prometheus.NewCounter(prometheus.CounterOpts{Name: "whylate_fleet_scrape_seconds_total", Help: "Time for which targets were traced."}),
		registry:      prometheus.NewRegistry(),
	}
	for _, a := range []string{"accepted", "token", "service", "rate", "queue", "large", "damaged", "disk", "busy", "error"} {
		m.ReceivedRecordings.WithLabelValues(a)
	}
	for _, o := range []string{"done", "failed", "poison"} {
		m.Explanations.WithLabelValues(o)
	}
	for _, o := range []string{"delivered", "failed", "refused", "given-up"} {
		m.WebhookAttempts.WithLabelValues(o)
	}
	for _, o := range []string{"taken", "busy", "refused", "failed", "kept-out", "too-many"} {
		m.ScrapeAttempts.WithLabelValues(o)
	}
	for _, o := range []string{"sent", "failed", "refused", "partial"} {
		m.ExportedMessages.WithLabelValues(o)
	}
	m.registry.MustRegister(m.ExportedMessages, m.WebhookAttempts, m.ScrapeAttempts, m.TracedSeconds, m.ReceivedRecordings, m.ReceivedBytes, m.IngestSeconds, m.Explanations, m.ExplainSeconds, m.DroppedFiles, m.FoldedRecordings, m.DeniedRequests,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if st != nil {
		m.registry.MustRegister(&storeCollector{store: st})
	}
	return m
}

// Handler serves the metrics in the text format of Prometheus.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 2, ErrorHandling: promhttp.ContinueOnError})
}

// storeCollector is a collector of metrics that it queries from the store at each scrape.
type storeCollector struct{ store *store.Store }

var (
	recordingsDesc      = prometheus.NewDesc("whylate_fleet_recordings", "Recordings by state: waiting, working, done, poison.", []string{"state"}, nil)
	waitingWebhooksDesc = prometheus.NewDesc("whylate_fleet_webhooks_waiting", "Webhooks that wait to be delivered.", nil, nil)
	findingWinDesc      = prometheus.NewDesc("whylate_fleet_finding_win_seconds", "Seconds a second that a fix of a finding would win, of the fifty largest of the last day.",
		[]string{"problem", "service", "environment", "group", "code", "cause", "version"}, nil)
	headroomDesc = prometheus.NewDesc("whylate_fleet_headroom", "By how many times the load of a version's pods can grow until the first limit that recordings of the last day show, of the fifty versions with least.",
		[]string{"service", "environment", "version"}, nil)
)

// Bounds of the number of series, which must not grow with what services send.
const (
	maxFindings = 50
	maxVersions = 50
)

func (k *storeCollector) Describe(d chan<- *prometheus.Desc) {
	d <- recordingsDesc
	d <- findingWinDesc
	d <- headroomDesc
	d <- waitingWebhooksDesc
}

// Collect queries the store, for at most 10 s, and sends the number of recordings by state, of webhooks that wait, and the
// findings and headroom of the last day. A failed query of recordings or findings becomes an invalid metric, which the scrape
// reports.
func (k *storeCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	states, err := k.store.CountByState(ctx)
	if err != nil {
		out <- prometheus.NewInvalidMetric(recordingsDesc, err)
		return
	}
	for _, s := range []string{store.Waiting, store.Working, store.Done, store.Poison} {
		out <- prometheus.MustNewConstMetric(recordingsDesc, prometheus.GaugeValue, float64(states[s]), s)
	}
	if n, err := k.store.CountUnsent(ctx); err == nil {
		out <- prometheus.MustNewConstMetric(waitingWebhooksDesc, prometheus.GaugeValue, float64(n))
	}
	now := time.Now()
	problems, versions, err := k.store.Overview(ctx, store.Selection{From: now.Add(-24 * time.Hour), To: now})
	if err != nil {
		out <- prometheus.NewInvalidMetric(findingWinDesc, err)
		return
	}
	for _, p := range problems[:min(len(problems), maxFindings)] {
		if !p.Replaced && p.Mute == nil {
			out <- prometheus.MustNewConstMetric(findingWinDesc, prometheus.GaugeValue, p.WinPerSecond, p.Problem, p.Service, p.Environment, p.Group, p.Code, p.Cause, p.Versions[len(p.Versions)-1])
		}
	}
	slices.SortStableFunc(versions, store.CompareHeadroom)
	for _, v := range versions[:min(len(versions), maxVersions)] {
		if v.Headroom != nil && v.Headroom.Times > 0 {
			out <- prometheus.MustNewConstMetric(headroomDesc, prometheus.GaugeValue, v.Headroom.Times, v.Service, v.Environment, v.Version)
		}
	}
}
