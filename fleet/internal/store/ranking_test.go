package store

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestRank: findings are ordered by the win in a second over all pods, and those of current versions come first.
func TestRank(t *testing.T) {
	s := openTestStore(t)
	begin := time.Now().Add(-time.Hour).Truncate(time.Second)
	recording := func(id, service, version, pod string, after time.Duration, win map[string]int64) {
		r := &rows.Rows{Start: begin.Add(after), DurationNS: 1e9, Requests: 10, Sums: []rows.Sum{{Group: "GET /", Bucket: 1000, N: 9}, {Group: "GET /", Bucket: 9000, N: 1}}}
		for p, ns := range win {
			r.Findings = append(r.Findings, rows.Finding{Problem: p, Group: "GET /", Code: "WL2001", Severity: "high", Title: "title " + id, Requests: 10, WinNS: ns})
		}
		addExplained(t, s, id, rows.Labels{Service: service, Version: version, Pod: pod}, r)
	}
	recording("a1", "a", "v1", "p1", 0, map[string]int64{"old": 9e8, "both": 1e8})
	recording("a2", "a", "v2", "p1", 20*time.Minute, map[string]int64{"both": 2e8})
	recording("a3", "a", "v2", "p2", 21*time.Minute, map[string]int64{"both": 2e8})
	recording("b1", "b", "v1", "p1", 0, map[string]int64{"once": 5e8})
	recording("b2", "b", "v1", "p1", time.Minute, nil)
	problems, versions, err := s.Overview(t.Context(), Selection{From: begin.Add(-time.Hour), To: time.Now()})
	must.Do(t, err)
	got := make([]string, 0, len(problems))
	for _, p := range problems {
		got = append(got, fmt.Sprintf("%s %.2f %v gone=%v %d %s", p.Problem, p.WinPerSecond, p.Versions, p.Replaced, p.Recordings, p.Title))
	}
	want := []string{"both 0.40 [v1 v2] gone=false 3 title a3", "once 0.25 [v1] gone=false 1 title b1", "old 0.90 [v1] gone=true 1 title a1"}
	check.True(t, slices.Equal(got, want), "got %q\nwant %q", got, want)
	if p := problems[0]; p.GainNS != 2e7 || p.RequestsPerSecond != 20 || p.Pods != 2 || strings.TrimLeft(p.Recording, "0") != "a3" || !p.First.Equal(begin) {
		t.Errorf("%+v", p)
	}
	if v := versions[0]; v.Version != "v2" || v.Replaced || !versions[1].Replaced || v.P50NS != 1000 || v.P99NS != 9000 || v.Requests != 20 {
		t.Errorf("%+v", versions)
	}
}

// TestGain: the gain of a request is that of all current versions, and an unknown problem is not found.
func TestGain(t *testing.T) {
	s := openTestStore(t)
	begin := time.Now().Add(-time.Hour).Truncate(time.Second)
	for i, c := range []struct {
		version       string
		requests, win int64
	}{{"v1", 10, 1e6}, {"v2", 30, 7e6}} {
		addExplained(t, s, fmt.Sprint(i), rows.Labels{Service: "a", Version: c.version, Pod: "p"}, &rows.Rows{Start: begin.Add(time.Duration(i) * time.Minute), DurationNS: 1e9, Requests: c.requests,
			Findings: []rows.Finding{{Problem: "x", Group: "GET /", Code: "WL2001", Requests: c.requests, WinNS: c.win}}})
	}
	sel := Selection{From: begin.Add(-time.Hour), To: time.Now()}
	problems, _, err := s.Overview(t.Context(), sel)
	check.True(t, err == nil && len(problems) == 1 && problems[0].GainNS == 8e6/40 && problems[0].Recordings == 2 && !problems[0].Replaced,
		"%+v %v", problems, err)
	p, sightings, err := s.Finding(t.Context(), sel, "x")
	check.True(t, err == nil && p != nil && p.GainNS == 8e6/40 && len(sightings) == 2 && sightings[0].GainNS == 233_333 && sightings[1].GainNS == 1e5,
		"%+v %+v %v", p, sightings, err)
	for _, unknown := range []string{"", "y"} { // "" is the problem of the recordings themselves
		if p, sightings, err := s.Finding(t.Context(), sel, unknown); p != nil || sightings != nil || err != nil {
			t.Errorf("%q: %+v %+v %v", unknown, p, sightings, err)
		}
	}
}

