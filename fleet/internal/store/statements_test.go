package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// A statementLog is a database that writes down statements with their arguments, and has answers to some queries.
type statementLog struct {
	lines   []string
	answers map[string][][]driver.Value // by the end of a query
	failing string                      // the begin of statements that fail
}

func (l *statementLog) Connect(context.Context) (driver.Conn, error) { return loggedConn{l}, nil }
func (l *statementLog) Driver() driver.Driver                        { return nil }

// add writes down a statement. Times of the test's run differ from run to run, so they are written as "now" and "today".
func (l *statementLog) add(query string, args []driver.NamedValue) error {
	line := strings.Join(strings.Fields(query), " ")
	for _, a := range args {
		text := fmt.Sprintf("%v", a.Value)
		if ns, ok := a.Value.(int64); ok && time.Since(time.Unix(0, ns)).Abs() < time.Hour {
			text = "now"
		} else if ok && ns == time.Now().Truncate(day).Unix() {
			text = "today"
		}
		line += " | " + text
	}
	l.lines = append(l.lines, line)
	if l.failing != "" && strings.HasPrefix(line, l.failing) {
		return errDown
	}
	return nil
}

type loggedConn struct{ log *statementLog }

func (c loggedConn) Prepare(query string) (driver.Stmt, error) { return loggedStatement{c, query}, nil }
func (c loggedConn) Close() error                              { return nil }
func (c loggedConn) Begin() (driver.Tx, error)                 { return c, c.log.add("begin", nil) }
func (c loggedConn) Commit() error                             { return c.log.add("commit", nil) }
func (c loggedConn) Rollback() error                           { return c.log.add("rollback", nil) }
func (c loggedConn) CheckNamedValue(*driver.NamedValue) error  { return nil } // ClickHouse accepts lists

func (c loggedConn) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(1), c.log.add(query, args)
}

func (c loggedConn) QueryContext(_ context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	err := c.log.add(query, args)
	for end, list := range c.log.answers {
		if strings.HasSuffix(query, end) {
			return &loggedRows{slices.Clone(list)}, err
		}
	}
	return &loggedRows{}, err
}

type loggedStatement struct {
	loggedConn
	query string
}

func (s loggedStatement) NumInput() int { return -1 }
func (s loggedStatement) Exec([]driver.Value) (driver.Result, error) {
	return nil, errors.ErrUnsupported
}
func (s loggedStatement) Query([]driver.Value) (driver.Rows, error) {
	return nil, errors.ErrUnsupported
}
func (s loggedStatement) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.loggedConn.ExecContext(ctx, s.query, args)
}

type loggedRows struct{ rest [][]driver.Value }

func (r *loggedRows) Columns() []string {
	return make([]string, len(slices.Concat(r.rest[:min(1, len(r.rest))]...)))
}
func (r *loggedRows) Close() error { return nil }
func (r *loggedRows) Next(values []driver.Value) error {
	if len(r.rest) == 0 {
		return io.EOF
	}
	copy(values, r.rest[0])
	r.rest = r.rest[1:]
	return nil
}

