// Package store keeps what a fleet knows: the queue of recordings, and of each explained one the sums that its report holds.
package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"time"

	_ "modernc.org/sqlite" // the engine

	"github.com/whylate/whylate/report"
)

// What becomes of a recording.
const (
	Waiting = "waiting"
	Working = "working"
	Done    = "done"
	Poison  = "poison"
)

const schema = `
CREATE TABLE IF NOT EXISTS recordings (
	id VARCHAR(64) NOT NULL, service VARCHAR(128) NOT NULL, version VARCHAR(128) NOT NULL, environment VARCHAR(128) NOT NULL,
	pod VARCHAR(256) NOT NULL, node VARCHAR(256) NOT NULL, received BIGINT NOT NULL, bytes BIGINT NOT NULL,
	state VARCHAR(16) NOT NULL, tries INTEGER NOT NULL, lease BIGINT NOT NULL, error VARCHAR(1024) NOT NULL, PRIMARY KEY (id));
CREATE INDEX IF NOT EXISTS recordings_state ON recordings (state, received);
CREATE TABLE IF NOT EXISTS sums (
	recording VARCHAR(64) NOT NULL, grp VARCHAR(256) NOT NULL, minute BIGINT NOT NULL, cause VARCHAR(64) NOT NULL,
	bucket BIGINT NOT NULL, n BIGINT NOT NULL, ns BIGINT NOT NULL, PRIMARY KEY (recording, grp, cause, bucket));
CREATE TABLE IF NOT EXISTS findings (
	recording VARCHAR(64) NOT NULL, seq INTEGER NOT NULL, grp VARCHAR(256) NOT NULL, code VARCHAR(64) NOT NULL, cause VARCHAR(64) NOT NULL,
	severity VARCHAR(16) NOT NULL, title VARCHAR(1024) NOT NULL, site VARCHAR(1024) NOT NULL, fix VARCHAR(2048) NOT NULL,
	win BIGINT NOT NULL, PRIMARY KEY (recording, seq));
CREATE TABLE IF NOT EXISTS tokens (hash VARCHAR(64) NOT NULL, service VARCHAR(128) NOT NULL, expires BIGINT NOT NULL, PRIMARY KEY (hash));`

// A Store is a database. Its methods may be called at the same time.
type Store struct{ db *sql.DB }

// Open opens the database in a file, which is made.
func Open(file string) (*Store, error) {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	if _, err := db.Exec(schema); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("opening the store %s: %w", file, err)
	}
	return &Store{db}, nil
}

// Close closes the database.
func (s *Store) Close() error { return s.db.Close() }

// A Recording is what is known of one before it is explained.
type Recording struct {
	ID, Service, Version, Environment, Pod, Node string
	Received                                     time.Time
	Bytes                                        int64
	State, Error                                 string
	Tries                                        int
}

// Add puts a recording into the queue. One that is known already stays as it is.
func (s *Store) Add(ctx context.Context, r Recording) error {
	_, err := s.db.ExecContext(ctx, `INSERT INTO recordings VALUES (?,?,?,?,?,?,?,?,'waiting',0,0,'') ON CONFLICT (id) DO NOTHING`,
		r.ID, r.Service, r.Version, r.Environment, r.Pod, r.Node, r.Received.UnixNano(), r.Bytes)
	return err
}

