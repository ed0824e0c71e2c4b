package store

import (
	"bytes"
	"compress/flate"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/whylate/whylate/fleet/internal/rows"
)

// MaxSeries bounds how many different versions, pods, nodes and groups together are kept of a service; what comes after is one:
// (other).
const MaxSeries = 20_000

// MaxProblems bounds how many findings are kept of a service; what comes after is one: (other).
const MaxProblems = 1000

// spareSeries are what a service may have beyond MaxSeries for the environments that it has: what is new in one of them stays in it.
const spareSeries = 1000

const day = 24 * time.Hour

// counted is what a recording added to the sums.
type counted struct {
	rows.Labels
	Rows rows.Rows
}

// class is what of one recording is kept longest.
func (c *counted) class() string {
	return c.Service + " " + c.Rows.Cause + " " + c.Rows.Start.UTC().Format("2006010215")
}

// Finish writes the rows of a recording in place of those it had, and takes it off the queue. In SQLite that is one transaction: a
// worker that is killed before leaves nothing. In ClickHouse the rows come first, and those of the next try replace them. A
// worker whose claim is another's by now writes nothing. Folded says that the service has too many series.
func (s lite) Finish(ctx context.Context, r *Recording, add *rows.Rows) (folded bool, err error) {
	now := counted{r.Labels, *add}
	err = within(ctx, s.w, func(tx *sql.Tx) error {
		var held bool
		var blob []byte
		err := tx.QueryRowContext(ctx, `SELECT state='working' AND tries=?, counted FROM recordings WHERE id=?`, r.Tries, r.ID).Scan(&held, &blob)
		if errors.Is(err, sql.ErrNoRows) || err == nil && !held {
			return errLost
		}
		if err != nil {
			return err
		}
		before, err := unpack(blob)
		if err != nil {
			return err
		}
		ids, fold, err := foldSQLite(ctx, tx, &now)
		if folded = fold; err != nil {
			return err
		}
		fold, err = foldFindings(&now, func(problem string) (known bool, err error) {
			err = tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM problems WHERE problem=?)`, problem).Scan(&known)
			return known, err
		}, func() (n int, err error) {
			err = tx.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT 1 FROM problems WHERE service=? LIMIT ?)`, now.Service, MaxProblems).Scan(&n)
			return n, err
		})
		folded = folded || fold
		if err == nil && s.click != nil { // only for the next recording's findings to be counted
			err = describeSQLite(ctx, tx, &now)
		}
		if err != nil || s.click != nil {
			return err
		}
		if before != nil {
			old, _, err := foldSQLite(ctx, tx, before)
			if err == nil {
				err = addSQLite(ctx, tx, r.ID, old, before, -1)
			}
			if err != nil {
				return err
			}
		}
		if err := addSQLite(ctx, tx, r.ID, ids, &now, 1); err != nil {
			return err
		}
		return s.done(ctx, tx, r, &now)
	})
	if errors.Is(err, errLost) {
		return false, nil
	}
	if err != nil || s.click == nil {
		return folded, err
	}
	var b block
	b.add(r, &now, time.Now().UnixNano())
	if err := b.insert(ctx, s.click); err != nil {
		return folded, err
	}
	return folded, within(ctx, s.w, func(tx *sql.Tx) error { return s.done(ctx, tx, r, &now) })
}

var errLost = errors.New("the claim is another worker's")

func (s lite) done(ctx context.Context, tx *sql.Tx, r *Recording, c *counted) error {
	blob, err := pack(c)
	if err != nil {
		return err
	}
	class := c.class()
	_, err = tx.ExecContext(ctx, `UPDATE recordings SET state='done', error='', counted=?,
		class=iif(EXISTS (SELECT 1 FROM recordings o WHERE o.class=? AND o.id<>?), '', ?) WHERE id=? AND tries=? AND state='working'`, blob, class, r.ID, class, r.ID, r.Tries)
	return err
}

func pack(c *counted) ([]byte, error) {
	var out bytes.Buffer
	z, err := flate.NewWriter(&out, flate.BestCompression)
	if err != nil {
		return nil, err
	}
	if err := json.NewEncoder(z).Encode(c); err != nil {
		return nil, err
	}
	err = z.Close()
	return out.Bytes(), err
}

