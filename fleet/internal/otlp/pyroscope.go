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

// Profile sends the time on critical paths of a recording to Pyroscope (https://grafana.com/docs/pyroscope/latest/reference-server-api, POST /ingest).
func (e *Exporter) Profile(ctx context.Context, id string, l rows.Labels, r *rows.Rows, rep *report.Report) error {
	var body bytes.Buffer
	if err := export.Pprof(&body, rep); err != nil {
		return err
	}
	p, err := profile.Parse(&body)
	if err != nil {
		return err
	}
	// Bands are sample types of their own there, which overlap: only the first, all, goes. Pyroscope names a profile by its sample types,
	// and knows this one.
	p.SampleType, p.DefaultSampleType, p.TimeNanos = []*profile.ValueType{{Type: "wall", Unit: "nanoseconds"}}, "", r.Start.UnixNano()
	all := p.Sample[:0]
	for _, s := range p.Sample {
		if s.Value = s.Value[:1]; s.Value[0] != 0 {
			all = append(all, s)
		}
	}
	if p.Sample = all; len(all) == 0 {
		return nil
	}
	body.Reset()
	if err := p.Write(&body); err != nil {
		return err
	}
	// A name has its labels in it: service{version=v1,pod=p}.
	plain := strings.NewReplacer("{", "_", "}", "_", ",", "_", "=", "_")
	var labels []string
	for _, v := range [][2]string{{"version", l.Version}, {"environment", l.Environment}, {"pod", l.Pod}, {"node", l.Node}} {
		if v[1] != "" {
			labels = append(labels, v[0]+"="+plain.Replace(v[1]))
		}
	}
	q := url.Values{"name": {plain.Replace(l.Service) + "{" + strings.Join(labels, ",") + "}"}, "format": {"pprof"}, "spyName": {"whylate"},
		"from": {fmt.Sprint(r.Start.Unix())}, "until": {fmt.Sprint(r.Start.Unix() + max(1, r.DurationNS/1e9))}}
	if err := e.post(ctx, id, "/ingest?"+q.Encode(), "application/octet-stream", body.Bytes()); err != nil {
		e.Log.Error("export: a profile is not sent", "recording", id, "error", err) // to wait would send the collector its sums again
	}
	return nil
}
