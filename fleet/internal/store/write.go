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

const day = 24 * time.Hour

// contribution is what a recording has added to the sums. It is stored as JSON with the recording, to subtract it when the
// recording is explained again.
type contribution struct {
	rows.Labels
	Rows rows.Rows
}

// Finish writes rows and state in one transaction if the rows are in SQLite, so a killed worker leaves nothing. With ClickHouse it writes the rows
// first; if the worker is killed, the rows of the next try replace them. folded reports whether labels, groups or findings were replaced by (other).
// If another worker holds the claim, it writes nothing.
func (s sqliteLedger) Finish(ctx context.Context, r *Recording, newRows *rows.Rows) (folded bool, err error) {
	contribution := contribution{r.Labels, *newRows}
	err = inTransaction(ctx, s.writer, func(tx *sql.Tx) error {
		var isHeld bool
		var blob []byte
		err := tx.QueryRowContext(ctx, `SELECT state='working' AND tries=?, counted FROM recordings WHERE id=?`, r.Tries, r.ID).Scan(&isHeld, &blob)
		if errors.Is(err, sql.ErrNoRows) || err == nil && !isHeld {
			return errClaimLost
		}
		if err != nil {
			return err
		}
		previous, err := decodeContribution(blob)
		if err != nil {
			return err
		}
		seriesIDs, partFolded, err := foldSeriesSQLite(ctx, tx, &contribution)
		if folded = partFolded; err != nil {
			return err
		}
		partFolded, err = foldFindings(&contribution, func(problem string) (isKnown bool, err error) {
			err = tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM problems WHERE problem=?)`, problem).Scan(&isKnown)
			return isKnown, err
		}, func() (n int, err error) {
			err = tx.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT 1 FROM problems WHERE service=? LIMIT ?)`, contribution.Service, MaxProblems).Scan(&n)
			return n, err
		})
		folded = folded || partFolded
		if err == nil && s.clickhouse != nil { // only so that foldFindings can count them
			err = writeProblemsSQLite(ctx, tx, &contribution)
		}
		if err != nil || s.clickhouse != nil {
			return err
		}
		if previous != nil {
			previousIDs, _, err := foldSeriesSQLite(ctx, tx, previous)
			if err == nil {
				err = addRowsSQLite(ctx, tx, r.ID, previousIDs, previous, -1)
			}
			if err != nil {
				return err
			}
		}
		if err := addRowsSQLite(ctx, tx, r.ID, seriesIDs, &contribution, 1); err != nil {
			return err
		}
		return s.markDone(ctx, tx, r, &contribution)
	})
	if errors.Is(err, errClaimLost) {
		return false, nil
	}
	if err != nil || s.clickhouse == nil {
		return folded, err
	}
	var b block
	b.addRecording(r, &contribution, time.Now().UnixNano())
	if err := b.insert(ctx, s.clickhouse); err != nil {
		return folded, err
	}
	return folded, inTransaction(ctx, s.writer, func(tx *sql.Tx) error { return s.markDone(ctx, tx, r, &contribution) })
}

var errClaimLost = errors.New("the claim is another worker's")

// markDone stores the contribution of a recording and marks it as done, if the claim is still held. It gets its retention class if no other recording
// has that.
func (s sqliteLedger) markDone(ctx context.Context, tx *sql.Tx, r *Recording, c *contribution) error {
	blob, err := encodeContribution(c)
	if err != nil {
		return err
	}
	class := c.retentionClass()
	_, err = tx.ExecContext(ctx, `UPDATE recordings SET state='done', error='', counted=?,
		class=iif(EXISTS (SELECT 1 FROM recordings o WHERE o.class=? AND o.id<>?), '', ?) WHERE id=? AND tries=? AND state='working'`, blob, class, r.ID, class, r.ID, r.Tries)
	return err
}

