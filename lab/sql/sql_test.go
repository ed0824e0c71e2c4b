// Package sql_test runs docs/sql.md in SQLite.
package sql_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
)

var statements = regexp.MustCompile("(?s)```sql\n(.*?)```")

func TestPage(t *testing.T) {
	if _, err := exec.LookPath("sqlite3"); err != nil {
		t.Skip(err)
	}
	page, err := os.ReadFile("../../docs/sql.md")
	must.Do(t, err)
	var sql []string
	for _, m := range statements.FindAllStringSubmatch(string(page), -1) {
		sql = append(sql, m[1])
	}
	must.True(t, len(sql) == 11, "%d blocks of SQL, want the tables and ten questions", len(sql))
	tables, questions := sql[0], sql[1:]

	dir := t.TempDir()
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "WHYLATE="+testprog.Build(t, "cmd/whylate"))
		out, err := cmd.CombinedOutput()
		must.True(t, err == nil, "%s %v: %v\n%s", name, args, err, out)
		return strings.TrimSpace(string(out))
	}
	var script strings.Builder
	script.WriteString("whylate() { \"$WHYLATE\" \"$@\"; }\n")
	for line := range strings.Lines(strings.ReplaceAll(string(page), "\\\n", "")) {
		if c, ok := strings.CutPrefix(line, "    "); ok && (strings.HasPrefix(c, "whylate") || strings.HasPrefix(c, "sqlite3")) {
			script.WriteString(c)
		}
	}
	// Slow requests here wait for a collector's work.
	recording := testprog.Recording(t, "truth/gc-assist.trace")
	run("bash", "-ec", strings.ReplaceAll(script.String(), "x.trace", "'"+recording+"'"))
	run("sqlite3", "x.db", tables)
	for i, q := range questions {
		check.True(t, run("sqlite3", "x.db", q) != "", "question %d has no answer", i+1)
	}
	latency := run("sqlite3", "x.db", "select sum(latency_ns) from requests")
	for _, sum := range []string{
		"select sum(cast(total_ns as bigint)) from causes where band = 'all'",
		"select sum(duration_ns) from segments",
	} {
		if got := run("sqlite3", "x.db", sum); got != latency {
			t.Errorf("%s: %s, latencies add up to %s", sum, got, latency)
		}
	}
}