// storeWithFindings returns a store with findingsPerService findings in each service, as an earlier version without a bound
// could write it.
func storeWithFindings(t testing.TB, services, findingsPerService int, clock time.Time) *Store {
	s := openTestStore(t)
	today := itoa(clock.Truncate(day).Unix())
	for _, q := range []string{
		`CREATE TEMP TABLE x (i INTEGER PRIMARY KEY)`,
		`INSERT INTO x WITH RECURSIVE x(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM x WHERE i<` + itoa(int64(findingsPerService)) + `) SELECT i FROM x`,
		`CREATE TEMP TABLE y (i INTEGER PRIMARY KEY)`,
		`INSERT INTO y SELECT i FROM x WHERE i<` + itoa(int64(services)),
		// Three versions; the first is replaced.
		`INSERT INTO seen SELECT ` + today + `, 'service'||y.i, 'v'||(x.i%3), 'prod', iif(x.i<3, '', printf('%08x%08x', y.i, x.i)), 24, 100, iif(x.i<3, 10000000000000, 1000000*(x.i*7919%100003)),
			printf('%019d', (` + today + `+100)*1000000000)||printf('%032d', 1), printf('%019d', (` + today + `+100+1000*(x.i%3))*1000000000)||printf('%032d', 1), 3 FROM y, x`,
		`INSERT INTO problems SELECT problem, service, environment, 'GET /group/1', 'WL2001', 'lock', 'main.x (x.go:1)', 'high', 'requests queue for a Mutex', 'release it', 1 FROM seen WHERE problem<>''`,
	} {
		if _, err := s.writer.ExecContext(t.Context(), q); err != nil {
			t.Fatal(q, err)
		}
	}
	return s
}

// TestOverviewOfMany: candidates includes all problems that rankProblems puts first of all, and does not read the others of
// 200,000.
func TestOverviewOfMany(t *testing.T) {
	clock := time.Now()
	sel := Selection{From: clock.Add(-7 * day), To: clock.Add(day)}
	for _, c := range []struct {
		services, findings int
		sel                Selection
	}{{1, 100, sel}, {3, 700, sel}, {3, 700, Selection{From: sel.From, To: sel.To, Service: "service1", Environment: "prod"}}, {2, 700, Selection{From: sel.From, To: sel.To, Service: "none"}}} {
		s := storeWithFindings(t, c.services, c.findings, clock)
		got, versions, err := s.Overview(t.Context(), c.sel)
		must.Do(t, err)
		all, err := s.problemSums(t.Context(), c.sel, "problem<>''")
		must.Do(t, err)
		want, err := s.rankProblems(t.Context(), all, func(r *problemSum) *Version {
			i := slices.IndexFunc(versions, func(v Version) bool { return v.Service == r.service && v.Version == r.version })
			return &versions[i]
		})
		check.True(t, err == nil && reflect.DeepEqual(got, want) && len(got) == min(len(all), maxListedProblems),
			"%+v: %d problems\n%+v\nwant %d\n%+v\n%v", c, len(got), got, len(want), want, err)
	}
	s := storeWithFindings(t, 1, 200_000, clock)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := s.Overview(t.Context(), sel)
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; err != nil || used > 16<<20 {
		t.Errorf("the start page of 200,000 findings takes %d MiB, %v", used>>20, err)
	}
}

func BenchmarkOverview(b *testing.B) {
	clock := time.Now()
	s := storeWithFindings(b, 1, 200_000, clock)
	b.ReportAllocs()
	for b.Loop() {
		problems, versions, err := s.Overview(b.Context(), Selection{From: clock.Add(-7 * day), To: clock.Add(day)})
		if err != nil || len(problems) != 200 || len(versions) != 3 {
			b.Fatal(len(problems), len(versions), err)
		}
	}
}
