package store

import (
	"context"
	"database/sql"
	_ "embed" // for tableStatements
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/whylate/whylate/fleet/internal/rows"
)

//go:embed migrations/clickhouse.sql
var tableStatements string

// openClickHouse connects, and creates the tables that do not exist.
func openClickHouse(ctx context.Context, address string) (*sql.DB, error) {
	opts, err := clickhouse.ParseDSN(address)
	if err != nil {
		return nil, fmt.Errorf("the address of ClickHouse: %w", err)
	}
	db := clickhouse.OpenDB(opts)
	for statement := range strings.SplitSeq(tableStatements, ";\n") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if _, err := db.ExecContext(ctx, statement); err != nil {
			_ = db.Close()
			return nil, fmt.Errorf("ClickHouse: %w", err)
		}
	}
	return db, nil
}

// A block holds the rows of recordings that are written together.
type block struct{ explained, headrooms, problems, series [][]any }

// addRecording appends the rows of a recording to the block; insert writes them. Of several versions of a row, the one with the largest written
// counts.
func (b *block) addRecording(rec *Recording, c *contribution, written int64) {
	labels, recordingRows := &c.Labels, &c.Rows
	var problems []string
	var requests, ns []int64
	recordingRows.VisitSums(func(*rows.Sum) {}, func(problem string, _, requestCount, problemNS int64) {
		problems, requests, ns = append(problems, problem), append(requests, requestCount), append(ns, problemNS)
	})
	costs := make(map[string]*rows.Sum)
	for _, s := range recordingRows.Sums {
		if costs[s.Cause] == nil {
			costs[s.Cause] = &rows.Sum{Cause: s.Cause}
		}
		costs[s.Cause].N = rows.AddClamped(costs[s.Cause].N, s.N)
		costs[s.Cause].NS = rows.AddClamped(costs[s.Cause].NS, s.NS)
	}
	costList := slices.SortedFunc(maps.Values(costs), func(a, b *rows.Sum) int { return strings.Compare(a.Cause, b.Cause) })
	b.explained = append(b.explained, []any{labels.Service, rec.Received.UnixNano(), rec.ID, labels.Version, labels.Environment, labels.Pod, labels.Node, recordingRows.Start.Truncate(time.Minute).Unix(), newStamp(recordingRows.Start, rec.ID), written,
		mapSlice(costList, func(s **rows.Sum) string { return (*s).Cause }), mapSlice(costList, func(s **rows.Sum) int64 { return (*s).N }), mapSlice(costList, func(s **rows.Sum) int64 { return (*s).NS }),
		mapSlice(recordingRows.Sums, func(s *rows.Sum) string { return s.Group }), mapSlice(recordingRows.Sums, func(s *rows.Sum) string { return s.Cause }), mapSlice(recordingRows.Sums, func(s *rows.Sum) int64 { return s.Bucket }),
		mapSlice(recordingRows.Sums, func(s *rows.Sum) int64 { return s.N }), mapSlice(recordingRows.Sums, func(s *rows.Sum) int64 { return s.NS }), problems, requests, ns,
		mapSlice(recordingRows.SlowRequests, func(s *rows.SlowRequest) string { return s.Request }), mapSlice(recordingRows.SlowRequests, func(s *rows.SlowRequest) string { return s.Group }), mapSlice(recordingRows.SlowRequests, func(s *rows.SlowRequest) int64 { return s.Start.UnixNano() }),
		mapSlice(recordingRows.SlowRequests, func(s *rows.SlowRequest) int64 { return s.NS }), mapSlice(recordingRows.SlowRequests, func(s *rows.SlowRequest) string { return s.Cause }), mapSlice(recordingRows.SlowRequests, func(s *rows.SlowRequest) string { return s.Site }),
		mapSlice(recordingRows.SlowRequests, func(s *rows.SlowRequest) string { return s.Trace })})
	h := &recordingRows.Headroom
	b.headrooms = append(b.headrooms, []any{labels.Service, rec.Received.UnixNano(), rec.ID, labels.Version, labels.Environment, recordingRows.Start.UnixNano(),
		h.Times, h.Low, h.High, h.Limit, h.NotJudged, h.Reason, written})
	for _, f := range recordingRows.Findings {
		b.problems = append(b.problems, []any{f.Problem, labels.Service, labels.Environment, f.Group, f.Code, f.Cause, f.Site, f.Severity, f.Title, f.Fix, recordingRows.Start.UnixNano()})
	}
}

