package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/whylate/whylate/fleet/internal/rows"
)

// MaxSeries bounds the combinations of version, environment, pod, node and group that are kept of a service. Further ones count
// as (other).
const MaxSeries = 20_000

// MaxProblems bounds the findings that are kept of a service. Further ones count as (other).
const MaxProblems = 1000

// spareSeries is the number of series beyond MaxSeries that a service may use for (other) in the environments that it already
// has. So new pods and versions still count in their environment.
const spareSeries = 1000

// foldSeriesSQLite is foldSeries with the series in SQLite: it returns the ids of the series of all groups, and under the name
// "" that of the days of the service. folded reports that new labels or groups were changed to (other), because the service has
// too many series.
func foldSeriesSQLite(ctx context.Context, tx *sql.Tx, c *contribution) (ids map[string]int64, folded bool, err error) {
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
	return foldSeries(c, n, find, insert, func(environment string) (hasEnvironment bool, err error) {
		err = tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM series WHERE service=? AND environment=?)`, c.Service, environment).Scan(&hasEnvironment)
		return hasEnvironment, err
	})
}

// foldFindings replaces findings in c that isKnown reports to be new to the service by (other) if the service has too many, and reports whether it
// did. It calls countProblems at most once.
func foldFindings(c *contribution, isKnown func(problem string) (bool, error), countProblems func() (int, error)) (folded bool, err error) {
	if len(c.Rows.Findings) == 0 {
		return false, nil
	}
	n, err := countProblems()
	folded = c.Rows.FoldFindings(c.Service, func(f *rows.Finding) bool {
		if err != nil {
			return true
		}
		var isKept bool
		if isKept, err = isKnown(f.Problem); !isKept && n < MaxProblems {
			n, isKept = n+1, true
		}
		return isKept || err != nil
	})
	return folded, err
}

// foldSeries returns the ids of the series of all groups, and under the name "" the id of the series of the service's days, which has no pod and
// node. find returns the id of a series, 0 if it does not exist, and insert creates it. If the service has too many series (seriesCount), it changes
// labels and groups in c that are new to (other), and folded is true. An environment that the service already has stays.
func foldSeries(c *contribution, seriesCount int, find, insert func(labels *rows.Labels, group string) (id int64, err error), hasEnvironment func(string) (bool, error)) (ids map[string]int64, folded bool, err error) {
	labels := &c.Labels
	// The group "" marks the series of the recording's pod. It has no points.
	if podSeries, err := find(labels, ""); err != nil {
		return nil, false, err
	} else if podSeries == 0 {
		if seriesCount >= MaxSeries {
			labels.Version, labels.Pod, labels.Node, folded = rows.OtherLabel, rows.OtherLabel, rows.OtherLabel, true
			environmentExists, err := hasEnvironment(labels.Environment)
			if err != nil {
				return nil, false, err
			}
			if !environmentExists || seriesCount >= MaxSeries+spareSeries {
				labels.Environment = rows.OtherLabel
				c.Rows.SetProblemIDs(*labels)
			}
		}
		if _, err := insert(labels, ""); err != nil {
			return nil, false, err
		}
	}
	ids = make(map[string]int64)
	foldedNames := make(map[string]string)
	for i := range c.Rows.Sums {
		group := &c.Rows.Sums[i].Group
		foldedName, ok := foldedNames[*group]
		if !ok {
			foldedName = *group
			id, err := find(labels, foldedName)
			if id == 0 && err == nil {
				if seriesCount+len(ids) >= MaxSeries {
					foldedName, folded = rows.OtherLabel, true
				}
				id, err = insert(labels, foldedName)
			}
			if err != nil {
				return nil, false, err
			}
			foldedNames[*group], ids[foldedName] = foldedName, id
		}
		*group = foldedName
	}
	ids[""], err = insert(&rows.Labels{Service: labels.Service, Version: labels.Version, Environment: labels.Environment}, "")
	return ids, folded, err
}