// Queued is how many recordings of a service still are to be explained.
func (s *Store) Queued(ctx context.Context, service string) (n int, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT count(*) FROM recordings WHERE service=? AND state IN ('waiting','working')`, service).Scan(&n)
	return n, err
}

// Claim takes the oldest recording that waits, or whose worker's lease has ended; nil if there is none.
func (s *Store) Claim(ctx context.Context, now time.Time, lease time.Duration) (*Recording, error) {
	r := new(Recording)
	err := s.db.QueryRowContext(ctx, `UPDATE recordings SET state='working', tries=tries+1, lease=? WHERE id=(
		SELECT id FROM recordings WHERE state='waiting' OR state='working' AND lease<? ORDER BY received LIMIT 1) RETURNING id, service, tries, bytes`,
		now.Add(lease).UnixNano(), now.UnixNano()).Scan(&r.ID, &r.Service, &r.Tries, &r.Bytes)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return r, err
}

// Requeue gives back what a process that was killed had claimed. It is for the start of the only one that works on this store;
// if there is another, it explains the same again, which counts once.
func (s *Store) Requeue(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, `UPDATE recordings SET state='waiting' WHERE state='working'`)
	return err
}

// Fail says that explaining came to nothing: the recording is tried again, or, as poison, not.
func (s *Store) Fail(ctx context.Context, id string, poison bool, why string) error {
	state := Waiting
	if poison {
		state = Poison
	}
	_, err := s.db.ExecContext(ctx, `UPDATE recordings SET state=?, error=? WHERE id=? AND state='working'`, state, why[:min(len(why), 1000)], id)
	return err
}

// Finish writes the rows of a recording's report in place of those it had, and takes it off the queue, all in one transaction:
// a worker that is killed before leaves nothing, and one that comes late writes the same again.
func (s *Store) Finish(ctx context.Context, id string, at time.Time, rep *report.Report) (err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = tx.Rollback()
		}
	}()
	for _, table := range []string{"sums", "findings"} {
		if _, err = tx.ExecContext(ctx, "DELETE FROM "+table+" WHERE recording=?", id); err != nil {
			return err
		}
	}
	if rep.Input.Start != nil {
		at = *rep.Input.Start
	}
	sum := func(group, cause string, bucket, n, ns int64) {
		if err == nil {
			_, err = tx.ExecContext(ctx, `INSERT INTO sums VALUES (?,?,?,?,?,?,?) ON CONFLICT (recording, grp, cause, bucket) DO UPDATE SET n=n+excluded.n, ns=ns+excluded.ns`,
				id, group, at.Truncate(time.Minute).Unix(), cause, bucket, n, ns)
		}
	}
	for _, g := range rep.Groups {
		for i, b := range g.Histogram {
			sum(g.Name, "", b[0], b[1], 0)
			for cause, ns := range g.HistogramCauses {
				if i < len(ns) && ns[i] != 0 {
					sum(g.Name, string(cause), b[0], 0, ns[i])
				}
			}
		}
	}
	for i, f := range rep.Findings {
		if err != nil {
			return err
		}
		name, count := f.Group, 0
		if g := rep.Group(f.Group); g != nil {
			name, count = g.Name, g.Count
		}
		site := ""
		if f.Site != nil {
			site = fmt.Sprintf("%s (%s:%d)", f.Site.Func, path.Base(f.Site.File), f.Site.Line) // builds differ in the rest
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO findings VALUES (?,?,?,?,?,?,?,?,?,?)`, id, i, name, string(f.Code), string(f.Cause), string(f.Severity), f.Title, site, f.Fix, win(f.Predicted, count))
	}
	if err != nil {
		return err
	}
	if _, err = tx.ExecContext(ctx, `UPDATE recordings SET state='done', error='' WHERE id=?`, id); err != nil {
		return err
	}
	return tx.Commit()
}

// win is the time that a fix would win for the requests of a recording: each wins what the median would, and one in a hundred
// what the 99th percentile would, where that is more. It is too little for faults that meet a tenth of the requests.
func win(p *report.Predicted, count int) int64 {
	if p == nil {
		return 0
	}
	var mid, tail int64
	if p.WasP50NS != nil {
		mid = max(0, *p.WasP50NS-p.P50NS.Est)
	}
	if p.WasP99NS != nil {
		tail = max(0, *p.WasP99NS-p.P99NS.Est)
	}
	return int64(count)*mid + int64(count)*max(0, tail-mid)/100
}

// AddToken lets whoever has the token send recordings of a service. Only its hash is kept.
func (s *Store) AddToken(ctx context.Context, token, service string, expires time.Time) error {
	_, err := s.db.ExecContext(ctx, `INSERT INTO tokens VALUES (?,?,?)`, hash(token), service, expires.UnixNano())
	return err
}

