package store

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/fleet/internal/enginetest"
	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testfull"
)

// startClickHouse starts a ClickHouse server and returns its address.
func startClickHouse(t *testing.T) string {
	testfull.Need(t, "a ClickHouse server")
	return enginetest.ClickHouse(t).Address
}

// TestClickHouseToday runs the queries on chdb, the engine of a current ClickHouse without clusters, users and replicas, over
// HTTP.
func TestClickHouseToday(t *testing.T) {
	python := os.Getenv("WHYLATE_CHDB")
	if python == "" {
		t.Skip("WHYLATE_CHDB names no Python that has chdb (pip install chdb; .ci/full does)")
	}
	c := exec.Command(python, "testdata/today.py", t.TempDir())
	c.Stderr = t.Output()
	out, err := c.StdoutPipe()
	must.Do(t, err)
	must.Do(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	port, err := bufio.NewReader(out).ReadString('\n')
	must.Do(t, err)
	checkSameAnswers(t, "http://127.0.0.1:"+strings.TrimSpace(port)+"/default")
}

// TestClickHouse: SQLite and ClickHouse give the same answers to all queries, after the same recordings. Some recordings are
// written twice, and some are explained again with another result.
func TestClickHouse(t *testing.T) { checkSameAnswers(t, startClickHouse(t)) }

func checkSameAnswers(t *testing.T, address string) {
	begin := time.Now().Add(-3 * time.Hour).Truncate(time.Second)
	sel := Selection{From: begin.Add(-time.Hour), To: time.Now(), Service: "a"}
	answers := func(clickhouse string) []any {
		s := must.Have(Open(t.Context(), filepath.Join(t.TempDir(), "fleet.db"), clickhouse))(t)
		defer s.Close()
		for i := range 40 {
			newRows := func(n int) *rows.Rows {
				r := &rows.Rows{Start: begin.Add(time.Duration(i) * time.Minute), DurationNS: 1e9, Requests: int64(n), Cause: "cpu",
					Headroom: rows.Headroom{Times: float64(i%7+n-3) / 2, Low: 1, High: 9, Limit: fmt.Sprint("lock ", i), NotJudged: "peers", Reason: "why"}}
				for j := range n {
					r.Sums = append(r.Sums, rows.Sum{Group: "GET /", Bucket: int64(1+j) * 1000, N: int64(1 + i)}, rows.Sum{Group: "GET /", Cause: "cpu", Bucket: int64(1+j) * 1000, NS: int64(1000 * i)})
					r.Findings = append(r.Findings, rows.Finding{Problem: fmt.Sprint("p", j), Group: "GET /", Title: fmt.Sprint("it's \\ ", i), Requests: 10, WinNS: int64(i * 100)})
				}
				r.SlowRequests = []rows.SlowRequest{{Request: "r1", Group: "GET /", Start: r.Start, NS: int64(1000 + i), Trace: "t", Site: "main.x (x.go:1)"}}
				return r
			}
			l := rows.Labels{Service: []string{"a", "b"}[i%2], Version: fmt.Sprint("v", i/20), Environment: "prod", Pod: fmt.Sprint("pod", i%8), Node: "n"}
			addExplained(t, s, fmt.Sprint(i), l, newRows(3))
			if i%3 == 0 {
				secondRows := newRows(1 + i%5)
				r := &Recording{ID: fmt.Sprintf("%032d", i), Labels: l, Received: secondRows.Start}
				if s.clickhouse != nil { // as a worker that was killed between both databases
					var b block
					b.addRecording(r, &contribution{l, *newRows(7)}, time.Now().UnixNano())
					must.Do(t, b.insert(t.Context(), s.clickhouse))
				}
				must.Have(s.writer.Exec(`UPDATE recordings SET state='waiting' WHERE id=?`, r.ID))(t)
				addExplained(t, s, fmt.Sprint(i), l, secondRows)
			}
		}
		for i := range 3 {
			addExplained(t, s, fmt.Sprint("e", i), rows.Labels{Service: "c", Version: "v1", Environment: "prod", Pod: "p"}, endlessRows(begin.Add(time.Duration(i)*time.Minute)))
		}
		for range 2 { // the second run must not change the sums
			must.Do(t, s.RollUp(t.Context(), time.Now().Add(2*rollInterval)))
		}
		if got, want := storedByDay(t, s), recountByDay(t, s); !reflect.DeepEqual(got, want) {
			t.Errorf("by day %v, want %v", got, want)
		}
		var out []any
		add := func(v any, err error) {
			t.Helper()
			must.Do(t, err, clickhouse)
			out = append(out, v)
		}
		for _, sel := range []Selection{sel, {From: sel.From, To: sel.To, Environment: "prod"}, {From: sel.From, To: sel.To, Service: "c"}} {
			problems, versions, err := s.Overview(t.Context(), sel)
			add(problems, err)
			add(versions, nil)
			add(s.DailyWins(t.Context(), sel, []string{"p0", "p1", "p2"}))
			for _, step := range []time.Duration{time.Minute, time.Hour, day} {
				add(s.Series(t.Context(), sel, step))
			}
			add(s.Pods(t.Context(), sel))
			add(s.Moments(t.Context(), sel, "t", 100))
		}
		must.Do(t, s.DeleteOldRows(t.Context(), time.Now(), begin.Add(time.Hour)))
		return out
	}
	lite, click := answers(""), answers(address)
	for i := range lite {
		check.True(t, reflect.DeepEqual(lite[i], click[i]), "answer %d: SQLite\n%+v\nClickHouse\n%+v", i, lite[i], click[i])
	}
}
