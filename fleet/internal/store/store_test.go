package store

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
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
	must.Have(s.Finish(ctx, rec, r))(t)
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
			must.Do(t, err, situation)
		}
		must.Do(t, db.Close(), situation)
		content := func() []byte {
			b, err := os.ReadFile(file)
			must.Do(t, err, situation)
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