// Revoke ends all tokens of a service, and says how many there were.
func (s *Store) Revoke(ctx context.Context, service string) (int64, error) {
	res, err := s.db.ExecContext(ctx, `DELETE FROM tokens WHERE service=?`, service)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// TokenService returns the service that a token is of, "" if it is none or has expired.
func (s *Store) TokenService(ctx context.Context, token string, now time.Time) (service string, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT service FROM tokens WHERE hash=? AND expires>?`, hash(token), now.UnixNano()).Scan(&service)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return service, err
}

func hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// A Ranked is a finding over all its recordings. Recording is the newest one.
type Ranked struct {
	Service     string    `json:"service"`
	Group       string    `json:"group"`
	Code        string    `json:"code"`
	Cause       string    `json:"cause"`
	Title       string    `json:"title"`
	Site        string    `json:"site"`
	Fix         string    `json:"fix"`
	First       time.Time `json:"first"`
	Last        time.Time `json:"last"`
	FirstIn     string    `json:"first_in"` // version
	LastIn      string    `json:"last_in"`
	Recordings  int       `json:"recordings"`
	WinNS       int64     `json:"win_ns"`
	WinEachRead int64     `json:"win_ns_a_recording"`
	Recording   string    `json:"recording"`
}

// Findings returns findings of all services or of one, those first whose fix would win most of a recording: more recordings
// of one do not make it worse, and a new one is not behind for being new.
func (s *Store) Findings(ctx context.Context, service string) (out []Ranked, err error) {
	rows, err := s.db.QueryContext(ctx, `
		SELECT a.service, a.grp, a.code, a.cause, a.site, a.first, a.last, a.n, a.win, r.id, r.version, f.title, f.fix,
			(SELECT version FROM recordings o WHERE o.id=a.oldest)
		FROM (SELECT r.service, f.grp, f.code, f.cause, f.site, min(r.received) first, max(r.received) last, count(DISTINCT r.id) n, sum(f.win) win,
				substr(min(printf('%020d', r.received)||r.id), 21) oldest, substr(max(printf('%020d', r.received)||r.id), 21) newest
			FROM findings f JOIN recordings r ON r.id=f.recording WHERE f.severity<>'info' AND (?='' OR r.service=?)
			GROUP BY r.service, f.grp, f.code, f.cause, f.site) a
		JOIN recordings r ON r.id=a.newest
		JOIN findings f ON f.recording=a.newest AND f.grp=a.grp AND f.code=a.code AND f.cause=a.cause AND f.site=a.site
		GROUP BY a.service, a.grp, a.code, a.cause, a.site ORDER BY a.win/a.n DESC, a.last DESC LIMIT 200`, service, service)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r Ranked
		var first, last int64
		if err := rows.Scan(&r.Service, &r.Group, &r.Code, &r.Cause, &r.Site, &first, &last, &r.Recordings, &r.WinNS, &r.Recording, &r.LastIn, &r.Title, &r.Fix, &r.FirstIn); err != nil {
			return nil, err
		}
		r.First, r.Last = time.Unix(0, first), time.Unix(0, last)
		r.WinEachRead = r.WinNS / int64(max(1, r.Recordings))
		out = append(out, r)
	}
	return out, rows.Err()
}

// A Version is a version of a service and the quantiles of its requests, as upper bounds of latency buckets.
type Version struct {
	Service  string    `json:"service"`
	Version  string    `json:"version"`
	First    time.Time `json:"first"`
	Requests int64     `json:"requests"`
	P50NS    int64     `json:"p50_ns"`
	P99NS    int64     `json:"p99_ns"`
}

// Versions returns the versions of all services or of one, the newest of each first.
func (s *Store) Versions(ctx context.Context, service string) (out []Version, err error) {
	rows, err := s.db.QueryContext(ctx, `
		WITH b AS (SELECT r.service, r.version, s.bucket, sum(s.n) n, min(r.received) first FROM sums s JOIN recordings r ON r.id=s.recording
				WHERE s.cause='' AND (?='' OR r.service=?) GROUP BY r.service, r.version, s.bucket),
			c AS (SELECT service, version, bucket, first, sum(n) OVER (PARTITION BY service, version ORDER BY bucket) upto, sum(n) OVER (PARTITION BY service, version) total FROM b)
		SELECT service, version, min(first), max(total), min(CASE WHEN upto*2>=total THEN bucket END), min(CASE WHEN upto*100>=total*99 THEN bucket END)
		FROM c GROUP BY service, version ORDER BY service, min(first) DESC LIMIT 1000`, service, service)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var v Version
		var first int64
		if err := rows.Scan(&v.Service, &v.Version, &first, &v.Requests, &v.P50NS, &v.P99NS); err != nil {
			return nil, err
		}
		v.First = time.Unix(0, first)
		out = append(out, v)
	}
	return out, rows.Err()
}

// States counts recordings by what became of them.
func (s *Store) States(ctx context.Context) (map[string]int64, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT state, count(*) FROM recordings GROUP BY state`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := make(map[string]int64)
	for rows.Next() {
		var state string
		var n int64
		if err := rows.Scan(&state, &n); err != nil {
			return nil, err
		}
		out[state] = n
	}
	return out, rows.Err()
}