// encodeContribution returns a contribution as compressed JSON, which decodeContribution reads.
func encodeContribution(c *contribution) ([]byte, error) {
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

// decodeContribution reads what encodeContribution returned; nil without an error if blob is empty.
func decodeContribution(blob []byte) (*contribution, error) {
	if len(blob) == 0 {
		return nil, nil
	}
	c := new(contribution)
	if err := json.NewDecoder(flate.NewReader(bytes.NewReader(blob))).Decode(c); err != nil {
		return nil, fmt.Errorf("reading what a recording was counted as: %w", err)
	}
	return c, nil
}

// addAssignment returns the SQL assignment that adds to a sum, also a negative number. Beyond 64 bits SQLite would convert the
// integer to a floating-point number, which queries cannot read as an integer.
func addAssignment(column string) string {
	return fmt.Sprintf("%[1]s=max(0, min(%[1]s+excluded.%[1]s, %[2]d))", column, int64(rows.MaxSum))
}

// addRowsSQLite adds rows to the sums if sign is 1, and subtracts them if it is -1.
func addRowsSQLite(ctx context.Context, tx *sql.Tx, id string, seriesIDs map[string]int64, c *contribution, sign int64) error {
	var stmts []*sql.Stmt
	defer func() {
		for _, s := range stmts {
			_ = s.Close()
		}
	}()
	for _, q := range []string{
		`INSERT INTO points VALUES (?,?,?,?,?,?) ON CONFLICT DO UPDATE SET ` + addAssignment("n") + `, ` + addAssignment("ns"),
		`INSERT INTO daypoints VALUES (?,?,?,?,?,?) ON CONFLICT DO UPDATE SET ` + addAssignment("n") + `, ` + addAssignment("ns"),
		`INSERT INTO seen VALUES (?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO UPDATE SET n=n+excluded.n, ` + addAssignment("requests") + `, ` + addAssignment("ns") + `,
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
	recordingRows, labels := &c.Rows, &c.Labels
	// An older version may have stored numbers beyond the bounds of today.
	signed := func(sum int64) int64 { return sign * rows.Clamp(sum, rows.MaxSum) }
	var err error
	recordingRows.VisitSums(func(s *rows.Sum) {
		if err == nil {
			err = exec(0, seriesIDs[s.Group], recordingRows.Start.Truncate(time.Minute).Unix(), s.Cause, s.Bucket, signed(s.N), signed(s.NS))
		}
		if err == nil {
			err = exec(1, seriesIDs[""], recordingRows.Start.Truncate(day).Unix(), s.Cause, s.Bucket, signed(s.N), signed(s.NS))
		}
	}, func(problem string, n, requests, ns int64) {
		var podRecordings, podChange int64 // the pod's recordings with the problem on this day, and the change of the number of pods
		today := recordingRows.Start.Truncate(day).Unix()
		if err == nil {
			err = stmts[4].QueryRowContext(ctx, today, labels.Service, labels.Version, labels.Environment, problem, labels.Pod, sign*n).Scan(&podRecordings)
		}
		if podRecordings-sign*n == 0 || podRecordings == 0 { // the pod's first recording, or its last one was subtracted
			podChange = sign
		}
		if err == nil {
			stamp := newStamp(recordingRows.Start, id)
			err = exec(2, today, labels.Service, labels.Version, labels.Environment, problem, sign*n, signed(requests), signed(ns), stamp, stamp, podChange)
		}
	})
	if err != nil {
		return err
	}
	if sign < 0 {
		if _, err := tx.ExecContext(ctx, `DELETE FROM slow WHERE recording=?`, id); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM headrooms WHERE service=? AND version=? AND environment=? AND moment=? AND recording=?`,
			labels.Service, labels.Version, labels.Environment, recordingRows.Start.UnixNano(), id); err != nil {
			return err
		}
		for _, table := range []string{"seen", "seen_pods"} {
			if _, err := tx.ExecContext(ctx, `DELETE FROM `+table+` WHERE n=0 AND day=? AND service=?`, recordingRows.Start.Truncate(day).Unix(), labels.Service); err != nil {
				return err
			}
		}
		return nil
	}
	h := &recordingRows.Headroom
	if _, err := tx.ExecContext(ctx, `INSERT INTO headrooms VALUES (?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING`, labels.Service, labels.Version, labels.Environment,
		recordingRows.Start.UnixNano(), id, h.Times, h.Low, h.High, h.Limit, h.NotJudged, h.Reason); err != nil {
		return err
	}
	if err := writeProblemsSQLite(ctx, tx, c); err != nil {
		return err
	}
	for _, q := range recordingRows.SlowRequests {
		if err := exec(3, id, q.Request, labels.Service, labels.Version, labels.Environment, labels.Pod, labels.Node, q.Group, q.Start.UnixNano(), q.NS, q.Cause, q.Site, q.Trace); err != nil {
			return err
		}
	}
	return nil
}

// writeProblemsSQLite stores the descriptions of findings. A description of the same finding from a later recording is not
// replaced.
func writeProblemsSQLite(ctx context.Context, tx *sql.Tx, c *contribution) error {
	r, l := &c.Rows, &c.Labels
	for _, f := range r.Findings {
		if _, err := tx.ExecContext(ctx, `INSERT INTO problems VALUES (?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO UPDATE SET severity=excluded.severity, title=excluded.title, fix=excluded.fix,
			updated=excluded.updated WHERE excluded.updated>=updated`, f.Problem, l.Service, l.Environment, f.Group, f.Code, f.Cause, f.Site, f.Severity, f.Title, f.Fix, r.Start.UnixNano()); err != nil {
			return err
		}
	}
	return nil
}
