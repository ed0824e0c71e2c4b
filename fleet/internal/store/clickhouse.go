package store

import (
	"context"
	"database/sql"
	_ "embed" // of the tables
	"fmt"
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

// writeClickHouse writes the rows of a recording. A row has the key of what it counts and of the recording, and the newest row of a
// key counts. What the recording counted before and does not count now is written again as nothing.
func writeClickHouse(ctx context.Context, db *sql.DB, id string, before, now *counted) error {
	var b block
	written := time.Now().UnixNano()
	if before != nil {
		b.add(id, before, 0, written)
		written++ // the rows of now replace these
	}
	b.add(id, now, 1, written)
	return b.insert(ctx, db)
}

// A block is rows that are written together.
type block struct{ sums, seen, problems, slow, series [][]any }

// add adds the rows of a recording; with times=0 as nothing.
func (b *block) add(id string, c *counted, times, written int64) {
	l, r := &c.Labels, &c.Rows
	r.Each(func(s *rows.Sum) {
		b.sums = append(b.sums, []any{l.Service, l.Version, l.Environment, l.Pod, l.Node, s.Group, r.At.Truncate(time.Minute).Unix(), s.Cause, s.Bucket, times * s.N, times * s.NS, id, written})
	}, func(problem string, n, requests, ns int64) {
		at := fmt.Sprintf("%019d", r.At.UnixNano()) + id
		b.seen = append(b.seen, []any{r.At.Truncate(day).Unix(), l.Service, l.Version, l.Environment, l.Pod, l.Node, problem, times * n, times * requests, times * ns, at, at, id, written})
	})
	for _, q := range r.Slow {
		b.slow = append(b.slow, []any{id, q.Request, l.Service, l.Version, l.Environment, l.Pod, l.Node, q.Group, q.At.UnixNano(), times * q.NS, q.Cause, q.Site, q.Trace, written})
	}
	for _, f := range r.Findings {
		if times != 0 {
			b.problems = append(b.problems, []any{f.Problem, l.Service, l.Environment, f.Group, f.Code, f.Cause, f.Site, f.Severity, f.Title, f.Fix, r.At.UnixNano()})
		}
	}
}

func (b *block) insert(ctx context.Context, db *sql.DB) error {
	for _, t := range []struct {
		into string
		rows [][]any
	}{
		{"series_rows (service, version, environment, pod, node, grp, day)", b.series},
		{"sums_rows (service, version, environment, pod, node, grp, minute, cause, bucket, n, ns, recording, written)", b.sums},
		{"seen_rows (day, service, version, environment, pod, node, problem, n, requests, ns, oldest, newest, recording, written)", b.seen},
		{"problems_rows (problem, service, environment, grp, code, cause, site, severity, title, fix, updated)", b.problems},
		{"slow_rows (recording, request, service, version, environment, pod, node, grp, moment, ns, cause, site, trace, written)", b.slow},
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
	for _, q := range []struct {
		sql string
		arg int64
	}{
		{`ALTER TABLE sums_rows DELETE WHERE minute<?`, before.Unix()},
		{`ALTER TABLE seen_rows DELETE WHERE day<?`, before.Truncate(day).Unix()},
		{`ALTER TABLE sums_hours DELETE WHERE hour<?`, before.Truncate(day).Unix()},
		{`ALTER TABLE sums_days DELETE WHERE minute<?`, before.Truncate(day).Unix()},
		{`ALTER TABLE seen_days DELETE WHERE day<?`, before.Truncate(day).Unix()},
		{`ALTER TABLE slow_rows DELETE WHERE moment<?`, before.UnixNano()},
		{`ALTER TABLE recordings_rows DELETE WHERE received<?`, before.UnixNano()},
		{`ALTER TABLE series_rows DELETE WHERE day<?`, before.Truncate(day).Unix()},
		{`ALTER TABLE problems_rows DELETE WHERE updated<?`, before.UnixNano()},
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
	if err := s.click.QueryRowContext(ctx, `SELECT max(written) FROM seen_days`).Scan(&last); err != nil || now.UnixNano()-last < int64(rollEvery) {
		return err
	}
	type changed struct {
		service string
		hour    int64
	}
	list, err := collect(ctx, s.click, func(scan func(...any) error) (c changed, err error) {
		return c, scan(&c.service, &c.hour)
	}, `SELECT DISTINCT service, intDiv(toInt64(substring(oldest, 1, 19)), 3600000000000) * 3600 AS hour FROM seen_rows WHERE written>?`, last-int64(rollSkew))
	if err != nil || len(list) == 0 {
		return err
	}
	hours, days := make(map[int64][]any), make(map[int64][]any)
	for _, c := range list {
		today := c.hour / 86400 * 86400
		hours[c.hour] = append(hours[c.hour], c.service)
		if !slices.Contains(days[today], any(c.service)) {
			days[today] = append(days[today], c.service)
		}
	}
	for _, q := range []struct {
		of       map[int64][]any
		seconds  int64
		into, by string
	}{
		{hours, 3600, `INSERT INTO sums_hours (hour, service, version, environment, cause, bucket, n, ns, written)
			SELECT intDiv(minute, 3600) * 3600 AS hour, service, version, environment, cause, bucket, sum(n), sum(ns), `, `FROM sums_rows FINAL WHERE minute>=? AND minute<? AND service IN (?*)
			GROUP BY hour, service, version, environment, cause, bucket`},
		{days, 86400, `INSERT INTO sums_days (minute, service, version, environment, cause, bucket, n, ns, written)
			SELECT intDiv(hour, 86400) * 86400 AS minute, service, version, environment, cause, bucket, sum(n), sum(ns), `, `FROM sums_hours FINAL WHERE hour>=? AND hour<? AND service IN (?*)
			GROUP BY minute, service, version, environment, cause, bucket`},
		{days, 86400, `INSERT INTO seen_days (day, service, version, environment, problem, n, requests, ns, oldest, newest, pods, written)
			SELECT day, service, version, environment, problem, sum(n), sum(requests), sum(ns), minIf(oldest, n>0), maxIf(newest, n>0), toInt64(uniqExactIf(pod, n>0)), `,
			`FROM seen_rows FINAL WHERE day>=? AND day<? AND service IN (?*) GROUP BY day, service, version, environment, problem`},
	} {
		for begin, services := range q.of {
			_, err := s.click.ExecContext(ctx, q.into+strconv.FormatInt(now.UnixNano(), 10)+" "+strings.Replace(q.by, "?*", "?"+strings.Repeat(",?", len(services)-1), 1),
				append([]any{begin, begin + q.seconds}, services...)...)
			if err != nil {
				return fmt.Errorf("ClickHouse: adding up: %w", err)
			}
		}
	}
	return nil
}