func unpack(blob []byte) (*counted, error) {
	if len(blob) == 0 {
		return nil, nil
	}
	c := new(counted)
	if err := json.NewDecoder(flate.NewReader(bytes.NewReader(blob))).Decode(c); err != nil {
		return nil, fmt.Errorf("reading what a recording was counted as: %w", err)
	}
	return c, nil
}

// foldSQLite folds into the table of series.
func foldSQLite(ctx context.Context, tx *sql.Tx, c *counted) (ids map[string]int64, folded bool, err error) {
	find := func(l *rows.Labels, group string) (id int64, err error) {
		err = tx.QueryRowContext(ctx, `SELECT id FROM series WHERE service=? AND version=? AND environment=? AND pod=? AND node=? AND grp=?`,
			l.Service, l.Version, l.Environment, l.Pod, l.Node, group).Scan(&id)
		if errors.Is(err, sql.ErrNoRows) {
			return 0, nil
		}
		return id, err
	}
	insert := func(l *rows.Labels, group string) (id int64, err error) {
		if id, err = find(l, group); id != 0 || err != nil {
			return id, err
		}
		err = tx.QueryRowContext(ctx, `INSERT INTO series (service, version, environment, pod, node, grp) VALUES (?,?,?,?,?,?) RETURNING id`,
			l.Service, l.Version, l.Environment, l.Pod, l.Node, group).Scan(&id)
		return id, err
	}
	var n int
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM series WHERE service=?`, c.Service).Scan(&n); err != nil {
		return nil, false, err
	}
	return fold(c, n, find, insert, func(environment string) (has bool, err error) {
		err = tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM series WHERE service=? AND environment=?)`, c.Service, environment).Scan(&has)
		return has, err
	})
}

// foldFindings folds findings that are new to a service which has too many.
func foldFindings(c *counted, known func(problem string) (bool, error), count func() (int, error)) (folded bool, err error) {
	if len(c.Rows.Findings) == 0 {
		return false, nil
	}
	n, err := count()
	folded = c.Rows.FoldFindings(c.Service, func(f *rows.Finding) bool {
		if err != nil {
			return true
		}
		var has bool
		if has, err = known(f.Problem); !has && n < MaxProblems {
			n, has = n+1, true
		}
		return has || err != nil
	})
	return folded, err
}

// fold finds the series of all groups, and of the service's days under the name "" without pod and node. Where the service has too
// many, n, it changes labels and groups that are new to (other), but for the environment if the service has it.
func fold(c *counted, n int, find, insert func(l *rows.Labels, group string) (id int64, err error), hasEnvironment func(string) (bool, error)) (ids map[string]int64, folded bool, err error) {
	l := &c.Labels
	// The series of a recording's own pod are found by the group "", which has no points.
	if own, err := find(l, ""); err != nil {
		return nil, false, err
	} else if own == 0 {
		if n >= MaxSeries {
			l.Version, l.Pod, l.Node, folded = rows.OtherLabel, rows.OtherLabel, rows.OtherLabel, true
			has, err := hasEnvironment(l.Environment)
			if err != nil {
				return nil, false, err
			}
			if !has || n >= MaxSeries+spareSeries {
				l.Environment = rows.OtherLabel
				c.Rows.SetProblemIDs(*l)
			}
		}
		if _, err := insert(l, ""); err != nil {
			return nil, false, err
		}
	}
	ids = make(map[string]int64)
	groups := make(map[string]string)
	for i := range c.Rows.Sums {
		g := &c.Rows.Sums[i].Group
		to, ok := groups[*g]
		if !ok {
			to = *g
			id, err := find(l, to)
			if id == 0 && err == nil {
				if n+len(ids) >= MaxSeries {
					to, folded = rows.OtherLabel, true
				}
				id, err = insert(l, to)
			}
			if err != nil {
				return nil, false, err
			}
			groups[*g], ids[to] = to, id
		}
		*g = to
	}
	ids[""], err = insert(&rows.Labels{Service: l.Service, Version: l.Version, Environment: l.Environment}, "")
	return ids, folded, err
}

// plus is an assignment of SQLite that adds to a sum, or takes away. Beyond 64 bits SQLite would turn the column's integer into a
// floating-point number, which no query of integers reads.
func plus(column string) string {
	return fmt.Sprintf("%[1]s=max(0, min(%[1]s+excluded.%[1]s, %[2]d))", column, int64(rows.MaxSum))
}

