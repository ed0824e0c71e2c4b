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

// MaxSeries bounds the combinations of version, environment, pod, node and group that are kept of a service. Further ones count
// as (other).
const MaxSeries = 20_000

// MaxProblems bounds the findings that are kept of a service. Further ones count as (other).
const MaxProblems = 1000

// spareSeries is the number of series beyond MaxSeries that a service may use for (other) in the environments that it already
// has. So new pods and versions still count in their environment.
const spareSeries = 1000

const day = 24 * time.Hour

// contribution is what a recording has added to the sums. It is stored as JSON with the recording, to subtract it when the
// recording is explained again.
type contribution struct {
	rows.Labels
	Rows rows.Rows
}

// retentionClass returns service, cause and hour. Retention keeps one recording of each class longest.
func (c *contribution) retentionClass() string {
	return c.Service + " " + c.Rows.Cause + " " + c.Rows.Start.UTC().Format("2006010215")
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
