package server

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/fleet/internal/policy"
	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// TestStateOf: what versions show about a finding.
func TestStateOf(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	version := func(name string, age time.Duration, recordings int64) store.Version {
		return store.Version{Service: "shop", Version: name, First: now.Add(-age), Recordings: recordings}
	}
	v1, v2, v3, young := version("v1", 72*time.Hour, 9), version("v2", 30*time.Hour, 9), version("v3", time.Hour, 9), version("v3", time.Hour, 2)
	for _, c := range []struct {
		situation    string
		versions     []store.Version
		seenVersions []string
		age          time.Duration
		want         string
	}{
		{"known for days", []store.Version{v2, v1}, []string{"v1", "v2"}, 70 * time.Hour, ""},
		{"a deploy brought it", []store.Version{v3, v2, v1}, []string{"v3"}, time.Hour, "new in v3"},
		{"a deploy removed it", []store.Version{v3, v2}, []string{"v2"}, 30 * time.Hour, "not in v3 (9 recordings)"},
		{"too few recordings to say so", []store.Version{young, v2}, []string{"v2"}, 30 * time.Hour, ""},
		{"it began between deploys", []store.Version{v1}, []string{"v1"}, time.Hour, "new"},
		{"the service is new", []store.Version{v3}, []string{"v3"}, time.Hour, ""},
		{"another service's versions", []store.Version{{Service: "bank", Version: "v9", Recordings: 9}}, []string{"v1"}, time.Hour, ""},
	} {
		p := &store.Problem{Service: "shop", Versions: c.seenVersions, First: now.Add(-c.age)}
		check.Equal(t, stateOf(p, c.versions, now), c.want, "%s", c.situation)
	}
}

// TestTrend: bars are relative to the highest day. One day alone is no trend.
func TestTrend(t *testing.T) {
	drawn := newTrend([]float64{0, 0.002, 0.001})
	check.True(t, drawn != nil && drawn.Width == 24 && drawn.Bars[1].Height == 20 && drawn.Bars[2].Height == 10.5 && drawn.Bars[2].Y == 9.5 && strings.HasSuffix(drawn.Label, "0s, 2ms, 1ms"), "%+v", drawn)
	check.True(t, newTrend([]float64{0, 0.002}) == nil && newTrend(nil) == nil, "of one day, or none, is a trend")
}

// TestStartFilters: the start page shows the chosen service, environment and severities, offers the others, and folds low findings.
func TestStartFilters(t *testing.T) {
	s, h := newTestServer(t)
	rep := hostileReport(1e6)
	low := rep.Findings[0]
	low.Code, low.Severity, low.Title = "WL2005", report.SeverityLow, "peers are slow"
	rep.Findings[0].Title = "a lock is held"
	rep.Findings = append(rep.Findings, low)
	addExplained(t, s, h, bareTrace+"1", "v1", rep)
	file := filepath.Join(t.TempDir(), "policy.yaml")
	must.Do(t, os.WriteFile(file, []byte(`owners: [{service: shop, owner: team <b>}]`), 0o600))
	s.Store.Policy = must.Have(policy.Open(file, s.Log))(t)
	for query, shown := range map[string][2]bool{"": {true, true}, "?severity=high": {true, false}, "?severity=low": {true, true}, "?service=shop": {true, true}, "?service=bank": {false, false}, "?environment=live": {false, false}, "?owner=team+%3Cb%3E": {true, true}, "?owner=others": {false, false}} {
		w := request(h, "GET", "/"+query, "")
		body := w.Body.String()
		check.True(t, w.Code == http.StatusOK && strings.Contains(body, "a lock is held") == shown[0] && strings.Contains(body, "peers are slow") == shown[1], "%q: %d %s", query, w.Code, body)
		check.True(t, strings.Contains(body, "<option>shop</option>") != strings.Contains(body, "<option selected>shop</option>"), "%q does not offer the service", query)
		check.Equal(t, strings.Contains(body, "<summary>1 low finding</summary>"), shown[1], "%q folds low findings", query)
		check.Equal(t, strings.Contains(body, "<span class=chip>team &lt;b&gt;</span>"), shown[0], "%q shows the owner", query)
	}
	// A muted finding is folded as well, whatever its severity, and is in answers with its reason.
	must.Do(t, os.WriteFile(file, []byte(`mutes: [{rule: "WL*", until: 2999-01-01, reason: known since May}]`), 0o600))
	body := request(h, "GET", "/", "").Body.String()
	check.True(t, strings.Contains(body, "<summary>2 muted findings</summary>") && strings.Contains(body, "muted until 2999-01-01</span> known since May") && !strings.Contains(body, "low finding</summary>"), "%s", body)
	body = request(h, "GET", "/v1/findings", "").Body.String()
	check.True(t, strings.Count(body, `"muted":{"until":"2999-01-01","reason":"known since May"}`) == 2, "%s", body)
}
