package store

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// endlessRows returns rows with the largest possible numbers.
func endlessRows(start time.Time) *rows.Rows {
	r := &rows.Rows{Start: start, DurationNS: math.MaxInt64, Requests: math.MaxInt64, Cause: "cpu",
		Findings: []rows.Finding{{Problem: "endless", Group: "GET /", Code: "WL2001", Requests: math.MaxInt64, WinNS: math.MaxInt64}}}
	for _, cause := range []string{"", "cpu", "lock"} {
		r.Sums = append(r.Sums, rows.Sum{Group: "GET /", Cause: cause, Bucket: 1000, N: math.MaxInt64, NS: math.MaxInt64}, rows.Sum{Group: "POST /", Cause: cause, Bucket: 9000, N: math.MaxInt64, NS: math.MaxInt64})
	}
	return r
}

// queriedSums runs all queries of pages and metrics, and returns the sums in their results.
func queriedSums(t *testing.T, s *Store, sel Selection) (sums []int64) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		must.Do(t, err)
	}
	problems, versions, err := s.Overview(t.Context(), sel)
	must(err)
	for _, p := range problems {
		sums = append(sums, p.GainNS, p.Recordings, p.Pods)
		_, sightings, err := s.Finding(t.Context(), sel, p.Problem)
		must(err)
		for _, v := range sightings {
			sums = append(sums, v.GainNS, v.Requests, v.Recordings)
		}
	}
	for _, v := range versions {
		sums = append(sums, v.RecordedNS, v.Requests, v.Recordings, v.P50NS, v.P99NS)
	}
	for _, step := range []time.Duration{time.Minute, time.Hour, day} {
		points, err := s.Series(t.Context(), sel, step)
		must(err)
		for _, p := range points {
			sums = append(sums, p.NS, p.Requests)
		}
	}
	pods, err := s.Pods(t.Context(), sel)
	must(err)
	for _, p := range pods {
		sums = append(sums, p.Requests)
		for _, ns := range p.NS {
			sums = append(sums, ns)
		}
	}
	must(s.VisitSums(t.Context(), func(_, _ string, _, n, ns int64) { sums = append(sums, n, ns) }))
	return sums
}

// countNonIntegers counts the sums in SQLite that are no integers or are beyond their bounds.
func countNonIntegers(t *testing.T, s *Store) (n int) {
	t.Helper()
	for table, columns := range map[string][]string{"points": {"n", "ns"}, "daypoints": {"n", "ns"}, "seen": {"n", "requests", "ns"}} {
		for _, c := range columns {
			var bad int
			must.Do(t, s.reader.QueryRow(fmt.Sprintf(`SELECT count(*) FROM %[1]s WHERE typeof(%[2]s)<>'integer' OR %[2]s<0 OR %[2]s>%[3]d`, table, c, int64(rows.MaxSum))).Scan(&bad))
			n += bad
		}
	}
	return n
}

// TestSumsStayIntegers: sums beyond 64 bits stay at their bound, also when a recording is explained again. Queries about all
// services still work.
func TestSumsStayIntegers(t *testing.T) {
	s := openTestStore(t)
	begin := time.Now().Add(-time.Hour).Truncate(time.Hour)
	honestRows := &rows.Rows{Start: begin, DurationNS: 1e9, Requests: 10, Sums: []rows.Sum{{Group: "GET /", Bucket: 1000, N: 10}},
		Findings: []rows.Finding{{Problem: "honest", Group: "GET /", Code: "WL2001", Requests: 10, WinNS: 1e6}}}
	addExplained(t, s, "honest", rows.Labels{Service: "b", Version: "v1", Pod: "p"}, honestRows)
	all := Selection{From: begin.Add(-day), To: begin.Add(day)}
	for i := range 6 { // two days, three versions, two pods
		addExplained(t, s, fmt.Sprint(i), rows.Labels{Service: "a", Version: fmt.Sprint("v", i%3), Pod: fmt.Sprint("p", i%2)}, endlessRows(begin.Add(-time.Duration(i/3)*day)))
		sums := queriedSums(t, s, all)
		for _, sum := range sums {
			must.True(t, sum >= 0 && sum <= rows.MaxSum, "a sum is %d", sum)
		}
		if n := countNonIntegers(t, s); n > 0 {
			t.Fatalf("after %d recordings, %d sums are no integers", i+1, n)
		}
	}
	problems, versions, err := s.Overview(t.Context(), Selection{From: all.From, To: all.To, Service: "b"})
	check.True(t, err == nil && len(problems) == 1 && problems[0].GainNS == 1e5 && versions[0].RecordedNS == 1e9 && versions[0].P99NS == 1000,
		"the other service: %+v %+v %v", problems, versions, err)
	if _, versions, err := s.Overview(t.Context(), Selection{From: all.From, To: all.To, Service: "a"}); err != nil || versions[0].RecordedNS != rows.MaxSum || versions[0].Requests != rows.MaxSum {
		t.Errorf("the hostile service: %+v %v", versions, err)
	}
	must.Have(s.Requeue(t.Context(), "a", time.Time{}.Add(time.Hour)))(t)
	for range 6 {
		r, err := s.Claim(t.Context(), time.Now(), time.Minute)
		if err != nil || r == nil {
			t.Fatal(r, err)
		}
		secondRows := *honestRows
		secondRows.Start = begin
		must.Have(s.Finish(t.Context(), r, &secondRows))(t)
		if n := countNonIntegers(t, s); n > 0 {
			t.Fatalf("explained again, %d sums are no integers", n)
		}
		queriedSums(t, s, all)
	}
}

// TestRealSumsBecomeIntegers: opening a store in which an earlier version wrote sums as floating-point numbers repairs them.
func TestRealSumsBecomeIntegers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fleet.db")
	s, err := Open(t.Context(), file, "")
	must.Do(t, err)
	begin := time.Now().Add(-time.Hour).Truncate(time.Second)
	addExplained(t, s, "1", rows.Labels{Service: "a", Version: "v1", Pod: "p"}, endlessRows(begin))
	for _, q := range []string{`UPDATE seen SET ns=1.001378264481911e+19, requests=9.3e18`, `UPDATE points SET ns=2e19, n=9.3e18`, `UPDATE daypoints SET ns=9223372036854775807, n=1e30`,
		`DROP INDEX problems_service`, `DROP TABLE headrooms`, `DELETE FROM goose_db_version WHERE version_id>=5`} {
		if _, err := s.writer.Exec(q); err != nil {
			t.Fatal(q, err)
		}
	}
	must.True(t, countNonIntegers(t, s) != 0, "the store has no sums to repair")
	must.Do(t, s.Close())
	if s, err = Open(t.Context(), file, ""); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if n := countNonIntegers(t, s); n > 0 {
		t.Errorf("%d sums are no integers", n)
	}
	check.True(t, len(queriedSums(t, s, Selection{From: begin.Add(-day), To: begin.Add(day)})) != 0, "nothing is answered")
}
