package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/whylate/whylate/fleet/internal/rows"
)

// clickhouseFacts is the factStore in ClickHouse. It caches the known series and problems of each service for a day.
type clickhouseFacts struct {
	db       *sql.DB
	day      int64
	series   map[string]map[seriesKey]bool // by service
	problems map[string]map[string]bool    // by service
}

type seriesKey struct{ version, environment, pod, node, group string }

// recordingStates returns the states of recordings by id, without those that have none. There must be at least one id.
func (c *clickhouseFacts) recordingStates(ctx context.Context, ids []string) (map[string]recordingState, error) {
	condition, args := inCondition("id", ids)
	out := make(map[string]recordingState)
	err := eachRow(ctx, c.db, func(scan func(...any) error) error {
		var id string
		var k recordingState
		err := scan(&id, &k.state, &k.tries, &k.written)
		out[id] = k
		return err
	}, `SELECT id, state, tries, written FROM recordings_rows FINAL WHERE `+condition, args...)
	return out, err
}

// writeRows writes all rows of a recording as one row of ClickHouse, which replaces an earlier one as a whole. So if two workers
// explain a recording, exactly one explanation counts, even if different versions of the program found different things.
func (c *clickhouseFacts) writeRows(ctx context.Context, outcomes []*outcome) (err error) {
	defer func() {
		if err != nil {
			c.day = 0 // discard the cache: it has series that were not written
		}
	}()
	var b block
	for _, outcome := range outcomes {
		if outcome.contribution == nil { // poison: rows of an earlier explanation stay
			continue
		}
		if outcome.folded, err = c.foldSeries(ctx, outcome.contribution, &b); err != nil {
			return err
		}
		folded, err := c.foldFindings(ctx, outcome.contribution)
		if err != nil {
			return err
		}
		outcome.folded = outcome.folded || folded
		outcome.retentionClass = outcome.contribution.retentionClass()
		b.addRecording(&outcome.Recording, outcome.contribution, outcome.written)
	}
	return b.insert(ctx, c.db)
}

// writeStates writes the entries of recordings, each as a row that replaces an older one.
func (c *clickhouseFacts) writeStates(ctx context.Context, flights []*flight) error {
	var list [][]any
	for _, f := range flights {
		r := &f.Recording
		list = append(list, []any{r.ID, r.Service, r.Version, r.Environment, r.Pod, r.Node, r.Received.UnixNano(), r.Bytes, r.State, int32(r.Tries), r.Error, int8(boolToInt(r.Raw)), f.retentionClass, f.written})
	}
	return insertRows(ctx, c.db, "recordings_rows (id, service, version, environment, pod, node, received, bytes, state, tries, error, raw, class, written)", list)
}

// foldSeries changes labels and groups in the contribution to (other) if the service has too many series, and reports whether it did. New series are
// added to b. Concurrent workers may exceed the bound a little.
func (c *clickhouseFacts) foldSeries(ctx context.Context, contribution *contribution, b *block) (bool, error) {
	day := time.Now().Unix() / 86400
	if c.day != day {
		c.day, c.series, c.problems = day, make(map[string]map[seriesKey]bool), make(map[string]map[string]bool)
	}
	service, wasRead := contribution.Service, false
	if c.series[service] == nil {
		c.series[service] = make(map[seriesKey]bool)
	}
	knownSeries := c.series[service]
	key := func(l *rows.Labels, group string) seriesKey {
		return seriesKey{l.Version, l.Environment, l.Pod, l.Node, group}
	}
	find := func(l *rows.Labels, group string) (id int64, err error) {
		if k := key(l, group); !knownSeries[k] && !wasRead && len(knownSeries) < MaxSeries {
			wasRead = true // other workers may have added some
			err = eachRow(ctx, c.db, func(scan func(...any) error) error {
				var k seriesKey
				err := scan(&k.version, &k.environment, &k.pod, &k.node, &k.group)
				knownSeries[k] = true
				return err
			}, `SELECT version, environment, pod, node, grp FROM series_rows FINAL WHERE service=?`, service)
		}
		return int64(boolToInt(knownSeries[key(l, group)])), err
	}
	insert := func(l *rows.Labels, group string) (int64, error) {
		if k := key(l, group); !knownSeries[k] {
			knownSeries[k] = true
			b.series = append(b.series, []any{service, k.version, k.environment, k.pod, k.node, group, day * 86400})
		}
		return 1, nil
	}
	_, folded, err := foldSeries(contribution, len(knownSeries), find, insert, func(environment string) (bool, error) {
		for k := range knownSeries {
			if k.environment == environment {
				return true, nil
			}
		}
		return false, nil
	})
	return folded, err
}

// foldFindings changes findings in the contribution to (other) if the service has too many, and reports whether it did. Concurrent workers may exceed
// the bound a little.
func (c *clickhouseFacts) foldFindings(ctx context.Context, contribution *contribution) (bool, error) {
	knownProblems := c.problems[contribution.Service]
	if knownProblems == nil {
		knownProblems = make(map[string]bool)
		c.problems[contribution.Service] = knownProblems
	}
	wasRead := false
	return foldFindings(contribution, func(problem string) (bool, error) {
		if !knownProblems[problem] && !wasRead && len(knownProblems) < MaxProblems {
			wasRead = true // other workers may have added some
			if err := eachRow(ctx, c.db, func(scan func(...any) error) error {
				var problem string
				err := scan(&problem)
				knownProblems[problem] = true
				return err
			}, `SELECT problem FROM problems_rows FINAL WHERE service=?`, contribution.Service); err != nil {
				return false, err
			}
		}
		if len(knownProblems) < MaxProblems {
			knownProblems[problem] = true
		}
		return knownProblems[problem], nil
	}, func() (int, error) { return MaxProblems, nil }) // isKnown itself adds problems up to the bound
}
