package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/whylate/whylate/fleet/internal/rows"
)

// States of a recording.
const (
	Waiting = "waiting"
	Working = "working"
	Done    = "done"
	Poison  = "poison"
)

// A Recording is an entry of the queue, which stays after the recording is explained.
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

// scanRecording returns the recording in a row with the columns recordingColumns, which scan reads.
func scanRecording(scan func(...any) error) (r Recording, err error) {
	var received int64
	err = scan(&r.ID, &r.Service, &r.Version, &r.Environment, &r.Pod, &r.Node, &received, &r.Bytes, &r.State, &r.Tries, &r.Error, &r.Raw)
	r.Received = time.Unix(0, received)
	return r, err
}

// AddRecording adds a recording to the queue; one whose id is known changes nothing.
func (s sqliteLedger) AddRecording(ctx context.Context, r Recording) error {
	_, err := s.writer.ExecContext(ctx, `INSERT INTO recordings (id, service, version, environment, pod, node, received, bytes, state, tries, lease, error, raw, class)
		VALUES (?,?,?,?,?,?,?,?,'waiting',0,0,'',1,'') ON CONFLICT (id) DO NOTHING`,
		r.ID, r.Service, r.Version, r.Environment, r.Pod, r.Node, r.Received.UnixNano(), r.Bytes)
	return err
}

func (s sqliteLedger) IsKnown(ctx context.Context, id string) (bool, error) {
	r, err := s.Recording(ctx, id)
	return r != nil, err
}

func (s sqliteLedger) Recording(ctx context.Context, id string) (*Recording, error) {
	return optionalRecording(scanRecording(s.reader.QueryRowContext(ctx, `SELECT `+recordingColumns+` FROM recordings WHERE id=?`, id).Scan))
}

// optionalRecording returns the recording that a query returned; nil, without an error, if the query had no row.
func optionalRecording(r Recording, err error) (*Recording, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return &r, err
}

// NewestRecordings returns the last received of a service's explained recordings of a version, in an environment ("" for any).
func (s sqliteLedger) NewestRecordings(ctx context.Context, service, version, environment string, limit int) ([]Recording, error) {
	return queryAll(ctx, s.reader, scanRecording, `SELECT `+recordingColumns+` FROM recordings
		WHERE service=? AND state='done' AND version=? AND (?='' OR environment=?) ORDER BY received DESC LIMIT ?`, service, version, environment, environment, limit)
}

func (s sqliteLedger) PoisonRecordings(ctx context.Context, limit int) ([]Recording, error) {
	return queryAll(ctx, s.reader, scanRecording, `SELECT `+recordingColumns+` FROM recordings WHERE state='poison' ORDER BY received DESC LIMIT ?`, limit)
}

// CountQueued returns the number of recordings of a service that wait or are being explained.
func (s sqliteLedger) CountQueued(ctx context.Context, service string) (n int, err error) {
	err = s.reader.QueryRowContext(ctx, `SELECT count(*) FROM recordings WHERE service=? AND state IN ('waiting','working')`, service).Scan(&n)
	return n, err
}

// Claim returns the oldest recording that waits or whose lease has ended, and gives it a new lease from now on; nil if there is
// none.
func (s sqliteLedger) Claim(ctx context.Context, now time.Time, lease time.Duration) (*Recording, error) {
	// A lease that ends later than any lease that begins now was written by a clock that was ahead, so it counts as ended. If
	// its worker lives, it renews the lease. The limit is twice the lease, because another worker may have read its clock a
	// little later and written first.
	ended, latest := now.UnixNano(), now.Add(2*lease).UnixNano()
	var isWaiting bool // read first: idle workers must not block the writer
	err := s.reader.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM recordings WHERE state IN ('waiting','working') AND (state='waiting' OR lease<? OR lease>?))`, ended, latest).Scan(&isWaiting)
	if !isWaiting || err != nil {
		return nil, err
	}
	return optionalRecording(scanRecording(s.writer.QueryRowContext(ctx, `UPDATE recordings SET state='working', tries=tries+1, lease=? WHERE id=(
		SELECT id FROM recordings WHERE state IN ('waiting','working') AND (state='waiting' OR lease<? OR lease>?) ORDER BY received LIMIT 1)
		RETURNING `+recordingColumns, now.Add(lease).UnixNano(), ended, latest).Scan))
}

func (s sqliteLedger) ClaimsPerChild() int { return 1 }

// Renew sets the end of a claim's lease. It returns false if the claim is not held any more.
func (s sqliteLedger) Renew(ctx context.Context, r *Recording, leaseEnd time.Time) (bool, error) {
	res, err := s.writer.ExecContext(ctx, `UPDATE recordings SET lease=? WHERE id=? AND tries=? AND state='working'`, leaseEnd.UnixNano(), r.ID, r.Tries)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

// Release makes a claimed recording wait again; the try does not count.
func (s sqliteLedger) Release(ctx context.Context, r *Recording) error {
	_, err := s.writer.ExecContext(ctx, `UPDATE recordings SET state='waiting', tries=tries-1 WHERE id=? AND tries=? AND state='working'`, r.ID, r.Tries)
	return err
}

// Fail ends a claim: the recording waits again, or, with poison, is not tried again. It changes nothing if the claim is not
// held any more.
func (s sqliteLedger) Fail(ctx context.Context, r *Recording, poison bool, reason string) error {
	state := Waiting
	if poison {
		state = Poison
	}
	_, err := s.writer.ExecContext(ctx, `UPDATE recordings SET state=?, error=? WHERE id=? AND tries=? AND state='working'`, state, reason[:min(len(reason), 1000)], r.ID, r.Tries)
	return err
}

// Requeue makes explained and poison recordings wait again if their files are kept: those of a service ("" for all) that were
// received at from or later. It returns their number.
func (s sqliteLedger) Requeue(ctx context.Context, service string, from time.Time) (int64, error) {
	res, err := s.writer.ExecContext(ctx, `UPDATE recordings SET state='waiting', tries=0 WHERE raw=1 AND state IN ('done','poison') AND (?='' OR service=?) AND received>=?`,
		service, service, from.UnixNano())
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (s sqliteLedger) CountByState(ctx context.Context) (map[string]int64, error) {
	return s.queryStateCounts(ctx, `SELECT state, n FROM states WHERE n>0`)
}

// queryStateCounts returns the number of recordings by state, from a query with these two columns.
func (s sqliteLedger) queryStateCounts(ctx context.Context, query string) (map[string]int64, error) {
	out := make(map[string]int64)
	err := eachRow(ctx, s.reader, func(scan func(...any) error) error {
		var state string
		var n int64
		err := scan(&state, &n)
		out[state] = n
		return err
	}, query)
	return out, err
}
