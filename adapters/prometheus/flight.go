package prometheus

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/whylate/whylate/service/flight"
)

// A FlightCollector is a prometheus.Collector of a flight recorder. The last recording's file is an exemplar of
// whylate_flight_recordings_total, label recording: a scrape has it if the handler's EnableOpenMetrics is set.
type FlightCollector struct {
	recorder *flight.Recorder
	descs    []*prometheus.Desc

	recording, cost, ownCost, budget, duty, off      *prometheus.Desc
	triggers, missed, recordings, failed, disk, sent *prometheus.Desc
}

// NewFlightCollector returns a collector of r's state; r may be nil.
func NewFlightCollector(r *flight.Recorder) *FlightCollector {
	c := &FlightCollector{recorder: r}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		c.descs = append(c.descs, prometheus.NewDesc("whylate_flight_"+name, help, labels, nil))
		return c.descs[len(c.descs)-1]
	}
	c.recording = desc("recording", "Whether the runtime's flight recorder runs.")
	c.cost = desc("cost_ratio", "The runtime's flight recorder's share of the CPUs if it runs all the time, and how that is known.", "by")
	c.ownCost = desc("own_cost_ratio", "The share of the CPUs that reading the kernel's counters takes.")
	c.budget = desc("budget_ratio", "What the recorder may cost, as a share of the CPUs; absent without a bound.")
	c.duty = desc("duty_ratio", "The part of the time that the recorder runs to stay within its budget.")
	c.off = desc("off_seconds_total", "Time in which the recorder was off because of its budget.")
	c.triggers = desc("triggers_total", "Moments worth a recording, by kind.", "kind")
	c.missed = desc("missed_total", "Moments worth a recording that are in none, by kind: there were enough, or the recorder was off.", "kind")
	c.recordings = desc("recordings_total", "Recordings kept.")
	c.failed = desc("failures_total", "Recordings that could not be written or handed over.")
	c.disk = desc("disk_bytes", "What the recordings in the directory take.")
	c.sent = desc("uploads_total", "Recordings sent to a collector, by what became of them; failed ones are attempts that are made again. Absent without a collector.", "outcome")
	return c
}

// Describe implements prometheus.Collector.
func (c *FlightCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *FlightCollector) Collect(out chan<- prometheus.Metric) {
	defer reportPanic()
	s := c.recorder.State()
	c.collect(out, &s)
}

// collect sends the metrics of a flight recorder's state to out. The counter of recordings has the name of the last recording
// as its exemplar.
func (c *FlightCollector) collect(out chan<- prometheus.Metric, s *flight.State) {
	put := func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
		m, err := prometheus.NewConstMetric(d, t, v, labels...)
		send(out, m, err)
	}
	recording := 0.
	if s.Recording {
		recording = 1
	}
	put(c.recording, prometheus.GaugeValue, recording)
	put(c.cost, prometheus.GaugeValue, s.Cost, s.CostFrom)
	put(c.ownCost, prometheus.GaugeValue, s.OwnCost)
	if s.Budget > 0 {
		put(c.budget, prometheus.GaugeValue, s.Budget)
	}
	put(c.duty, prometheus.GaugeValue, s.Duty)
	put(c.off, prometheus.CounterValue, s.Off.Seconds())
	for _, k := range flight.Kinds() {
		put(c.triggers, prometheus.CounterValue, float64(s.Triggers[k]), string(k))
		put(c.missed, prometheus.CounterValue, float64(s.Missed[k]), string(k))
	}
	recordings, err := prometheus.NewConstMetric(c.recordings, prometheus.CounterValue, float64(s.Kept))
	if err == nil && s.Last != "" {
		last := prometheus.Exemplar{Value: 1, Labels: prometheus.Labels{"recording": s.Last}, Timestamp: s.LastAt}
		if m, err := prometheus.NewMetricWithExemplars(recordings, last); err == nil {
			recordings = m
		}
	}
	send(out, recordings, err)
	put(c.failed, prometheus.CounterValue, float64(s.Failed))
	put(c.disk, prometheus.GaugeValue, float64(s.DiskBytes))
	if u := s.Upload; u != nil {
		put(c.sent, prometheus.CounterValue, float64(u.Sent), "sent")
		put(c.sent, prometheus.CounterValue, float64(u.Refused), "refused")
		put(c.sent, prometheus.CounterValue, float64(u.Failed), "failed")
	}
}
