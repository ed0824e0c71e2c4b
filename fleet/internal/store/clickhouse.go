package store

import (
	"context"
	"database/sql"
	_ "embed" // of the tables
	"fmt"
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
	written := time.Now().UnixNano()
	l, r := &now.Labels, &now.Rows
	var sums, seen, problems, slow [][]any
	add := func(l *rows.Labels, r *rows.Rows, times int64) {
		r.Each(func(s *rows.Sum) {
			sums = append(sums, []any{l.Service, l.Version, l.Environment, l.Pod, l.Node, s.Group, r.At.Truncate(time.Minute).Unix(), s.Cause, s.Bucket, times * s.N, times * s.NS, id, written})
		}, func(problem string, n, requests, ns int64) {
			at := fmt.Sprintf("%019d", r.At.UnixNano()) + id
			seen = append(seen, []any{r.At.Truncate(day).Unix(), l.Service, l.Version, l.Environment, l.Pod, l.Node, problem, times * n, times * requests, times * ns, at, at, id, written})
		})
		for _, q := range r.Slow {
			slow = append(slow, []any{id, q.Request, l.Service, l.Version, l.Environment, l.Pod, l.Node, q.Group, q.At.UnixNano(), times * q.NS, q.Cause, q.Site, q.Trace, written})
		}
	}
	if before != nil {
		add(&before.Labels, &before.Rows, 0)
		written++ // the rows of now replace these
	}
	add(l, r, 1)
	for _, f := range r.Findings {
		problems = append(problems, []any{f.Problem, l.Service, l.Environment, f.Group, f.Code, f.Cause, f.Site, f.Severity, f.Title, f.Fix, r.At.UnixNano()})
	}
	for _, t := range []struct {
		into string
		rows [][]any
	}{
		{"sums_rows (service, version, environment, pod, node, grp, minute, cause, bucket, n, ns, recording, written)", sums},
		{"seen_rows (day, service, version, environment, pod, node, problem, n, requests, ns, oldest, newest, recording, written)", seen},
		{"problems_rows (problem, service, environment, grp, code, cause, site, severity, title, fix, updated)", problems},
		{"slow_rows (recording, request, service, version, environment, pod, node, grp, moment, ns, cause, site, trace, written)", slow},
	} {
		if len(t.rows) == 0 {
			continue
		}
		err := within(ctx, db, func(tx *sql.Tx) error { // one block: all rows or none
			stmt, err := tx.PrepareContext(ctx, "INSERT INTO "+t.into)
			if err != nil {
				return err
			}
			defer stmt.Close()
			for _, row := range t.rows {
				if _, err := stmt.ExecContext(ctx, row...); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("ClickHouse: writing %.8s: %w", t.into, err)
		}
	}
	return nil
}