// mapSlice returns the results of value for each element.
func mapSlice[T, V any](list []T, value func(*T) V) []V {
	out := make([]V, len(list))
	for i := range list {
		out[i] = value(&list[i])
	}
	return out
}

// insert writes the block to db. The rows of recordings come last: they refer to the others.
func (b *block) insert(ctx context.Context, db *sql.DB) error {
	for _, t := range []struct {
		into string
		rows [][]any
	}{
		{"series_rows (service, version, environment, pod, node, grp, day)", b.series},
		{"problems_rows (problem, service, environment, grp, code, cause, site, severity, title, fix, updated)", b.problems},
		{"headrooms_rows (service, received, recording, version, environment, moment, times, low, high, resource, unjudged, reason, written)", b.headrooms},
		{"explained_rows (service, received, recording, version, environment, pod, node, minute, stamp, written, costs.cause, costs.n, costs.ns, sums.grp, sums.cause, sums.bucket, sums.n, sums.ns, " +
			"found.problem, found.requests, found.ns, slow.request, slow.grp, slow.moment, slow.ns, slow.cause, slow.site, slow.trace)", b.explained},
	} {
		if err := insertRows(ctx, db, t.into, t.rows); err != nil {
			return err
		}
	}
	return nil
}

// insertRows inserts the rows of list as one block: either all or none. into is a table with its columns in brackets.
func insertRows(ctx context.Context, db *sql.DB, into string, list [][]any) error {
	if len(list) == 0 {
		return nil
	}
	err := inTransaction(ctx, db, func(tx *sql.Tx) error {
		stmt, err := tx.PrepareContext(ctx, "INSERT INTO "+into)
		if err != nil {
			return err
		}
		defer stmt.Close()
		for _, row := range list {
			if _, err := stmt.ExecContext(ctx, row...); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("ClickHouse: writing %.10s: %w", into, err)
	}
	return nil
}

// deleteOldClickHouse deletes rows from before a time, and messages that are seven days older.
func deleteOldClickHouse(ctx context.Context, db *sql.DB, before time.Time) error {
	today := before.Truncate(day).Unix()
	for _, q := range []struct {
		sql string
		arg int64
	}{
		{`ALTER TABLE explained_rows DELETE WHERE minute<?`, before.Unix()},
		{`ALTER TABLE headrooms_rows DELETE WHERE moment<?`, before.UnixNano()},
		{`ALTER TABLE hours_rows DELETE WHERE hour<?`, today},
		{`ALTER TABLE days_rows DELETE WHERE minute<?`, today},
		{`ALTER TABLE found_rows DELETE WHERE day<?`, today},
		{`ALTER TABLE recordings_rows DELETE WHERE received<?`, before.UnixNano()},
		{`ALTER TABLE series_rows DELETE WHERE day<?`, today},
		{`ALTER TABLE problems_rows DELETE WHERE updated<?`, before.UnixNano()},
		{`ALTER TABLE told_rows DELETE WHERE moment<?`, before.UnixNano()},
		{`ALTER TABLE outbox_rows DELETE WHERE made<?`, before.Add(-7 * day).UnixNano()}, // messages are tried for three days
	} {
		if _, err := db.ExecContext(ctx, q.sql, q.arg); err != nil {
			return err
		}
	}
	return nil
}

const (
	rollInterval = 10 * time.Second
	maxClockSkew = time.Minute // between the clocks of workers
)

// RollUp computes the sums by hour and by day in ClickHouse, for pages of all services. It handles the services and hours whose
// rows were written since the last run. It always sums the rows themselves and replaces earlier sums, so running it twice or on
// two machines gives the same result, and the next run completes what a killed worker has not written. SQLite needs no RollUp:
// it updates the sums with each recording.
func (s *Store) RollUp(ctx context.Context, now time.Time) error {
	if s.clickhouse == nil {
		return nil
	}
	var lastRoll int64
	if err := s.clickhouse.QueryRowContext(ctx, `SELECT max(written) FROM found_rows`).Scan(&lastRoll); err != nil || now.UnixNano()-lastRoll < int64(rollInterval) {
		return err
	}
	hours, err := s.changedPeriods(ctx, lastRoll-int64(maxClockSkew), 3600)
	if err != nil {
		return err
	}
	days, err := s.changedPeriods(ctx, lastRoll-int64(maxClockSkew), 86400)
	if err != nil {
		return err
	}
	const (
		names    = `sums.version, sums.environment, sums.cause, sums.bucket, sums.n, sums.ns`
		grouping = ` AND service IN ({services}) GROUP BY service, version, environment, cause, bucket) GROUP BY service`
	)
	sums := `groupArray(version), groupArray(environment), groupArray(cause), groupArray(bucket), groupArray(sum_n), groupArray(sum_ns)
			FROM (SELECT service, version, environment, cause, bucket, ` + s.sumExpr("n") + ` AS sum_n, ` + s.sumExpr("ns") + ` AS sum_ns FROM `
	for _, q := range []struct {
		periods map[int64]*period
		seconds int64
		sql     string
	}{
		{hours, 3600, `INSERT INTO hours_rows (service, hour, written, ` + names + `) SELECT service, toInt64({begin}), toInt64({now}), ` + sums + s.tableExpr("sums") +
			` WHERE received>={begin}*1000000000 AND received<={until} AND minute>={begin} AND minute<{end}` + grouping},
		{days, 86400, `INSERT INTO days_rows (service, minute, written, ` + names + `) SELECT service, toInt64({begin}), toInt64({now}), ` + sums + s.tableExpr("hours") +
			` WHERE hour>={begin} AND hour<{end}` + grouping},
		{days, 86400, `INSERT INTO found_rows (service, day, written, found.version, found.environment, found.problem, found.n, found.requests, found.ns, found.oldest, found.newest, found.pods)
			SELECT service, toInt64({begin}), toInt64({now}), groupArray(version), groupArray(environment), groupArray(problem), groupArray(sum_n), groupArray(sum_requests), groupArray(sum_ns),
				groupArray(oldest), groupArray(newest), groupArray(pods) FROM (SELECT service, version, environment, problem, toInt64(count()) AS sum_n, ` + s.sumExpr("requests") + ` AS sum_requests, ` + s.sumExpr("ns") + ` AS sum_ns,
				min(stamp) AS oldest, max(stamp) AS newest, toInt64(uniqExact(pod)) AS pods FROM ` + s.tableExpr("found") + ` WHERE received>={begin}*1000000000 AND received<={until} AND minute>={begin} AND minute<{end}
				AND service IN ({services}) GROUP BY service, version, environment, problem) GROUP BY service`},
	} {
		for begin, p := range q.periods {
			sql := strings.NewReplacer("{begin}", itoa(begin), "{end}", itoa(begin+q.seconds), "{until}", itoa(p.lastReceived), "{now}", itoa(now.UnixNano()),
				"{services}", "?"+strings.Repeat(",?", len(p.services)-1)).Replace(q.sql)
			if _, err := s.clickhouse.ExecContext(ctx, sql, p.services...); err != nil {
				return fmt.Errorf("ClickHouse: adding up: %w", err)
			}
		}
	}
	return nil
}

// A period is an hour or a day whose sums must be computed again: its services, and the time at which the last of their
// recordings was received. Rows are ordered by that time, so a query with it reads fewer.
type period struct {
	services     []any
	lastReceived int64
}

// changedPeriods returns the periods with rows that were written after a time, by their begin. Times are in s since 1970, and so is the length of a
// period, seconds.
func (s *Store) changedPeriods(ctx context.Context, after, seconds int64) (map[int64]*period, error) {
	periods := make(map[int64]*period)
	err := eachRow(ctx, s.clickhouse, func(scan func(...any) error) error {
		var service string
		var begin, received int64
		if err := scan(&service, &begin, &received); err != nil {
			return err
		}
		if periods[begin] == nil {
			periods[begin] = new(period)
		}
		changed := periods[begin]
		changed.services, changed.lastReceived = append(changed.services, service), max(changed.lastReceived, received)
		return nil
	}, `SELECT service, intDiv(minute, ?) * ? AS begin, max(received) FROM explained_rows GROUP BY service, begin HAVING max(written)>?`, seconds, seconds, after)
	return periods, err
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
