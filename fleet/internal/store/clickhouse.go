package store

import (
	"context"
	"database/sql"
	_ "embed" // of the tables
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
var tables string

func openClickHouse(ctx context.Context, address string) (*sql.DB, error) {
	opts, err := clickhouse.ParseDSN(address)
	if err != nil {
		return nil, fmt.Errorf("the address of ClickHouse: %w", err)
	}
	db := clickhouse.OpenDB(opts)
	for statement := range strings.SplitSeq(tables, ";\n") {
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

// A block is recordings that are written together.
type block struct{ explained, problems, series [][]any }

// add adds the rows of a recording, whose newest count.
func (b *block) add(rec *Recording, c *counted, written int64) {
	l, r := &c.Labels, &c.Rows
	var problems []string
	var requests, ns []int64
	r.VisitSums(func(*rows.Sum) {}, func(problem string, _, q, t int64) {
		problems, requests, ns = append(problems, problem), append(requests, q), append(ns, t)
	})
	costs := make(map[string]*rows.Sum)
	for _, s := range r.Sums {
		if costs[s.Cause] == nil {
			costs[s.Cause] = &rows.Sum{Cause: s.Cause}
		}
		costs[s.Cause].N = rows.AddClamped(costs[s.Cause].N, s.N)
		costs[s.Cause].NS = rows.AddClamped(costs[s.Cause].NS, s.NS)
	}
	each := slices.Collect(maps.Values(costs))
	b.explained = append(b.explained, []any{l.Service, rec.Received.UnixNano(), rec.ID, l.Version, l.Environment, l.Pod, l.Node, r.Start.Truncate(time.Minute).Unix(), stampOf(r.Start, rec.ID), written,
		column(each, func(s **rows.Sum) string { return (*s).Cause }), column(each, func(s **rows.Sum) int64 { return (*s).N }), column(each, func(s **rows.Sum) int64 { return (*s).NS }),
		column(r.Sums, func(s *rows.Sum) string { return s.Group }), column(r.Sums, func(s *rows.Sum) string { return s.Cause }), column(r.Sums, func(s *rows.Sum) int64 { return s.Bucket }),
		column(r.Sums, func(s *rows.Sum) int64 { return s.N }), column(r.Sums, func(s *rows.Sum) int64 { return s.NS }), problems, requests, ns,
		column(r.SlowRequests, func(s *rows.SlowRequest) string { return s.Request }), column(r.SlowRequests, func(s *rows.SlowRequest) string { return s.Group }), column(r.SlowRequests, func(s *rows.SlowRequest) int64 { return s.Start.UnixNano() }),
		column(r.SlowRequests, func(s *rows.SlowRequest) int64 { return s.NS }), column(r.SlowRequests, func(s *rows.SlowRequest) string { return s.Cause }), column(r.SlowRequests, func(s *rows.SlowRequest) string { return s.Site }),
		column(r.SlowRequests, func(s *rows.SlowRequest) string { return s.Trace })})
	for _, f := range r.Findings {
		b.problems = append(b.problems, []any{f.Problem, l.Service, l.Environment, f.Group, f.Code, f.Cause, f.Site, f.Severity, f.Title, f.Fix, r.Start.UnixNano()})
	}
}

func column[T, V any](list []T, of func(*T) V) []V {
	out := make([]V, len(list))
	for i := range list {
		out[i] = of(&list[i])
	}
	return out
}

func (b *block) insert(ctx context.Context, db *sql.DB) error {
	for _, t := range []struct {
		into string
		rows [][]any
	}{
		{"series_rows (service, version, environment, pod, node, grp, day)", b.series},
		{"problems_rows (problem, service, environment, grp, code, cause, site, severity, title, fix, updated)", b.problems},
		{"explained_rows (service, received, recording, version, environment, pod, node, minute, stamp, written, costs.cause, costs.n, costs.ns, sums.grp, sums.cause, sums.bucket, sums.n, sums.ns, " +
			"found.problem, found.requests, found.ns, slow.request, slow.grp, slow.moment, slow.ns, slow.cause, slow.site, slow.trace)", b.explained},
	} {
		if err := insertRows(ctx, db, t.into, t.rows); err != nil {
			return err
		}
	}
	return nil
}

// insertRows inserts rows as one block: all or none.
func insertRows(ctx context.Context, db *sql.DB, into string, list [][]any) error {
	if len(list) == 0 {
		return nil
	}
	err := within(ctx, db, func(tx *sql.Tx) error {
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

// forgetClickHouse removes rows from before a time.
func forgetClickHouse(ctx context.Context, db *sql.DB, before time.Time) error {
	today := before.Truncate(day).Unix()
	for _, q := range []struct {
		sql string
		arg int64
	}{
		{`ALTER TABLE explained_rows DELETE WHERE minute<?`, before.Unix()},
		{`ALTER TABLE hours_rows DELETE WHERE hour<?`, today},
		{`ALTER TABLE days_rows DELETE WHERE minute<?`, today},
		{`ALTER TABLE found_rows DELETE WHERE day<?`, today},
		{`ALTER TABLE recordings_rows DELETE WHERE received<?`, before.UnixNano()},
		{`ALTER TABLE series_rows DELETE WHERE day<?`, today},
		{`ALTER TABLE problems_rows DELETE WHERE updated<?`, before.UnixNano()},
		{`ALTER TABLE told_rows DELETE WHERE moment<?`, before.UnixNano()},
		{`ALTER TABLE outbox_rows DELETE WHERE made<?`, before.Add(-7 * day).UnixNano()}, // tried for three days
	} {
		if _, err := db.ExecContext(ctx, q.sql, q.arg); err != nil {
			return err
		}
	}
	return nil
}

const (
	rollEvery = 10 * time.Second
	rollSkew  = time.Minute // by which clocks of workers may differ
)

// Roll adds up rows of ClickHouse by hour and by day, for pages of all services: those of services and hours of which rows were written
// since the last time. It sums the rows themselves, each recording's once, and puts the sums in place of those before: to do it
// twice, or on two machines, changes nothing, and what a killed worker left undone the next does. SQLite's sums are kept as rows are written.
func (s *Store) Roll(ctx context.Context, now time.Time) error {
	if s.click == nil {
		return nil
	}
	var last int64
	if err := s.click.QueryRowContext(ctx, `SELECT max(written) FROM found_rows`).Scan(&last); err != nil || now.UnixNano()-last < int64(rollEvery) {
		return err
	}
	hours, err := s.changed(ctx, last-int64(rollSkew), 3600)
	if err != nil {
		return err
	}
	days, err := s.changed(ctx, last-int64(rollSkew), 86400)
	if err != nil {
		return err
	}
	const (
		names  = `sums.version, sums.environment, sums.cause, sums.bucket, sums.n, sums.ns`
		within = ` AND service IN ({services}) GROUP BY service, version, environment, cause, bucket) GROUP BY service`
	)
	sums := `groupArray(version), groupArray(environment), groupArray(cause), groupArray(bucket), groupArray(sum_n), groupArray(sum_ns)
			FROM (SELECT service, version, environment, cause, bucket, ` + s.sum("n") + ` AS sum_n, ` + s.sum("ns") + ` AS sum_ns FROM `
	for _, q := range []struct {
		of      map[int64]*part
		seconds int64
		sql     string
	}{
		{hours, 3600, `INSERT INTO hours_rows (service, hour, written, ` + names + `) SELECT service, toInt64({begin}), toInt64({now}), ` + sums + s.from("sums") +
			` WHERE received>={begin}*1000000000 AND received<={until} AND minute>={begin} AND minute<{end}` + within},
		{days, 86400, `INSERT INTO days_rows (service, minute, written, ` + names + `) SELECT service, toInt64({begin}), toInt64({now}), ` + sums + s.from("hours") +
			` WHERE hour>={begin} AND hour<{end}` + within},
		{days, 86400, `INSERT INTO found_rows (service, day, written, found.version, found.environment, found.problem, found.n, found.requests, found.ns, found.oldest, found.newest, found.pods)
			SELECT service, toInt64({begin}), toInt64({now}), groupArray(version), groupArray(environment), groupArray(problem), groupArray(sum_n), groupArray(sum_requests), groupArray(sum_ns),
				groupArray(oldest), groupArray(newest), groupArray(pods) FROM (SELECT service, version, environment, problem, toInt64(count()) AS sum_n, ` + s.sum("requests") + ` AS sum_requests, ` + s.sum("ns") + ` AS sum_ns,
				min(stamp) AS oldest, max(stamp) AS newest, toInt64(uniqExact(pod)) AS pods FROM ` + s.from("found") + ` WHERE received>={begin}*1000000000 AND received<={until} AND minute>={begin} AND minute<{end}
				AND service IN ({services}) GROUP BY service, version, environment, problem) GROUP BY service`},
	} {
		for begin, p := range q.of {
			sql := strings.NewReplacer("{begin}", itoa(begin), "{end}", itoa(begin+q.seconds), "{until}", itoa(p.until), "{now}", itoa(now.UnixNano()),
				"{services}", "?"+strings.Repeat(",?", len(p.services)-1)).Replace(q.sql)
			if _, err := s.click.ExecContext(ctx, sql, p.services...); err != nil {
				return fmt.Errorf("ClickHouse: adding up: %w", err)
			}
		}
	}
	return nil
}

// A part is of an hour or day which services there are, and when the last of their recordings was received: rows are found by that.
type part struct {
	services []any
	until    int64
}

// changed returns the parts of which rows were written after a time, by when they begin.
func (s *Store) changed(ctx context.Context, after, seconds int64) (map[int64]*part, error) {
	out := make(map[int64]*part)
	err := eachRow(ctx, s.click, func(scan func(...any) error) error {
		var service string
		var begin, until int64
		if err := scan(&service, &begin, &until); err != nil {
			return err
		}
		if out[begin] == nil {
			out[begin] = new(part)
		}
		p := out[begin]
		p.services, p.until = append(p.services, service), max(p.until, until)
		return nil
	}, `SELECT service, intDiv(minute, ?) * ? AS begin, max(received) FROM explained_rows GROUP BY service, begin HAVING max(written)>?`, seconds, seconds, after)
	return out, err
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
