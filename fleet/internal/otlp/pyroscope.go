package otlp

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/internal/output/export"
	"github.com/whylate/whylate/report"
)

// SendProfile sends the time on critical paths of a recording to Pyroscope
// (https://grafana.com/docs/pyroscope/latest/reference-server-api, POST /ingest). It only logs a failure.
func (e *Exporter) SendProfile(ctx context.Context, id string, labels rows.Labels, r *rows.Rows, rep *report.Report) error {
	var body bytes.Buffer
	if err := export.Pprof(&body, rep); err != nil {
		return err
	}
	prof, err := profile.Parse(&body)
	if err != nil {
		return err
	}
	// The profile has a sample type for each latency band. Bands overlap, so only the first one, of all requests, is sent.
	// Pyroscope derives the name of a profile from its sample type, and "wall" is one that it knows.
	prof.SampleType, prof.DefaultSampleType, prof.TimeNanos = []*profile.ValueType{{Type: "wall", Unit: "nanoseconds"}}, "", r.Start.UnixNano()
	samples := prof.Sample[:0]
	for _, s := range prof.Sample {
		if s.Value = s.Value[:1]; s.Value[0] != 0 {
			samples = append(samples, s)
		}
	}
	if prof.Sample = samples; len(samples) == 0 {
		return nil
	}
	body.Reset()
	if err := prof.Write(&body); err != nil {
		return err
	}
	// The name contains the labels: service{version=v1,pod=p}.
	sanitizer := strings.NewReplacer("{", "_", "}", "_", ",", "_", "=", "_")
	var labelPairs []string
	for _, v := range [][2]string{{"version", labels.Version}, {"environment", labels.Environment}, {"pod", labels.Pod}, {"node", labels.Node}} {
		if v[1] != "" {
			labelPairs = append(labelPairs, v[0]+"="+sanitizer.Replace(v[1]))
		}
	}
	query := url.Values{"name": {sanitizer.Replace(labels.Service) + "{" + strings.Join(labelPairs, ",") + "}"}, "format": {"pprof"}, "spyName": {"whylate"},
		"from": {fmt.Sprint(r.Start.Unix())}, "until": {fmt.Sprint(r.Start.Unix() + max(1, r.DurationNS/1e9))}}
	if err := e.post(ctx, id, "/ingest?"+query.Encode(), "application/octet-stream", body.Bytes()); err != nil {
		e.Log.Error("export: a profile is not sent", "recording", id, "error", err) // an error would make the worker send the sums to the collector again
	}
	return nil
}
