package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestManyFindings: in a service with too many findings, new ones count as (other), in all environments together. Known findings
// and those of other services count as before.
func TestManyFindings(t *testing.T) {
	s := openTestStore(t)
	begin := time.Now().Add(-time.Hour)
	newRows := func(from, n int) *rows.Rows {
		r := &rows.Rows{Start: begin, DurationNS: 1e9, Requests: 10, Cause: "cpu"}
		for i := range n {
			r.Findings = append(r.Findings, rows.Finding{Problem: fmt.Sprint("p", from+i), Group: "GET /", Code: "WL2001", Title: "t", Requests: 10, WinNS: int64(from + i)})
		}
		return r
	}
	send := func(id, service, environment string, r *rows.Rows) bool {
		t.Helper()
		must.Do(t, s.AddRecording(t.Context(), Recording{ID: id, Labels: rows.Labels{Service: service, Version: "v1", Environment: environment, Pod: "p"}, Received: begin}))
		rec, err := s.Claim(t.Context(), time.Now(), time.Minute)
		if err != nil || rec == nil {
			t.Fatal(rec, err)
		}
		folded, err := s.Finish(t.Context(), rec, r)
		must.Do(t, err)
		return folded
	}
	count := func(service string) (n int) {
		t.Helper()
		must.Do(t, s.reader.QueryRow(`SELECT count(DISTINCT problem) FROM seen WHERE problem<>'' AND service=?`, service).Scan(&n))
		return n
	}
	check.False(t, send("1", "a", "live", newRows(0, MaxProblems-1)), "findings are folded before there are too many")
	for i := range 5 {
		check.True(t, send(fmt.Sprint("2", i), "a", []string{"live", "test"}[i%2], newRows(MaxProblems-1+3*i, 3)), "nothing is folded")
	}
	check.Equal(t, count("a"), MaxProblems+1, "findings")
	check.True(t, !send("3", "a", "live", newRows(5, 3)) && !send("4", "b", "live", newRows(5000, 3)) && count("b") == 3,
		"known findings, or those of another service, are folded")
	sel := Selection{From: begin.Add(-day), To: begin.Add(day), Service: "a"}
	problems, _, err := s.Overview(t.Context(), sel)
	i := slices.IndexFunc(problems, func(p Problem) bool { return p.Code == rows.OtherLabel })
	if err != nil || i < 0 || problems[i].Recordings != 5 || problems[i].Environment != "" || problems[i].Group != rows.OtherLabel || problems[i].Title == "" {
		t.Fatalf("%+v %v", problems, err)
	}
	p, sightings, err := s.Finding(t.Context(), sel, problems[i].Problem)
	check.True(t, err == nil && p != nil && p.Recordings == 5 && len(sightings) == 2 && sightings[0].Requests+sightings[1].Requests == 50,
		"%+v %+v %v", p, sightings, err)
	must.Have(s.Requeue(t.Context(), "a", time.Unix(0, 0)))(t)
	for {
		rec := must.Have(s.Claim(t.Context(), time.Now(), time.Minute))(t)
		if rec == nil {
			break
		}
		must.Have(s.Finish(t.Context(), rec, newRows(9000, 1)))(t)
	}
	if n := count("a"); n != 1 {
		t.Errorf("explained again, %d findings are left, want (other)", n)
	}
}

// TestManyEnvironments: in a service with too many series, new environments count as (other), with their findings. New labels in
// an existing environment stay in that environment.
func TestManyEnvironments(t *testing.T) {
	s := openTestStore(t)
	begin := time.Now().Add(-time.Hour)
	must.Have(s.writer.ExecContext(t.Context(), `WITH RECURSIVE x(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM x WHERE i<?)
		INSERT INTO series (service, version, environment, pod, node, grp) SELECT 'a', '', 'live', 'p'||i, '', '' FROM x`, MaxSeries))(t)
	send := func(i int, environment string) {
		l := rows.Labels{Service: "a", Version: "v1", Environment: environment, Pod: fmt.Sprint("new", i)}
		r := &rows.Rows{Start: begin, DurationNS: 1e9, Requests: 1, Sums: []rows.Sum{{Group: "GET /", Bucket: 10, N: 1}}, Findings: []rows.Finding{{Group: "GET /", Code: "WL2001", Title: "t", Requests: 1, WinNS: 1}}}
		r.SetProblemIDs(l)
		addExplained(t, s, fmt.Sprint(i), l, r)
	}
	const n = 300
	for i := range n {
		send(i, fmt.Sprint("e", i))
	}
	send(n, "live")
	for query, want := range map[string]int{
		`SELECT count(*)-` + itoa(MaxSeries) + ` FROM series WHERE service='a'`:               6, // for (other) and for live: the series of the pod, of the group and of the days
		`SELECT count(DISTINCT environment) FROM series`:                                      2,
		`SELECT count(DISTINCT environment) FROM seen`:                                        2,
		`SELECT count(*) FROM problems`:                                                       2,
		`SELECT sum(n) FROM sums WHERE environment='` + rows.OtherLabel + `'`:                 n,
		`SELECT sum(n) FROM sums WHERE environment='live'`:                                    1,
		`SELECT sum(n) FROM seen WHERE problem<>'' AND environment='` + rows.OtherLabel + `'`: n,
	} {
		var got int
		if err := s.reader.QueryRow(query).Scan(&got); err != nil || got != want {
			t.Errorf("%s: %d, want %d, %v", query, got, want, err)
		}
	}
	// A service with many environments stays near the bound.
	must.Have(s.writer.ExecContext(t.Context(), `WITH RECURSIVE x(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM x WHERE i<?)
		INSERT INTO series (service, version, environment, pod, node, grp) SELECT 'b', '', 'e'||i, '', '', '' FROM x`, MaxSeries))(t)
	for i := range spareSeries / 2 {
		addExplained(t, s, fmt.Sprint("b", i), rows.Labels{Service: "b", Environment: fmt.Sprint("e", i+1), Pod: "new"}, &rows.Rows{Start: begin, Sums: []rows.Sum{{Group: "GET /", Bucket: 10, N: 1}}})
	}
	var series int
	if err := s.reader.QueryRow(`SELECT count(*) FROM series WHERE service='b'`).Scan(&series); err != nil || series > MaxSeries+spareSeries+6 {
		t.Errorf("%d series, %v", series, err)
	}
}

