package store

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/whylate/whylate/fleet/internal/rows"
)

// clickFacts are in ClickHouse.
type clickFacts struct {
	db     *sql.DB
	day    int64
	series map[string]map[seriesKey]bool // by service
}

type seriesKey struct{ version, environment, pod, node, group string }

func (c *clickFacts) known(ctx context.Context, ids []string) (map[string]known, error) {
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}
	out := make(map[string]known)
	_, err := collect(ctx, c.db, func(scan func(...any) error) (_ struct{}, err error) {
		var id, blob string
		var k known
		if err = scan(&id, &k.state, &k.tries, &k.written, &blob); err == nil {
			k.counted, err = unpack([]byte(blob))
		}
		out[id] = k
		return struct{}{}, err
	}, `SELECT id, state, tries, written, counted FROM recordings_rows FINAL WHERE id IN (?`+strings.Repeat(",?", len(ids)-1)+`)`, args...)
	return out, err
}

// after is a time of writing that replaces what was written before, also by a machine whose clock was ahead.
func (f *flight) after() int64 { return max(time.Now().UnixNano(), f.before.written+1) }

func (c *clickFacts) claim(ctx context.Context, flights []*flight) error {
	return writeRecordings(ctx, c.db, flights, func(f *flight) (string, int64, *counted) {
		f.before.written = f.after()
		return Working, f.before.written, f.before.counted
	})
}

// finish writes what will be counted before it is: whoever finds that a worker died between takes it back first. So each recording counts
// once, however often it is tried and whatever a newer program finds in it.
func (c *clickFacts) finish(ctx context.Context, outcomes []*outcome) (err error) {
	defer func() {
		if err != nil {
			c.day = 0 // series that are not written are not known
		}
	}()
	var old, new block
	var done []*flight
	now := make(map[*flight]*counted)
	for _, e := range outcomes {
		f := e.flight
		f.before.written = f.after()
		done = append(done, f)
		now[f] = f.before.counted // of poison, what an earlier try has counted stays
		if e.now == nil {
			continue
		}
		if f.before.counted != nil {
			old.add(f.ID, f.before.counted, 0, f.before.written)
		}
		now[f] = e.now
		if e.folded, err = c.fold(ctx, e.now, &new); err != nil {
			return err
		}
		new.add(f.ID, e.now, 1, f.before.written+1)
	}
	if err := old.insert(ctx, c.db); err != nil {
		return err
	}
	if err := writeRecordings(ctx, c.db, done, func(f *flight) (string, int64, *counted) { return Working, f.before.written + 1, now[f] }); err != nil {
		return err
	}
	for _, e := range outcomes { // from here on, another try takes these back
		if e.now != nil {
			e.before.counted = e.now
		}
	}
	if err := new.insert(ctx, c.db); err != nil {
		return err
	}
	return writeRecordings(ctx, c.db, done, func(f *flight) (string, int64, *counted) { return f.State, f.before.written + 2, now[f] })
}

// fold bounds the series of a service. Several workers may together keep some more.
func (c *clickFacts) fold(ctx context.Context, now *counted, b *block) (bool, error) {
	day := time.Now().Unix() / 86400
	if c.day != day {
		c.day, c.series = day, make(map[string]map[seriesKey]bool)
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
			_, err = collect(ctx, c.db, func(scan func(...any) error) (_ struct{}, err error) {
				var k seriesKey
				err = scan(&k.version, &k.environment, &k.pod, &k.node, &k.group)
				set[k] = true
				return struct{}{}, err
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
	_, folded, err := fold(now, len(set), find, insert)
	return folded, err
}

// writeRecordings writes what is known of recordings, each with its state, its time of writing and what it counts.
func writeRecordings(ctx context.Context, db *sql.DB, flights []*flight, of func(*flight) (state string, written int64, c *counted)) error {
	var list [][]any
	for _, f := range flights {
		state, written, c := of(f)
		blob, class := []byte(nil), ""
		if c != nil {
			var err error
			if blob, err = pack(c); err != nil {
				return err
			}
			class = c.class()
		}
		r := &f.Recording
		list = append(list, []any{r.ID, r.Service, r.Version, r.Environment, r.Pod, r.Node, r.Received.UnixNano(), r.Bytes, state, int32(r.Tries), r.Error, int8(number(r.Raw)), class, string(blob), written})
	}
	return insertRows(ctx, db, "recordings_rows (id, service, version, environment, pod, node, received, bytes, state, tries, error, raw, class, counted, written)", list)
}
