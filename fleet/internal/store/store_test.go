package store

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

func openTestStore(t testing.TB) *Store {
	t.Helper()
	s := must.Have(Open(context.Background(), filepath.Join(t.TempDir(), "fleet.db"), ""))(t)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// modelEntry is the state of a recording in the model.
type modelEntry struct {
	id       string
	received time.Time
	state    string
	tries    int
	lease    time.Time
	counts   int64 // its requests in the sums
}

// TestQueue compares the queue with a model: which recording is claimed, and which worker may finish it. Each recording counts
// as its last explanation, also if workers die, come late, or explain it again.
func TestQueue(t *testing.T) {
	ctx := t.Context()
	rapid.Check(t, func(rt *rapid.T) {
		s, err := Open(ctx, filepath.Join(t.TempDir(), "fleet.db"), "")
		if err != nil {
			rt.Fatal(err)
		}
		defer s.Close()
		clock := time.Unix(1_700_000_000, 0)
		received := clock // unique for each recording, also if the clock is set back
		model := make(map[string]*modelEntry)
		var claims []*Recording // of all workers, including ended ones
		must := func(err error) {
			if err != nil {
				rt.Fatal(err)
			}
		}
		claim := func() *Recording { return claims[rapid.IntRange(0, len(claims)-1).Draw(rt, "claim")] }
		heldEntry := func(r *Recording) *modelEntry {
			if e := model[r.ID]; e.state == Working && e.tries == r.Tries {
				return e
			}
			return nil
		}
		rt.Repeat(map[string]func(*rapid.T){
			"add": func(rt *rapid.T) {
				id := fmt.Sprintf("%032x", rapid.IntRange(0, 9).Draw(rt, "id"))
				received = received.Add(time.Second)
				must(s.AddRecording(ctx, Recording{ID: id, Labels: rows.Labels{Service: "shop", Version: fmt.Sprint("v", id[31]%2), Pod: fmt.Sprint("p", id[31]%3)}, Received: received}))
				if model[id] == nil {
					model[id] = &modelEntry{id: id, received: received, state: Waiting}
				}
			},
			"claim": func(rt *rapid.T) {
				got, err := s.Claim(ctx, clock, time.Minute)
				must(err)
				var want *modelEntry
				for _, e := range model {
					if (e.state == Waiting || e.state == Working && (e.lease.Before(clock) || e.lease.After(clock.Add(2*time.Minute)))) && (want == nil || e.received.Before(want.received)) {
						want = e
					}
				}
				if want == nil || got == nil {
					if want != nil || got != nil {
						rt.Fatalf("claimed %+v, want %+v", got, want)
					}
					return
				}
				want.state, want.lease = Working, clock.Add(time.Minute)
				want.tries++
				if got.ID != want.id || got.Tries != want.tries {
					rt.Fatalf("claimed %+v, want %+v", got, want)
				}
				claims = append(claims, got)
			},
			"time": func(rt *rapid.T) { // the clock may be set back
				clock = clock.Add(time.Duration(rapid.IntRange(-300, 300).Draw(rt, "seconds")) * time.Second)
			},
			"renew": func(rt *rapid.T) {
				if len(claims) == 0 {
					return
				}
				r := claim()
				held, err := s.Renew(ctx, r, clock.Add(time.Minute))
				must(err)
				e := heldEntry(r)
				if held != (e != nil) {
					rt.Fatalf("renewed %v: %v", r, held)
				}
				if e != nil {
					e.lease = clock.Add(time.Minute)
				}
			},
			"release": func(rt *rapid.T) {
				if len(claims) == 0 {
					return
				}
				r := claim()
				must(s.Release(ctx, r))
				if e := heldEntry(r); e != nil {
					e.state = Waiting
					e.tries--
				}
			},
			"fail": func(rt *rapid.T) {
				if len(claims) == 0 {
					return
				}
				r, poison := claim(), rapid.Bool().Draw(rt, "poison")
				must(s.Fail(ctx, r, poison, "why"))
				if e := heldEntry(r); e != nil {
					e.state = map[bool]string{true: Poison, false: Waiting}[poison]
				}
			},
			"finish": func(rt *rapid.T) {
				if len(claims) == 0 {
					return
				}
				r, n := claim(), int64(rapid.IntRange(1, 5).Draw(rt, "requests"))
				bucket := int64(rapid.IntRange(1, 3).Draw(rt, "bucket"))
				_, err := s.Finish(ctx, r, &rows.Rows{Start: clock, Requests: n, Cause: "cpu", Headroom: rows.Headroom{Times: float64(n)}, Sums: []rows.Sum{{Group: "GET /", Bucket: bucket, N: n}},
					Findings: []rows.Finding{{Problem: fmt.Sprint(bucket), Requests: n, WinNS: n}}, SlowRequests: []rows.SlowRequest{{Request: "r1", Group: "GET /", Start: clock, NS: n}}})
				must(err)
				if e := heldEntry(r); e != nil {
					e.state, e.counts = Done, n
				}
			},
			"again": func(rt *rapid.T) {
				_, err := s.Requeue(ctx, "", time.Unix(0, 0))
				must(err)
				for _, e := range model {
					if e.state == Done || e.state == Poison {
						e.state, e.tries = Waiting, 0
					}
				}
				claims = nil // tries restart at 0
			},
			"": func(rt *rapid.T) {
				states, err := s.CountByState(ctx)
				must(err)
				want, total := make(map[string]int64), int64(0)
				for _, e := range model {
					want[e.state]++
					total += e.counts
				}
				if !reflect.DeepEqual(states, want) {
					rt.Fatalf("states %v, want %v", states, want)
				}
				for _, q := range []string{"SELECT coalesce(sum(n),0) FROM sums", "SELECT coalesce(sum(n),0) FROM days", "SELECT coalesce(sum(requests),0) FROM seen WHERE problem=''",
					"SELECT coalesce(sum(ns),0) FROM seen WHERE problem<>''", "SELECT coalesce(sum(ns),0) FROM slow", "SELECT CAST(coalesce(sum(times),0) AS INTEGER) FROM headrooms"} {
					var got int64
					must(s.reader.QueryRowContext(ctx, q).Scan(&got))
					if got != total {
						rt.Fatalf("%s: %d, want %d", q, got, total)
					}
				}
				if got, want := storedByDay(rt, s), recountByDay(rt, s); !reflect.DeepEqual(got, want) {
					rt.Fatalf("by day %v, want %v", got, want)
				}
			},
		})
	})
}

// TestClockSetBack: if a worker died while the clock was two hours ahead, its recording is claimed when the clock is correct. A
// recording whose claim was renewed since is not.
func TestClockSetBack(t *testing.T) {
	s := openTestStore(t)
	ctx, clock, lease := t.Context(), time.Now(), 30*time.Second
	for _, id := range []string{"dead", "live"} {
		must.Do(t, s.AddRecording(ctx, Recording{ID: id, Labels: rows.Labels{Service: "a"}, Received: clock}))
	}
	claims := make(map[string]*Recording)
	for range 2 {
		r, err := s.Claim(ctx, clock.Add(2*time.Hour), lease)
		if err != nil || r == nil {
			t.Fatal(r, err)
		}
		claims[r.ID] = r
	}
	if held, err := s.Renew(ctx, claims["live"], clock.Add(lease)); !held || err != nil {
		t.Fatal(held, err)
	}
	r, err := s.Claim(ctx, clock, lease)
	must.True(t, err == nil && r != nil && r.ID == "dead", "claimed %+v %v", r, err)
	for _, clock := range []time.Time{clock, clock.Add(-lease / 2), clock.Add(-lease)} { // a worker may have read its clock earlier
		if r, err := s.Claim(ctx, clock, lease); r != nil || err != nil {
			t.Errorf("claimed %+v of a worker that lives, %v", r, err)
		}
	}
}

// storedByDay returns recordings, requests, ns and pods of each day, version and problem in the store.
func storedByDay(t interface{ Fatal(...any) }, s *Store) map[string][4]int64 {
	out := make(map[string][4]int64)
	_, err := queryAll(context.Background(), s.rowReader, func(scan func(...any) error) (_ struct{}, err error) {
		var day int64
		var service, version, environment, problem string
		var v [4]int64
		err = scan(&day, &service, &version, &environment, &problem, &v[0], &v[1], &v[2], &v[3])
		out[fmt.Sprint(day, service, version, environment, problem)] = v
		return struct{}{}, err
	}, `SELECT day, service, version, environment, problem, n, requests, ns, pods FROM `+s.tableExpr("seen"))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// recountByDay computes the same from the stored contribution of each recording.
func recountByDay(t interface{ Fatal(...any) }, s *Store) map[string][4]int64 {
	out, pods := make(map[string][4]int64), make(map[string]bool)
	blobs, err := queryAll(context.Background(), s.reader, func(scan func(...any) error) (b []byte, err error) { return b, scan(&b) }, `SELECT counted FROM recordings`)
	for _, b := range blobs {
		c, e := decodeContribution(b)
		if e != nil {
			t.Fatal(e)
		}
		if c == nil {
			continue
		}
		c.Rows.VisitSums(func(*rows.Sum) {}, func(problem string, n, requests, ns int64) {
			key := fmt.Sprint(c.Rows.Start.Truncate(day).Unix(), c.Service, c.Version, c.Environment, problem)
			v := out[key]
			if !pods[key+" "+c.Pod] {
				pods[key+" "+c.Pod] = true
				v[3]++
			}
			out[key] = [4]int64{v[0] + n, rows.AddClamped(v[1], requests), rows.AddClamped(v[2], ns), v[3]}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// addExplained adds a recording and finishes it with rows.
func addExplained(t testing.TB, s *Store, id string, l rows.Labels, r *rows.Rows) {
	t.Helper()
	ctx := context.Background()
	must.Do(t, s.AddRecording(ctx, Recording{ID: fmt.Sprintf("%032s", id), Labels: l, Received: r.Start, Bytes: 100}))
	rec, err := s.Claim(ctx, time.Now(), time.Minute)
	if err != nil || rec == nil {
		t.Fatal(rec, err)
	}
	if _, err := s.Finish(ctx, rec, r); err != nil {
		t.Fatal(err)
	}
}

// TestForeignStore: Open refuses the database of another program and a store of a newer version, and does not change them.
func TestForeignStore(t *testing.T) {
	for situation, c := range map[string]struct {
		queries []string
		says    string
	}{
		"another program's":               {[]string{`CREATE TABLE recordings_of_music (x)`}, "another program"},
		"another program's, with a table": {[]string{`CREATE TABLE recordings (x)`}, "another program"},
		"another program's, with goose":   {[]string{`CREATE TABLE goose_db_version (version_id INTEGER, is_applied INTEGER)`, `CREATE TABLE recordings (x)`}, "another program"},
		"a newer one's":                   {[]string{"", `INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, 1)`}, "newer whylate-fleet (version 99"},
		"none's":                          {nil, ""},
		"a first start's that was killed": {[]string{`CREATE TABLE goose_db_version (id INTEGER PRIMARY KEY AUTOINCREMENT, version_id INTEGER NOT NULL, is_applied INTEGER NOT NULL, tstamp TIMESTAMP DEFAULT (datetime('now')))`, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (0, 1)`}, ""},
	} {
		file := filepath.Join(t.TempDir(), "fleet.db")
		must.Do(t, os.WriteFile(file, nil, 0o600))
		db, err := sql.Open("sqlite", file)
		must.Do(t, err)
		for _, q := range c.queries {
			if q == "" {
				err = migrate(t.Context(), db)
			} else {
				_, err = db.Exec(q)
			}
			if err != nil {
				t.Fatal(situation, err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(situation, err)
		}
		content := func() []byte {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(situation, err)
			}
			return b
		}
		before := content()
		s, err := Open(t.Context(), file, "")
		if err == nil {
			_ = s.Close()
		}
		if (err == nil) != (c.says == "") || err != nil && (!strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), file)) {
			t.Errorf("%s: %v, want %q", situation, err, c.says)
		}
		check.False(t, err != nil && !bytes.Equal(content(), before), "%s: the file has changed", situation)
	}
}

// TestPrivate: other users cannot read the files of a store or its copy, also if an earlier version created them readable.
func TestPrivate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fleet.db")
	for _, mode := range []os.FileMode{0, 0o644, 0o666} {
		if mode > 0 {
			must.Do(t, os.Chmod(file, mode))
		}
		s := must.Have(Open(t.Context(), file, ""))(t)
		must.Do(t, s.AddRecording(t.Context(), Recording{ID: fmt.Sprint(mode), Received: time.Now()}))
		list := []string{file, file + "-wal", file + "-shm"}
		if mode == 0 {
			list = append(list, file+".copy")
			must.Do(t, s.Backup(t.Context(), file+".copy"))
			check.Error(t, s.Backup(t.Context(), file+".copy"), "a copy replaces another")
		}
		for _, name := range list {
			if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s was %v: %v %v", name, mode, info.Mode(), err)
			}
		}
		must.Do(t, s.Close())
	}
}

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

// TestMedian: the median of three requests is the second.
func TestMedian(t *testing.T) {
	s := openTestStore(t)
	begin := time.Now().Add(-time.Hour).Truncate(time.Second)
	r := &rows.Rows{Start: begin, DurationNS: 1e9, Requests: 3}
	for _, bucket := range []int64{100, 200, 300} {
		r.Sums = append(r.Sums, rows.Sum{Group: "GET /", Bucket: bucket, N: 1})
	}
	addExplained(t, s, "1", rows.Labels{Service: "a", Version: "v1"}, r)
	_, versions, err := s.Overview(t.Context(), Selection{From: begin.Add(-time.Hour), To: time.Now()})
	check.True(t, err == nil && len(versions) == 1 && versions[0].P50NS == 200 && versions[0].P99NS == 300, "%+v, %v", versions, err)
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
	if err != nil || p == nil || p.GainNS != 8e6/40 || len(sightings) != 2 || sightings[0].GainNS != 233_333 || sightings[1].GainNS != 1e5 {
		t.Errorf("%+v %+v %v", p, sightings, err)
	}
	for _, unknown := range []string{"", "y"} { // "" is the problem of the recordings themselves
		if p, sightings, err := s.Finding(t.Context(), sel, unknown); p != nil || sightings != nil || err != nil {
			t.Errorf("%q: %+v %+v %v", unknown, p, sightings, err)
		}
	}
}

// TestRetention: one recording of each service, cause and hour is kept longest, if there is space.
func TestRetention(t *testing.T) {
	s := openTestStore(t)
	clock := time.Now()
	hour := clock.Truncate(time.Hour)
	for i, received := range []time.Time{clock.Add(-48 * time.Hour), hour.Add(-3 * time.Hour), hour.Add(-3*time.Hour + time.Minute), hour.Add(-2 * time.Hour)} {
		addExplained(t, s, fmt.Sprint(i), rows.Labels{Service: "a"}, &rows.Rows{Start: received, Cause: "cpu", Sums: []rows.Sum{{Group: fmt.Sprint("g", i), Bucket: 10, N: 1}}})
	}
	if err := s.AddRecording(t.Context(), Recording{ID: "waits", Labels: rows.Labels{Service: "a"}, Received: clock.Add(-72 * time.Hour), Bytes: 100}); err != nil {
		t.Fatal(err)
	}
	list, err := s.DropFiles(t.Context(), clock, 24*time.Hour, 250)
	var got []string
	for _, d := range list {
		got = append(got, cmp.Or(strings.TrimLeft(d.ID, "0"), "0")+" "+d.Reason)
	}
	if want := []string{"0 age", "2 bytes", "1 bytes"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q %v, want %q", got, err, want)
	}
	if list, err := s.DropFiles(t.Context(), clock, 24*time.Hour, 250); len(list) != 0 || err != nil {
		t.Errorf("again: %v %v", list, err)
	}
	if isKept, err := s.IsFileKept(t.Context(), "waits", 0, 0); !isKept || err != nil {
		t.Error("what waits is gone", err)
	}
	must.Do(t, s.DeleteOldRows(t.Context(), clock, clock.Add(-24*time.Hour)))
	if r, err := s.Recording(t.Context(), fmt.Sprintf("%032d", 0)); r != nil || err != nil {
		t.Error("an old recording is known still", err)
	}
	for query, want := range map[string]int{`SELECT count(*) FROM points`: 3, `SELECT count(*) FROM seen`: 1, `SELECT count(*) FROM series`: 4} {
		var n int
		if err := s.reader.QueryRow(query).Scan(&n); err != nil || n < want || n > want+1 { // a day is kept while a part of it is needed
			t.Errorf("%s: %d, want %d, %v", query, n, want, err)
		}
	}
	must.Do(t, s.DeleteOldRows(t.Context(), clock, clock.Add(48*time.Hour)))
	for _, table := range []string{"points", "daypoints", "seen", "slow", "series", "problems", "headrooms"} {
		var n int
		if err := s.reader.QueryRow(`SELECT count(*) FROM ` + table).Scan(&n); err != nil || n != 0 {
			t.Errorf("%s: %d rows are left, %v", table, n, err)
		}
	}
	file := filepath.Join(t.TempDir(), "copy.db")
	must.Do(t, s.Backup(t.Context(), file))
	c, err := Open(t.Context(), file, "")
	must.Do(t, err)
	defer c.Close()
	if r, err := c.Recording(t.Context(), "waits"); r == nil || err != nil {
		t.Error("the copy lacks a recording", err)
	}
}

// TestManyLabels: in a service with too many pods and groups, new ones count as (other), and no request is lost.
func TestManyLabels(t *testing.T) {
	s := openTestStore(t)
	if _, err := s.writer.ExecContext(t.Context(), `WITH RECURSIVE x(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM x WHERE i<?)
		INSERT INTO series (service, version, environment, pod, node, grp) SELECT 'a', '', '', 'p'||i, '', '' FROM x`, MaxSeries-1); err != nil {
		t.Fatal(err)
	}
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