// TestClickHouseEnvironments: a service with too many series keeps the environments that it has, also in ClickHouse.
func TestClickHouseEnvironments(t *testing.T) {
	for environment, want := range map[string]string{"live": "live", "new": rows.OtherLabel} {
		known := map[seriesKey]bool{{environment: "live"}: true}
		for i := range MaxSeries {
			known[seriesKey{environment: "test", pod: fmt.Sprint(i)}] = true
		}
		facts := &clickhouseFacts{day: time.Now().Unix() / 86400, series: map[string]map[seriesKey]bool{"a": known}}
		c := &contribution{Labels: rows.Labels{Service: "a", Environment: environment, Pod: "new"}}
		folded, err := facts.foldSeries(t.Context(), c, new(block))
		check.True(t, folded && err == nil && c.Environment == want && c.Pod == rows.OtherLabel, "%s: %+v, folded: %v, %v", environment, c.Labels, folded, err)
	}
}

// TestClickHouseFolds: findings in ClickHouse are bounded, too.
func TestClickHouseFolds(t *testing.T) {
	db := must.Have(openClickHouse(t.Context(), startClickHouse(t)))(t)
	defer db.Close()
	received := time.Now().Add(-time.Hour)
	for worker := range 2 {
		c := &clickhouseFacts{db: db}
		for i := range 2 {
			l := rows.Labels{Service: "a", Environment: "live"}
			contribution := &contribution{l, rows.Rows{Start: received}}
			for j := range MaxProblems - 100 {
				contribution.Rows.Findings = append(contribution.Rows.Findings, rows.Finding{Group: "g", Code: "WL2001", Site: fmt.Sprint(worker, i, j)})
			}
			contribution.Rows.SetProblemIDs(l)
			o := &outcome{flight: &flight{queueMessage: queueMessage{Recording: Recording{ID: fmt.Sprint(worker, i), Labels: l, Received: received}}, written: 1}, contribution: contribution}
			must.Do(t, c.writeRows(t.Context(), []*outcome{o}))
			check.True(t, o.folded != (worker == 0 && i == 0), "worker %d, recording %d: folded is %v", worker, i, o.folded)
		}
	}
	var n uint64
	if err := db.QueryRow(`SELECT uniqExact(problem) FROM problems_rows`).Scan(&n); err != nil || n != MaxProblems+1 {
		t.Errorf("%d findings, want %d, %v", n, MaxProblems+1, err)
	}
}

// TestManyLabels: in a service with too many pods and groups, new ones count as (other), and no request is lost.
func TestManyLabels(t *testing.T) {
	s := openTestStore(t)
	must.Have(s.writer.ExecContext(t.Context(), `WITH RECURSIVE x(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM x WHERE i<?)
		INSERT INTO series (service, version, environment, pod, node, grp) SELECT 'a', '', '', 'p'||i, '', '' FROM x`, MaxSeries-1))(t)
	newRows := func(groups ...string) *rows.Rows {
		out := &rows.Rows{Start: time.Now()}
		for _, g := range groups {
			out.Sums = append(out.Sums, rows.Sum{Group: g, Bucket: 10, N: 1})
		}
		return out
	}
	addExplained(t, s, "1", rows.Labels{Service: "a", Pod: "p1"}, newRows("g1", "g2"))
	addExplained(t, s, "2", rows.Labels{Service: "a", Pod: "new"}, newRows("g1", "g2"))
	addExplained(t, s, "3", rows.Labels{Service: "b", Pod: "new"}, newRows("g1", "g2"))
	pods, err := s.Pods(t.Context(), Selection{From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Hour), Service: "a"})
	if err != nil || len(pods) != 2 || pods[0].Pod != rows.OtherLabel || pods[0].Requests != 2 || pods[1].Pod != "p1" || pods[1].Requests != 2 {
		t.Errorf("%+v %v", pods, err)
	}
	var n int
	if err := s.reader.QueryRow(`SELECT count(*) FROM series WHERE service='a'`).Scan(&n); err != nil || n > MaxSeries+5 {
		t.Errorf("%d series, %v", n, err)
	}
}
