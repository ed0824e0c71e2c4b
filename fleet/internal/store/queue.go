package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/whylate/whylate/fleet/internal/rows"
)

// What becomes of a recording.
const (
	Waiting = "waiting"
	Working = "working"
	Done    = "done"
	Poison  = "poison"
)

// A Recording is what is known of one.
type Recording struct {
	ID string `json:"id"`
	rows.Labels
	Received time.Time `json:"received"`
	Bytes    int64     `json:"bytes"`
	State    string    `json:"state" enum:"waiting,working,done,poison"`
	Tries    int       `json:"tries"`
	Error    string    `json:"error"`
	Raw      bool      `json:"raw" doc:"whether the file is still kept"`
}

const recordingColumns = `id, service, version, environment, pod, node, received, bytes, state, tries, error, raw`

func scanRecording(scan func(...any) error) (r Recording, err error) {
	var received int64
	err = scan(&r.ID, &r.Service, &r.Version, &r.Environment, &r.Pod, &r.Node, &received, &r.Bytes, &r.State, &r.Tries, &r.Error, &r.Raw)
	r.Received = time.Unix(0, received)
	return r, err
}

func (s lite) Add(ctx context.Context, r Recording) error {
	_, err := s.w.ExecContext(ctx, `INSERT INTO recordings (id, service, version, environment, pod, node, received, bytes, state, tries, lease, error, raw, class)
		VALUES (?,?,?,?,?,?,?,?,'waiting',0,0,'',1,'') ON CONFLICT (id) DO NOTHING`,
		r.ID, r.Service, r.Version, r.Environment, r.Pod, r.Node, r.Received.UnixNano(), r.Bytes)
	return err
}

func (s lite) Known(ctx context.Context, id string) (bool, error) {
	r, err := s.Recording(ctx, id)
	return r != nil, err
}

func (s lite) Recording(ctx context.Context, id string) (*Recording, error) {
	return one(scanRecording(s.r.QueryRowContext(ctx, `SELECT `+recordingColumns+` FROM recordings WHERE id=?`, id).Scan))
}

func one(r Recording, err error) (*Recording, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return &r, err
}

func (s lite) Newest(ctx context.Context, service, version, environment string, most int) ([]Recording, error) {
	return collect(ctx, s.r, scanRecording, `SELECT `+recordingColumns+` FROM recordings
		WHERE service=? AND state='done' AND version=? AND (?='' OR environment=?) ORDER BY received DESC LIMIT ?`, service, version, environment, environment, most)
}

func (s lite) Poisoned(ctx context.Context, most int) ([]Recording, error) {
	return collect(ctx, s.r, scanRecording, `SELECT `+recordingColumns+` FROM recordings WHERE state='poison' ORDER BY received DESC LIMIT ?`, most)
}

func (s lite) Queued(ctx context.Context, service string) (n int, err error) {
	err = s.r.QueryRowContext(ctx, `SELECT count(*) FROM recordings WHERE service=? AND state IN ('waiting','working')`, service).Scan(&n)
	return n, err
}

func (s lite) Claim(ctx context.Context, now time.Time, lease time.Duration) (*Recording, error) {
	// A lease that ends later than any lease that begins now is of a clock that was ahead: its worker, if there is one, renews it. Twice
	// the lease, since another worker may have read its clock a little later and written first.
	ended, latest := now.UnixNano(), now.Add(2*lease).UnixNano()
	var waits bool // asked of a reader: workers that have nothing to do must not hold up the writer
	err := s.r.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM recordings WHERE state IN ('waiting','working') AND (state='waiting' OR lease<? OR lease>?))`, ended, latest).Scan(&waits)
	if !waits || err != nil {
		return nil, err
	}
	return one(scanRecording(s.w.QueryRowContext(ctx, `UPDATE recordings SET state='working', tries=tries+1, lease=? WHERE id=(
		SELECT id FROM recordings WHERE state IN ('waiting','working') AND (state='waiting' OR lease<? OR lease>?) ORDER BY received LIMIT 1)
		RETURNING `+recordingColumns, now.Add(lease).UnixNano(), ended, latest).Scan))
}

func (s lite) Depth() int { return 1 }

func (s lite) Renew(ctx context.Context, r *Recording, until time.Time) (bool, error) {
	res, err := s.w.ExecContext(ctx, `UPDATE recordings SET lease=? WHERE id=? AND tries=? AND state='working'`, until.UnixNano(), r.ID, r.Tries)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

func (s lite) Release(ctx context.Context, r *Recording) error {
	_, err := s.w.ExecContext(ctx, `UPDATE recordings SET state='waiting', tries=tries-1 WHERE id=? AND tries=? AND state='working'`, r.ID, r.Tries)
	return err
}

func (s lite) Fail(ctx context.Context, r *Recording, poison bool, why string) error {
	state := Waiting
	if poison {
		state = Poison
	}
	_, err := s.w.ExecContext(ctx, `UPDATE recordings SET state=?, error=? WHERE id=? AND tries=? AND state='working'`, state, why[:min(len(why), 1000)], r.ID, r.Tries)
	return err
}

func (s lite) Again(ctx context.Context, service string, from time.Time) (int64, error) {
	res, err := s.w.ExecContext(ctx, `UPDATE recordings SET state='waiting', tries=0 WHERE raw=1 AND state IN ('done','poison') AND (?='' OR service=?) AND received>=?`,
		service, service, from.UnixNano())
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (s lite) States(ctx context.Context) (map[string]int64, error) {
	return s.count(ctx, `SELECT state, n FROM states WHERE n>0`)
}

// count asks for numbers of recordings by state.
func (s lite) count(ctx context.Context, query string) (map[string]int64, error) {
	out := make(map[string]int64)
	err := eachRow(ctx, s.r, func(scan func(...any) error) error {
		var state string
		var n int64
		err := scan(&state, &n)
		out[state] = n
		return err
	}, query)
	return out, err
}
