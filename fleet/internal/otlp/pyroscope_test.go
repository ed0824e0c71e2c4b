package otlp

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/report"
)

var (
	shopLabels = rows.Labels{Service: "shop", Version: "v1,2", Pod: "p"}
	shopRows   = &rows.Rows{Start: time.Unix(1_700_000_000, 0), DurationNS: 5e9}
	shopReport = &report.Report{Groups: []report.Group{{Name: "GET /", Bands: []report.Band{
		{Band: report.BandAll, Causes: []report.Cause{{Cause: "lock", TotalNS: 3e6, Site: &report.Site{Func: "main.x", File: "x.go", Line: 1}, Routes: []report.Route{{TotalNS: 3e6}}}}},
		{Band: "p99-max", Causes: []report.Cause{{Cause: "lock", TotalNS: 2e6, Site: &report.Site{Func: "main.x", File: "x.go", Line: 1}, Routes: []report.Route{{TotalNS: 2e6}}}}}}}}}
)

// TestProfile: the request has the form of Pyroscope's reference, and the profile holds the time of all requests once.
func TestProfile(t *testing.T) {
	requests := 0
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		requests++
		q := r.URL.Query()
		if r.Method != http.MethodPost || r.URL.Path != "/ingest" || q.Get("name") != "shop{version=v1_2,pod=p}" || q.Get("from") != "1700000000" || q.Get("until") != "1700000005" || q.Get("format") != "pprof" {
			t.Error(r.Method, r.URL)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		p, err := profile.ParseData(body)
		if err != nil || len(p.SampleType) != 1 || p.SampleType[0].Type != "wall" || len(p.Sample) != 1 || fmt.Sprint(p.Sample[0].Value) != "[3000000]" || p.TimeNanos != shopRows.Start.UnixNano() {
			t.Error(p, err)
		}
	}))
	defer s.Close()
	e, counts := newExporter(t, s.URL)
	if err := e.SendProfile(t.Context(), "id", shopLabels, shopRows, shopReport); err != nil || requests != 1 || counts["sent"] != 1 {
		t.Error(err, requests, counts)
	}
	if err := e.SendProfile(t.Context(), "id", shopLabels, shopRows, new(report.Report)); err != nil || requests != 1 {
		t.Error("a report without requests:", err, requests)
	}
	s.Close()
	if err := e.SendProfile(t.Context(), "id", shopLabels, shopRows, shopReport); err != nil || counts["failed"] != 1 {
		t.Error("no server:", err, counts)
	}
}