// addSQLite adds rows to the sums; with times=-1 it takes them away.
func addSQLite(ctx context.Context, tx *sql.Tx, id string, ids map[string]int64, c *counted, times int64) error {
	var stmts []*sql.Stmt
	defer func() {
		for _, s := range stmts {
			_ = s.Close()
		}
	}()
	for _, q := range []string{
		`INSERT INTO points VALUES (?,?,?,?,?,?) ON CONFLICT DO UPDATE SET ` + plus("n") + `, ` + plus("ns"),
		`INSERT INTO daypoints VALUES (?,?,?,?,?,?) ON CONFLICT DO UPDATE SET ` + plus("n") + `, ` + plus("ns"),
		`INSERT INTO seen VALUES (?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO UPDATE SET n=n+excluded.n, ` + plus("requests") + `, ` + plus("ns") + `,
			oldest=min(oldest, excluded.oldest), newest=max(newest, excluded.newest), pods=pods+excluded.pods`,
		`INSERT INTO slow VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING`,
		`INSERT INTO seen_pods VALUES (?,?,?,?,?,?,?) ON CONFLICT DO UPDATE SET n=n+excluded.n RETURNING n`,
	} {
		s, err := tx.PrepareContext(ctx, q)
		if err != nil {
			return err
		}
		stmts = append(stmts, s)
	}
	exec := func(i int, args ...any) error {
		_, err := stmts[i].ExecContext(ctx, args...)
		return err
	}
	r, l := &c.Rows, &c.Labels
	// What an older program counted may be more than a recording adds today.
	change := func(sum int64) int64 { return times * rows.Clamp(sum, rows.MaxSum) }
	var err error
	r.VisitSums(func(s *rows.Sum) {
		if err == nil {
			err = exec(0, ids[s.Group], r.Start.Truncate(time.Minute).Unix(), s.Cause, s.Bucket, change(s.N), change(s.NS))
		}
		if err == nil {
			err = exec(1, ids[""], r.Start.Truncate(day).Unix(), s.Cause, s.Bucket, change(s.N), change(s.NS))
		}
	}, func(problem string, n, requests, ns int64) {
		var has, pods int64 // recordings of the pod with the problem, on this day
		today := r.Start.Truncate(day).Unix()
		if err == nil {
			err = stmts[4].QueryRowContext(ctx, today, l.Service, l.Version, l.Environment, problem, l.Pod, times*n).Scan(&has)
		}
		if has-times*n == 0 || has == 0 { // the pod's first, or its last is taken away
			pods = times
		}
		if err == nil {
			at := stampOf(r.Start, id)
			err = exec(2, today, l.Service, l.Version, l.Environment, problem, times*n, change(requests), change(ns), at, at, pods)
		}
	})
	if err != nil {
		return err
	}
	if times < 0 {
		if _, err := tx.ExecContext(ctx, `DELETE FROM slow WHERE recording=?`, id); err != nil {
			return err
		}
		for _, table := range []string{"seen", "seen_pods"} {
			if _, err := tx.ExecContext(ctx, `DELETE FROM `+table+` WHERE n=0 AND day=? AND service=?`, r.Start.Truncate(day).Unix(), l.Service); err != nil {
				return err
			}
		}
		return nil
	}
	if err := describeSQLite(ctx, tx, c); err != nil {
		return err
	}
	for _, q := range r.SlowRequests {
		if err := exec(3, id, q.Request, l.Service, l.Version, l.Environment, l.Pod, l.Node, q.Group, q.Start.UnixNano(), q.NS, q.Cause, q.Site, q.Trace); err != nil {
			return err
		}
	}
	return nil
}

// describeSQLite keeps what the findings of a recording are.
func describeSQLite(ctx context.Context, tx *sql.Tx, c *counted) error {
	r, l := &c.Rows, &c.Labels
	for _, f := range r.Findings {
		if _, err := tx.ExecContext(ctx, `INSERT INTO problems VALUES (?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO UPDATE SET severity=excluded.severity, title=excluded.title, fix=excluded.fix,
			updated=excluded.updated WHERE excluded.updated>=updated`, f.Problem, l.Service, l.Environment, f.Group, f.Code, f.Cause, f.Site, f.Severity, f.Title, f.Fix, r.Start.UnixNano()); err != nil {
			return err
		}
	}
	return nil
}
