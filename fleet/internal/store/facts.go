package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/whylate/whylate/fleet/internal/rows"
)

// clickFacts are in ClickHouse.
type clickFacts struct {
	db       *sql.DB
	day      int64
	series   map[string]map[seriesKey]bool // by service
	problems map[string]map[string]bool    // by service
}

type seriesKey struct{ version, environment, pod, node, group string }

func (c *clickFacts) known(ctx context.Context, ids []string) (map[string]known, error) {
	which, args := among("id", ids)
	out := make(map[string]known)
	err := eachRow(ctx, c.db, func(scan func(...any) error) error {
		var id string
		var k known
		err := scan(&id, &k.state, &k.tries, &k.written)
		out[id] = k
		return err
	}, `SELECT id, state, tries, written FROM recordings_rows FINAL WHERE `+which, args...)
	return out, err
}

// rows of a worker that dies or is late are replaced by the next one's as a whole, or replace them: each recording counts as one explanation
// says, whatever another program finds in it.
func (c *clickFacts) rows(ctx context.Context, outcomes []*outcome) (err error) {
	defer func() {
		if err != nil {
			c.day = 0 // series that are not written are not known
		}
	}()
	var b block
	for _, e := range outcomes {
		if e.now == nil { // of poison, what an earlier program has counted stays
			continue
		}
		if e.folded, err = c.fold(ctx, e.now, &b); err != nil {
			return err
		}
		folded, err := c.foldFindings(ctx, e.now)
		if err != nil {
			return err
		}
		e.folded = e.folded || folded
		e.class = e.now.class()
		b.add(&e.Recording, e.now, e.written)
	}
	return b.insert(ctx, c.db)
}

func (c *clickFacts) states(ctx context.Context, flights []*flight) error {
	var list [][]any
	for _, f := range flights {
		r := &f.Recording
		list = append(list, []any{r.ID, r.Service, r.Version, r.Environment, r.Pod, r.Node, r.Received.UnixNano(), r.Bytes, r.State, int32(r.Tries), r.Error, int8(number(r.Raw)), f.class, f.written})
	}
	return insertRows(ctx, c.db, "recordings_rows (id, service, version, environment, pod, node, received, bytes, state, tries, error, raw, class, written)", list)
}

// fold bounds the series of a service. Several workers may together keep some more.
func (c *clickFacts) fold(ctx context.Context, now *counted, b *block) (bool, error) {
	day := time.Now().Unix() / 86400
	if c.day != day {
		c.day, c.series, c.problems = day, make(map[string]map[seriesKey]bool), make(map[string]map[string]bool)
	}
	service, read := now.Service, false
	if c.series[service] == nil {
		c.series[service] = make(map[seriesKey]bool)
	}
	set := c.series[service]
	key := func(l *rows.Labels, group string) seriesKey {
		return seriesKey{l.Version, l.Environment, l.Pod, l.Node, group}
	}
	find := func(l *rows.Labels, group string) (id int64, err error) {
		if k := key(l, group); !set[k] && !read && len(set) < MaxSeries {
			read = true // what other workers have added
			err = eachRow(ctx, c.db, func(scan func(...any) error) error {
				var k seriesKey
				err := scan(&k.version, &k.environment, &k.pod, &k.node, &k.group)
				set[k] = true
				return err
			}, `SELECT version, environment, pod, node, grp FROM series_rows FINAL WHERE service=?`, service)
		}
		return int64(number(set[key(l, group)])), err
	}
	insert := func(l *rows.Labels, group string) (int64, error) {
		if k := key(l, group); !set[k] {
			set[k] = true
			b.series = append(b.series, []any{service, k.version, k.environment, k.pod, k.node, group, day * 86400})
		}
		return 1, nil
	}
	_, folded, err := fold(now, len(set), find, insert, func(environment string) (bool, error) {
		for k := range set {
			if k.environment == environment {
				return true, nil
			}
		}
		return false, nil
	})
	return folded, err
}

// foldFindings bounds the findings of a service. Several workers may together keep some more.
func (c *clickFacts) foldFindings(ctx context.Context, now *counted) (bool, error) {
	set := c.problems[now.Service]
	if set == nil {
		set = make(map[string]bool)
		c.problems[now.Service] = set
	}
	read := false
	return foldFindings(now, func(problem string) (bool, error) {
		if !set[problem] && !read && len(set) < MaxProblems {
			read = true // what other workers have added
			if err := eachRow(ctx, c.db, func(scan func(...any) error) error {
				var problem string
				err := scan(&problem)
				set[problem] = true
				return err
			}, `SELECT problem FROM problems_rows FINAL WHERE service=?`, now.Service); err != nil {
				return false, err
			}
		}
		if len(set) < MaxProblems {
			set[problem] = true
		}
		return set[problem], nil
	}, func() (int, error) { return MaxProblems, nil }) // known counts
}
