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
	fromShop = rows.Labels{Service: "shop", Version: "v1,2", Pod: "p"}
	during   = &rows.Rows{Start: time.Unix(1_700_000_000, 0), DurationNS: 5e9}
	late     = &report.Report{Groups: []report.Group{{Name: "GET /", Bands: []report.Band{
		{Band: report.BandAll, Causes: []report.Cause{{Cause: "lock", TotalNS: 3e6, Site: &report.Site{Func: "main.x", File: "x.go", Line: 1}, Routes: []report.Route{{TotalNS: 3e6}}}}},
		{Band: "p99-max", Causes: []report.Cause{{Cause: "lock", TotalNS: 2e6, Site: &report.Site{Func: "main.x", File: "x.go", Line: 1}, Routes: []report.Route{{TotalNS: 2e6}}}}}}}}}
)

// TestProfile: the profile of a recording is asked for as Pyroscope's reference has it, and holds the time of all requests once.
func TestProfile(t *testing.T) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked++
		q := r.URL.Query()
		if r.Method != http.MethodPost || r.URL.Path != "/ingest" || q.Get("name") != "shop{version=v1_2,pod=p}" || q.Get("from") != "1700000000" || q.Get("until") != "1700000005" || q.Get("format") != "pprof" {
			t.Error(r.Method, r.URL)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		p, err := profile.ParseData(body)
		if err != nil || len(p.SampleType) != 1 || p.SampleType[0].Type != "wall" || len(p.Sample) != 1 || fmt.Sprint(p.Sample[0].Value) != "[3000000]" || p.TimeNanos != during.Start.UnixNano() {
			t.Error(p, err)
		}
	}))
	defer s.Close()
	e, counts := exporter(t, s.URL)
	if err := e.Profile(t.Context(), "id", fromShop, during, late); err != nil || asked != 1 || counts["sent"] != 1 {
		t.Error(err, asked, counts)
	}
	if err := e.Profile(t.Context(), "id", fromShop, during, new(report.Report)); err != nil || asked != 1 {
		t.Error("of no requests:", err, asked)
	}
	s.Close()
	if err := e.Profile(t.Context(), "id", fromShop, during, late); err != nil || counts["failed"] != 1 {
		t.Error("nobody there:", err, counts)
	}
}
