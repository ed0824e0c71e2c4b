package store

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testfull"
)

// TestTenMillion: with ten million rows of 40 services in 2,000 pods over two weeks, the queries of each page take at most 300
// ms.
func TestTenMillion(t *testing.T) {
	testfull.Need(t, "two minutes and 600 MB of disk")
	file := filepath.Join(t.TempDir(), "fleet.db")
	s, err := Open(t.Context(), file, "")
	must.Do(t, err)
	defer s.Close()
	clock := time.Now()
	begin := clock.Add(-14 * day).Truncate(time.Minute)
	for _, q := range []string{
		`CREATE TEMP TABLE x (i INTEGER PRIMARY KEY)`,
		`INSERT INTO x WITH RECURSIVE x(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM x WHERE i<9999) SELECT i FROM x`,
		`CREATE TEMP TABLE causes AS SELECT column1 k, column2 cause FROM (VALUES (0,''),(1,'cpu'),(2,'sched'),(3,'network'),(4,'lock'))`,
		// A service has 50 pods, with 5 groups in each.
		`INSERT INTO series (id, service, version, environment, pod, node, grp) SELECT i+1, 'service'||(i/250), 'v'||(i%250/125), 'prod', 'pod-7d9f8b6c5d-'||(i/5), 'node-'||(i%97), 'GET /group/'||(i%5) FROM x`,
		`INSERT INTO series (id, service, version, environment, pod, node, grp) SELECT 20000+i, 'service'||(i/2), 'v'||(i%2), 'prod', '', '', '' FROM x WHERE i<80`,
		// A series has 1,000 rows: 20 minutes, 5 causes, 10 buckets.
		`INSERT INTO points SELECT s.id, ` + itoa(begin.Unix()) + `+60*(1000*m.i+s.id%1000), c.cause, 1000000*(1+b.i), 3, 1000000*(1+b.i) FROM series s CROSS JOIN x m CROSS JOIN causes c CROSS JOIN x b WHERE s.id<=10000 AND m.i<20 AND b.i<10`,
		`INSERT INTO daypoints SELECT d.id, p.minute/86400*86400 m, p.cause, p.bucket, sum(p.n), sum(p.ns) FROM series s CROSS JOIN points p ON p.series=s.id
			JOIN series d ON d.service=s.service AND d.version=s.version AND d.environment='prod' AND d.pod='' AND d.node='' AND d.grp='' GROUP BY 1,2,3,4`,
		// Each pod sends every day and has 5 findings. All pods of a version have the same.
		`INSERT INTO seen_pods SELECT (` + itoa(begin.Unix()) + `/86400+d.i)*86400, s.service, s.version, s.environment, iif(p.i=0, '', substr('0000'||s.service||p.i, -16)), s.pod, 24
			FROM series s, x d, x p WHERE s.id<=10000 AND s.id%5=0 AND d.i<14 AND p.i<6`,
		`INSERT INTO seen SELECT day, service, version, environment, problem, sum(n), 100*sum(n), sum(n)*10000000000, printf('%019d', day*1000000000)||printf('%032d', 1),
			printf('%019d', (day+80000)*1000000000)||printf('%032d', 1), count(*) FROM seen_pods GROUP BY day, service, version, environment, problem`,
		// Each pod sends a recording an hour.
		`INSERT INTO recordings (id, service, version, environment, pod, node, received, bytes, state, tries, lease, error, raw, class, counted)
			SELECT printf('%032x', 10000*x.i+y.i), 'service'||(x.i%40), 'v1', 'prod', 'pod', 'node', (` + itoa(begin.Unix()) + `+120*x.i)*1000000000, 200000, 'done', 1, 0, '', 1, '', zeroblob(200) FROM x, x y WHERE y.i<67`,
		`INSERT INTO problems SELECT DISTINCT problem, service, environment, 'GET /group/1', 'WL2001', 'lock', 'main.x (x.go:1)', 'high', 'requests queue for a Mutex', 'release it', 1 FROM seen WHERE problem<>''`,
		`INSERT INTO slow SELECT printf('%032d', x.i), 'r'||y.i, 'service'||(x.i%40), 'v1', 'prod', 'pod', 'node', 'GET /group/1', (` + itoa(begin.Unix()) + `+120*x.i)*1000000000, 1000000*(x.i%100), 'lock', 'main.x (x.go:1)', '' FROM x, x y WHERE y.i<20`,
	} {
		if _, err := s.writer.ExecContext(t.Context(), q); err != nil {
			t.Fatal(q, err)
		}
	}
	var points, dayPoints, podProblems int
	must.Do(t, s.reader.QueryRow(`SELECT (SELECT count(*) FROM points), (SELECT count(*) FROM daypoints), (SELECT count(*) FROM seen_pods)`).Scan(&points, &dayPoints, &podProblems))
	info, err := os.Stat(file)
	must.Do(t, err)
	t.Logf("%d sums, %d by day, %d findings; %.1f bytes a sum", points, dayPoints, podProblems, float64(info.Size())/float64(points))
	measureQueries(t, s, clock)
}

