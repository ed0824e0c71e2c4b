package server

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// TestEndlessSums: all pages work if a service has the largest possible sums.
func TestEndlessSums(t *testing.T) {
	s, h := newTestServer(t)
	for i := range 8 {
		l := rows.Labels{Service: "shop", Version: "v1", Pod: fmt.Sprint("p", i)}
		must.Do(t, s.Store.AddRecording(t.Context(), store.Recording{ID: fmt.Sprintf("%032x", i), Labels: l, Received: time.Now()}))
		r, err := s.Store.Claim(t.Context(), time.Now(), time.Minute)
		if err != nil || r == nil {
			t.Fatal(r, err)
		}
		add := &rows.Rows{Start: time.Now(), DurationNS: math.MaxInt64, Requests: math.MaxInt64, Findings: []rows.Finding{{Problem: "p", Group: "g", Code: "WL2001", Title: "t", Requests: math.MaxInt64, WinNS: math.MaxInt64}}}
		for _, cause := range []string{"", "cpu", "lock", "network", "sleep"} {
			add.Sums = append(add.Sums, rows.Sum{Group: "g", Cause: cause, Bucket: 1000, N: int64(1000 * (1 + i)), NS: math.MaxInt64})
		}
		must.Have(s.Store.Finish(t.Context(), r, add))(t)
	}
	for _, path := range []string{"/", "/service/shop", "/service/shop?from=1h", "/service/OTHER", "/finding/p", "/v1/findings", "/v1/versions", "/v1/pods?service=shop", "/v1/series?service=shop", "/metrics"} {
		w := request(h, "GET", path, "")
		check.Equal(t, w.Code, http.StatusOK, "%s: %s", path, w.Body)
		check.False(t, strings.HasPrefix(path, "/v1") && (!json.Valid(w.Body.Bytes()) || strings.Contains(w.Body.String(), ":-")),
			"%s: %s", path, w.Body)
	}
}

// TestEndlessReports: merging reports with the largest possible numbers yields no negative number.
func TestEndlessReports(t *testing.T) {
	m := merger{groups: make(map[groupKey]*report.Group)}
	for range 3 {
		g := report.Group{Name: "g", Count: math.MaxInt, TotalNS: math.MaxInt64, Histogram: [][2]int64{{1000, math.MaxInt64}, {2000, math.MaxInt64}},
			Bands: []report.Band{{Band: report.BandAll, Count: math.MaxInt, Causes: []report.Cause{{Cause: report.CauseSleep, TotalNS: math.MaxInt64}}}}}
		m.add(&report.Report{Input: report.Input{DurationNS: math.MaxInt64}, Groups: []report.Group{g}})
	}
	r := m.mergedReport("x")
	g := r.Groups[0]
	if r.Input.DurationNS < 0 || g.Count < 0 || g.TotalNS < 0 || g.Histogram[0][1] < 0 || g.Bands[0].Count < 0 || g.Bands[0].Causes[0].TotalNS < 0 || *g.LatencyNS.P50 != 1000 {
		t.Errorf("%+v", r)
	}
}