// TestClickHouseStatements: testdata/clickhouse.txt has what a fleet asks of ClickHouse and writes to it. TestClickHouse, which needs the
// server, compares the answers with SQLite's.
func TestClickHouseStatements(t *testing.T) {
	log := new(statementLog)
	db := sql.OpenDB(log)
	defer db.Close()
	var got strings.Builder
	section := func(name string, err error) {
		t.Helper()
		must.Do(t, err, name)
		fmt.Fprintf(&got, "\n%s\n\t%s\n", name, strings.Join(log.lines, "\n\t"))
		log.lines = nil
	}
	ctx, begin := t.Context(), time.Date(2026, 5, 4, 18, 20, 7, 0, time.UTC)
	s := openTestStore(t)
	lite := *s.databases
	s.databases.clickhouse, s.databases.rowReader = db, db
	labels := rows.Labels{Service: "shop", Version: "v1", Environment: "live", Pod: "p", Node: "n"}
	newRows := func(problems ...string) *rows.Rows {
		r := &rows.Rows{Start: begin, DurationNS: 1e9, Requests: 5, Cause: "lock", Headroom: rows.Headroom{Times: 3, Low: 2, High: 4, Limit: "cpu", NotJudged: "peers", Reason: "why"},
			Sums:         []rows.Sum{{Group: "GET /", Bucket: 1000, N: 4}, {Group: "PUT /", Bucket: 9000, N: 1}, {Group: "GET /", Cause: "lock", Bucket: 1000, N: 2, NS: 5000}, {Group: "PUT /", Cause: "lock", Bucket: 9000, N: 3, NS: 100}},
			SlowRequests: []rows.SlowRequest{{Request: "r1", Group: "GET /", Cause: "lock", Site: "f", Trace: "abc", Start: begin.Add(time.Second), NS: 9000}}}
		for i, p := range problems {
			r.Findings = append(r.Findings, rows.Finding{Problem: p, Group: "GET /", Code: "WL2001", Cause: "lock", Severity: "high", Title: "title", Site: "f", Fix: "fix", Requests: 10, WinNS: int64(1e6 * (1 + i))})
		}
		return r
	}
	must.Do(t, s.AddRecording(ctx, Recording{ID: "a", Labels: labels, Received: begin.Add(time.Minute)}))
	folded, err := s.Finish(ctx, must.Have(s.Claim(ctx, time.Now(), time.Minute))(t), newRows("x"))
	check.False(t, folded, "one recording is too much")
	section("a recording is explained", err)
	check.Equal(t, must.Have(s.CountByState(ctx))(t)[Done], 1, "recordings are done")

	for _, sel := range []Selection{{From: begin, To: begin.Add(24 * time.Hour)}, {From: begin, To: begin.Add(7 * time.Hour), Service: "shop", Environment: "live"}} {
		_, _, err := s.Overview(ctx, sel)
		section("overview", err)
		_, err = s.Series(ctx, sel, time.Hour)
		section("series by hour", err)
		_, err = s.Series(ctx, sel, day)
		section("series by day", err)
		_, err = s.Pods(ctx, sel)
		section("pods", err)
		_, err = s.Moments(ctx, sel, "abc", 3)
		section("moments", err)
		_, err = s.DailyWins(ctx, sel, []string{"x"})
		section("wins by day", err)
		section("sums", s.VisitSums(ctx, func(string, string, int64, int64, int64) {}))
	}
	section("old rows are deleted", s.DeleteOldRows(ctx, time.Now(), begin))

	lastRoll := begin.UnixNano()
	log.answers = map[string][][]driver.Value{"FROM found_rows": {{lastRoll}}, "HAVING max(written)>?": {{"shop", int64(1777852800), int64(7)}, {"bank", int64(1777852800), int64(9)}, {"till", int64(1777852800), int64(8)}}}
	section("the sums are new", s.RollUp(ctx, begin.Add(rollInterval-1)))
	section("the sums are old", s.RollUp(ctx, begin.Add(rollInterval)))

	facts := &clickhouseFacts{db: db}
	log.answers = map[string][][]driver.Value{"WHERE id IN (?,?)": {{"a", Done, int64(2), int64(3)}}, "FROM series_rows FINAL WHERE service=?": {{"v1", "live", "p", "n", "GET /"}}, "FROM problems_rows FINAL WHERE service=?": {{"x"}}}
	states, err := facts.recordingStates(ctx, []string{"a", "b"})
	check.Equal(t, fmt.Sprint(states), "map[a:{done 2 3}]", "states")
	section("states", err)
	newOutcome := func(id string, c *contribution) *outcome {
		return &outcome{flight: &flight{queueMessage: queueMessage{Recording: Recording{ID: id, Labels: labels, Received: begin, Bytes: 11, State: Done, Tries: 2, Error: "e", Raw: true}}, written: 5}, contribution: c}
	}
	outcomes := []*outcome{newOutcome("a", &contribution{labels, *newRows("x", "y")}), newOutcome("b", nil)}
	section("the first rows", facts.writeRows(ctx, outcomes))
	check.True(t, !outcomes[0].folded && outcomes[0].retentionClass == "shop lock 2026050418", "%+v", outcomes[0])
	section("rows of known series", facts.writeRows(ctx, outcomes[:1]))
	section("states are written", facts.writeStates(ctx, []*flight{outcomes[0].flight, outcomes[1].flight}))
	for i := range MaxProblems - 3 {
		facts.problems["shop"][fmt.Sprint(i)] = true
	}
	outcomes[0] = newOutcome("c", &contribution{labels, *newRows("x", "new", "newer")})
	section("one finding too many", facts.writeRows(ctx, outcomes[:1]))
	check.True(t, outcomes[0].folded, "a finding beyond the bound is kept")
	log.failing = "INSERT INTO explained_rows"
	check.Error(t, facts.writeRows(ctx, outcomes[:1]), "rows that were not written")
	check.Equal(t, facts.day, 0, "series that were not written are known")
	section("a failure", nil)
	log.failing = ""

	shared := &sharedLedger{sqliteLedger: sqliteLedger{s.databases}}
	section("marks", shared.SaveMarks(ctx, map[string]Mark{"k": {"seen", begin}}, []Message{{ID: "m", Body: []byte("body"), Created: begin}}))
	message, err := shared.ClaimMessage(ctx, begin, begin.Add(time.Minute))
	check.True(t, message == nil, "%+v", message)
	section("no message", err)
	log.answers = map[string][][]driver.Value{"LIMIT 1": {{"m", "body", begin.UnixNano(), int64(2), int64(7)}}}
	m, err := shared.ClaimMessage(ctx, begin, begin.Add(time.Minute))
	must.True(t, m != nil && m.ID == "m" && string(m.Body) == "body" && m.Tries == 3 && m.Created.Equal(begin), "%+v", m)
	section("a message", err)
	m.written = time.Now().Add(time.Minute).UnixNano() // by a clock that is ahead
	ahead := m.written
	section("again later", shared.RetryMessage(ctx, m, begin.Add(time.Hour)))
	check.Equal(t, m.written, ahead+1, "the version of a row")
	section("sent", shared.RemoveMessage(ctx, m))

	s.databases.clickhouse, s.databases.rowReader = nil, lite.rowReader
	must.Golden(t, *update, "testdata/clickhouse.txt", []byte(got.String()))
}
