package store

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// versionsOf returns the versions of all services in the hours around now.
func versionsOf(t *testing.T, s *Store) []Version {
	t.Helper()
	_, versions, err := s.Overview(t.Context(), Selection{From: time.Now().Add(-48 * time.Hour), To: time.Now().Add(time.Hour)})
	must.Do(t, err)
	return versions
}

// TestHeadroom: the headroom of a version is the median of its newest recordings that show one, and services are ranked by it.
// Replaced versions have none.
func TestHeadroom(t *testing.T) {
	s := openTestStore(t)
	begin, n := time.Now().Add(-time.Hour).Truncate(time.Second), 0
	add := func(service, version string, times ...float64) {
		for _, x := range times {
			h := rows.Headroom{Times: x, Low: x / 2, High: 2 * x, Limit: fmt.Sprint("lock ", x), NotJudged: "peers"}
			if x == 0 {
				h = rows.Headroom{Reason: "too few"}
			}
			n++
			addExplained(t, s, fmt.Sprint(n), rows.Labels{Service: service, Version: version, Pod: fmt.Sprint("p", n)}, &rows.Rows{Start: begin.Add(time.Duration(n) * time.Second), DurationNS: 1e9, Requests: 10, Headroom: h})
		}
	}
	add("cart", "v1", 7, 0, 3, 9, 5)
	add("idle", "v1", 0, 0)
	add("pay", "v1", 1)
	add("shop", "v1", 0.5)
	add("shop", "v2", slices.Repeat([]float64{1}, 5)...)
	add("shop", "v2", slices.Repeat([]float64{40}, headroomSample)...)
	must.Have(s.writer.Exec(`UPDATE seen SET newest=printf('%019d', ?)||'x' WHERE version='v2'`, begin.Add(30*time.Minute).UnixNano()))(t)
	versions := versionsOf(t, s)
	slices.SortStableFunc(versions, CompareHeadroom)
	var got []string
	for i := range versions {
		v := &versions[i]
		line := v.Service + " " + v.Version
		if h := v.Headroom; h != nil {
			line += fmt.Sprintf(" %g (%g to %g) %s; %s; %d of %d, lowest %g, %s", h.Times, h.Low, h.High, h.Limit, h.NotJudged, h.Judged, h.Recordings, h.Lowest, h.Reason)
		}
		got = append(got, line)
	}
	want := []string{
		"pay v1 1 (0.5 to 2) lock 1; peers; 1 of 1, lowest 1, ",
		"cart v1 5 (2.5 to 10) lock 5; peers; 4 of 5, lowest 3, ",
		"shop v2 40 (20 to 80) lock 40; peers; 20 of 20, lowest 40, ",
		"idle v1 0 (0 to 0) ; ; 0 of 2, lowest 0, too few",
		"shop v1",
	}
	check.True(t, slices.Equal(got, want), "got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
}

// TestOldStore: a store of a version before headrooms keeps its sums. Its recordings have a headroom when they are explained again, and each
// has one.
func TestOldStore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fleet.db")
	s := must.Have(Open(t.Context(), file, ""))(t)
	explained := &rows.Rows{Start: time.Now().Add(-time.Hour).Truncate(time.Second), DurationNS: 1e9, Requests: 10, Sums: []rows.Sum{{Group: "GET /", Bucket: 1000, N: 10}}}
	addExplained(t, s, "1", rows.Labels{Service: "shop", Version: "v1", Pod: "p"}, explained)
	for _, q := range []string{`DROP TABLE headrooms`, `DELETE FROM goose_db_version WHERE version_id=7`} {
		must.Have(s.writer.Exec(q))(t)
	}
	must.Do(t, s.Close())

	s = must.Have(Open(t.Context(), file, ""))(t)
	defer s.Close()
	old := versionsOf(t, s)
	must.True(t, len(old) == 1 && old[0].Requests == 10 && old[0].Headroom.Times == 0 && strings.Contains(old[0].Headroom.Reason, "backfill"), "%+v", old)
	explained.Headroom = rows.Headroom{Times: 1.3, Limit: "lock main.f main.go:126"}
	for range 2 {
		must.Have(s.Requeue(t.Context(), "", time.Unix(0, 0)))(t)
		r := must.Have(s.Claim(t.Context(), time.Now(), time.Minute))(t)
		must.Have(s.Finish(t.Context(), r, explained))(t)
	}
	explainedAgain := versionsOf(t, s)
	must.True(t, len(explainedAgain) == 1 && reflect.DeepEqual(explainedAgain[0].Headroom, &Headroom{Times: 1.3, Lowest: 1.3, Limit: "lock main.f main.go:126", Judged: 1, Recordings: 1, Recording: fmt.Sprintf("%032d", 1)}),
		"%+v", explainedAgain[0].Headroom)
}