// measureQueries runs the queries of each page and checks their time.
func measureQueries(t *testing.T, s *Store, clock time.Time) {
	all := Selection{From: clock.Add(-7 * day), To: clock}
	start := func(in Selection) error { // all queries of the start page
		problems, _, err := s.Overview(t.Context(), in)
		var ids []string
		for _, p := range problems {
			ids = append(ids, p.Problem)
		}
		if err == nil {
			_, err = s.DailyWins(t.Context(), in, ids)
		}
		if err == nil {
			_, err = s.CountByState(t.Context())
		}
		if err == nil {
			_, err = s.PoisonRecordings(t.Context(), 10)
		}
		return err
	}
	oneService := all
	oneService.Service = "service7"
	for _, measured := range []struct {
		page  string
		query func() error
	}{
		{"start page", func() error { return start(all) }},
		{"start page of 30 days", func() error {
			return start(Selection{From: clock.Add(-30 * day), To: clock})
		}},
		{"a service's findings", func() error { _, _, err := s.Overview(t.Context(), oneService); return err }},
		{"a service over time", func() error { _, err := s.Series(t.Context(), oneService, 6*time.Hour); return err }},
		{"pods of a service", func() error { _, err := s.Pods(t.Context(), oneService); return err }},
		{"slow moments", func() error { _, err := s.Moments(t.Context(), oneService, "", 20); return err }},
	} {
		var took []time.Duration
		for range 7 {
			begin := time.Now()
			must.Do(t, measured.query(), measured.page)
			took = append(took, time.Since(begin))
		}
		slices.Sort(took)
		t.Logf("%s: %v", measured.page, took[3].Round(time.Millisecond))
		check.True(t, took[0] <= 300*time.Millisecond, "%s took %v at least", measured.page, took[0])
	}
}

// TestHundredMillion: the same with a hundred million sums in ClickHouse, from 667,000 recordings with 150 sums and two findings
// each.
func TestHundredMillion(t *testing.T) {
	address := startClickHouse(t)
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "fleet.db"), address)
	must.Do(t, err)
	defer s.Close()
	clock := time.Now()
	begin := itoa(clock.Add(-14 * day).Truncate(time.Hour).Unix())
	started := time.Now()
	for _, q := range []string{
		// Each of 2,000 pods sends a recording an hour, with 3 groups, 5 causes, 10 buckets and 2 findings.
		`INSERT INTO explained_rows (recording, service, version, environment, pod, node, received, minute, stamp, written, costs.cause, costs.n, costs.ns, sums.grp, sums.cause, sums.bucket, sums.n, sums.ns, found.problem, found.requests, found.ns)
			SELECT lower(hex(MD5(toString(number)))) AS recording, concat('service', toString(intDiv(number%2000, 50))) AS service, concat('v', toString(intDiv(number%50, 25))), 'prod',
			concat('pod-7d9f8b6c5d-', toString(number%2000)), concat('node-', toString(number%97)), minute*1000000000 AS received, ` + begin + ` + 3600*intDiv(number, 2000) + 60*(number%60) AS minute,
			concat(toString(received), recording), 1, ['', 'cpu', 'sched', 'network', 'lock'], arrayMap(x->toInt64(90), range(5)), arrayMap(x->toInt64(30000000), range(5)), arrayMap(x->concat('GET /group/', toString(x%3)), range(150)), arrayMap(x->arrayElement(['', 'cpu', 'sched', 'network', 'lock'], toInt64(1 + intDiv(x, 3)%5)), range(150)),
			arrayMap(x->toInt64(1000000*(1 + intDiv(x, 15))), range(150)), arrayMap(x->toInt64(3), range(150)), arrayMap(x->toInt64(1000000), range(150)),
			arrayMap(x->if(x=0, '', concat(service, '-', toString((number + x)%5))), range(3)), arrayMap(x->toInt64(100), range(3)), arrayMap(x->toInt64(10000000000), range(3)) FROM system.numbers LIMIT 666667`,
		`INSERT INTO problems_rows (problem, service, environment, grp, code, cause, site, severity, title, fix, updated) SELECT concat('service', toString(intDiv(number, 5)), '-', toString(number%5)) AS problem,
			concat('service', toString(intDiv(number, 5))), 'prod', 'GET /group/1', 'WL2001', 'lock', 'main.x (x.go:1)', 'high', 'requests queue for a Mutex', 'release it', 1 FROM system.numbers LIMIT 200`,
	} {
		if _, err := s.clickhouse.ExecContext(t.Context(), q); err != nil {
			t.Fatal(q, err)
		}
	}
	t.Logf("written in %v", time.Since(started).Round(time.Second))
	started = time.Now()
	must.Do(t, s.RollUp(t.Context(), clock))
	t.Logf("all added up in %v", time.Since(started).Round(time.Second))
	problems, versions, err := s.Overview(t.Context(), Selection{From: clock.Add(-30 * day), To: clock.Add(day)})
	var requests, recordings int64
	for _, v := range versions {
		requests += v.Requests
		recordings += v.Recordings
	}
	check.True(t, err == nil && len(problems) == 200 && len(versions) == 80 && requests >= 59e6 && requests <= 61e6 && recordings == 666667,
		"%d problems, %d versions, %d requests, %d recordings, %v", len(problems), len(versions), requests, recordings, err)
	measureQueries(t, s, clock)
	var rowsOf, bytes uint64
	must.Do(t, s.clickhouse.QueryRow(`SELECT sum(rows), sum(bytes_on_disk) FROM system.parts WHERE active AND table='explained_rows'`).Scan(&rowsOf, &bytes))
	t.Logf("%d recordings, %.1f bytes a sum", rowsOf, float64(bytes)/float64(rowsOf)/150)
}
