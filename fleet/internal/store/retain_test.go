package store

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestRetention: one recording of each service, cause and hour is kept longest, if there is space.
func TestRetention(t *testing.T) {
	s := openTestStore(t)
	clock := time.Now()
	hour := clock.Truncate(time.Hour)
	for i, received := range []time.Time{clock.Add(-48 * time.Hour), hour.Add(-3 * time.Hour), hour.Add(-3*time.Hour + time.Minute), hour.Add(-2 * time.Hour)} {
		addExplained(t, s, fmt.Sprint(i), rows.Labels{Service: "a"}, &rows.Rows{Start: received, Cause: "cpu", Sums: []rows.Sum{{Group: fmt.Sprint("g", i), Bucket: 10, N: 1}}})
	}
	must.Do(t, s.AddRecording(t.Context(), Recording{ID: "waits", Labels: rows.Labels{Service: "a"}, Received: clock.Add(-72 * time.Hour), Bytes: 100}))
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

// TestSharedRetention: which files are dropped, and which are kept. SQLite replaces ClickHouse.
func TestSharedRetention(t *testing.T) {
	addClickHouseFunctions()
	w, m := newSharedWorker(t)
	st, ctx, now := openTestStore(t), t.Context(), time.Now()
	w.databases = st.databases
	must.Have(st.writer.Exec(`CREATE VIEW recordings_rows AS SELECT * FROM recordings`))(t)
	for id, c := range map[string]struct {
		age          time.Duration
		state, class string
		raw          int
	}{"old": {25 * time.Hour, Done, "x", 1}, "first": {3 * time.Hour, Done, "c", 1}, "second": {2 * time.Hour, Poison, "c", 1}, "other": {time.Hour, Done, "d", 1}, "waits": {48 * time.Hour, Working, "", 1}, "dropped": {48 * time.Hour, Done, "", 0}} {
		must.Have(st.writer.Exec(`INSERT INTO recordings VALUES (?,'shop','','','','',?,100,?,1,0,'',?,?,NULL)`, id, now.Add(-c.age).UnixNano(), c.state, c.raw, c.class))(t)
	}
	for maxBytes, want := range map[int64]string{500: "[{old age}]", 399: "[{old age} {second bytes}]", 250: "[{old age} {second bytes} {first bytes}]"} {
		list, err := w.DropFiles(ctx, now, 24*time.Hour, maxBytes)
		check.True(t, err == nil && fmt.Sprint(list) == want && m.states["old"].state == Done, "%d bytes: %v %v, want %s", maxBytes, list, err, want)
	}
	w.send(t, "a")
	must.Have(w.Finish(ctx, w.claimNext(t), new(rows.Rows)))(t)
	list, err := w.DropFiles(ctx, now, 26*time.Hour, 500)
	check.True(t, err == nil && list == nil, "%v %v", list, err)
	for _, c := range []struct {
		id   string
		age  time.Duration
		want bool
	}{{"old", 99 * time.Hour, true}, {"dropped", 0, false}, {"none", 48*time.Hour - 1, true}, {"none", 48 * time.Hour, false}} {
		isKept, err := w.IsFileKept(ctx, c.id, c.age, 24*time.Hour)
		check.True(t, err == nil && isKept == c.want, "%+v: %v %v", c, isKept, err)
	}
	r, err := w.Recording(ctx, "old")
	check.True(t, err == nil && r != nil && r.State == Done, "%+v %v", r, err)
}
