package store

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"time"
)

// A DroppedFile is a recording whose file the caller may remove, and the reason.
type DroppedFile struct{ ID, Reason string }

// DropFiles marks up to 1000 recordings as without a file and returns them: those received longer than maxAge before now, then,
// while the files have more than maxBytes in total, the oldest. The only one of its retention class is dropped after the
// others.
func (s sqliteLedger) DropFiles(ctx context.Context, now time.Time, maxAge time.Duration, maxBytes int64) (out []DroppedFile, err error) {
	return out, inTransaction(ctx, s.writer, func(tx *sql.Tx) error {
		var total int64
		if err := tx.QueryRowContext(ctx, `SELECT coalesce(sum(bytes), 0) FROM recordings WHERE raw=1`).Scan(&total); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, `SELECT id, bytes, received FROM recordings WHERE raw=1 AND state IN ('done','poison')
			AND (received<? OR ?) ORDER BY received>=?, class<>'', received LIMIT 1000`, now.Add(-maxAge).UnixNano(), total > maxBytes, now.Add(-maxAge).UnixNano())
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var d DroppedFile
			var bytes, received int64
			if err := rows.Scan(&d.ID, &bytes, &received); err != nil {
				return err
			}
			d.Reason = "age"
			if received >= now.Add(-maxAge).UnixNano() {
				if d.Reason = "bytes"; total <= maxBytes {
					break
				}
			}
			total -= bytes
			out = append(out, d)
		}
		if err := rows.Close(); err != nil {
			return err
		}
		for _, d := range out {
			if _, err := tx.ExecContext(ctx, `UPDATE recordings SET raw=0 WHERE id=?`, d.ID); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

// DeleteOldRows deletes rows from before a time, entries of recordings without a file, and tokens that have ended at now. It
// runs many short transactions, because new recordings wait for each.
func (s sqliteLedger) DeleteOldRows(ctx context.Context, now, before time.Time) error {
	ids, err := queryAll(ctx, s.reader, func(scan func(...any) error) (id int64, err error) { return id, scan(&id) }, `SELECT id FROM series`)
	if err != nil {
		return err
	}
	exec := func(queries map[string][]any) error {
		return inTransaction(ctx, s.writer, func(tx *sql.Tx) error {
			for q, args := range queries {
				if _, err := tx.ExecContext(ctx, q, args...); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for _, id := range ids {
		var hasOldRows bool
		err := s.reader.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM points WHERE series=? AND minute<?) OR EXISTS (SELECT 1 FROM daypoints WHERE series=? AND minute<?)`,
			id, before.Unix(), id, before.Truncate(day).Unix()).Scan(&hasOldRows)
		if err == nil && hasOldRows {
			err = exec(map[string][]any{`DELETE FROM points WHERE series=? AND minute<?`: {id, before.Unix()}, `DELETE FROM daypoints WHERE series=? AND minute<?`: {id, before.Truncate(day).Unix()}})
		}
		if err != nil {
			return err
		}
	}
	for _, q := range []map[string][]any{
		{`DELETE FROM seen WHERE day<?`: {before.Truncate(day).Unix()}, `DELETE FROM seen_pods WHERE day<?`: {before.Truncate(day).Unix()}},
		{`DELETE FROM slow WHERE moment<?`: {before.UnixNano()}, `DELETE FROM headrooms WHERE moment<?`: {before.UnixNano()}},
		{`DELETE FROM problems WHERE updated<?`: {before.UnixNano()}},
		{`DELETE FROM recordings WHERE raw=0 AND received<?`: {before.UnixNano()}},
		{`DELETE FROM told WHERE moment<?`: {before.UnixNano()}},
		{`DELETE FROM tokens WHERE expires<?`: {now.UnixNano()}},
		{`DELETE FROM series WHERE grp<>'' AND NOT EXISTS (SELECT 1 FROM points p WHERE p.series=id)`: nil},
		// The series of a pod is deleted after those of its groups, and the series of a version's days after its days.
		{`DELETE FROM series WHERE grp='' AND NOT EXISTS (SELECT 1 FROM daypoints p WHERE p.series=id) AND NOT EXISTS (SELECT 1 FROM series o WHERE o.service=series.service
			AND o.version=series.version AND o.environment=series.environment AND o.pod=series.pod AND o.node=series.node AND o.grp<>'')`: nil},
	} {
		if err := exec(q); err != nil {
			return err
		}
	}
	if s.clickhouse == nil {
		return nil
	}
	return deleteOldClickHouse(ctx, s.clickhouse, before)
}

// IsFileKept reports whether the recording has an entry with a file. The age of the file does not matter.
func (s sqliteLedger) IsFileKept(ctx context.Context, id string, _, _ time.Duration) (isKept bool, err error) {
	err = s.reader.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM recordings WHERE id=? AND raw=1)`, id).Scan(&isKept)
	return isKept, err
}

// Backup writes a copy of the database to a new file that only its owner may read; the database stays in use. After an error it
// removes the file.
func (s sqliteLedger) Backup(ctx context.Context, file string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) // SQLite would create it readable by other users
	if err != nil {
		return err
	}
	if err = f.Close(); err == nil {
		_, err = s.reader.ExecContext(ctx, `VACUUM INTO ?`, file)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

// retentionClass returns service, cause and hour. Retention keeps one recording of each class longest.
func (c *contribution) retentionClass() string {
	return c.Service + " " + c.Rows.Cause + " " + c.Rows.Start.UTC().Format("2006010215")
}

// IsFileKept also keeps a file without a state for maxAge and a day: a waiting recording has no state in ClickHouse.
func (s *sharedLedger) IsFileKept(ctx context.Context, id string, age, maxAge time.Duration) (bool, error) {
	var rowCount, withoutFile int
	err := s.reader.QueryRowContext(ctx, `SELECT count(*), countIf(raw=0) FROM recordings_rows FINAL WHERE id=?`, id).Scan(&rowCount, &withoutFile)
	return rowCount > withoutFile || rowCount == 0 && age < maxAge+day, err
}

// DropFiles marks up to 1000 recordings as without a file and returns them: those received longer than maxAge before now, then,
// while the files have more than maxBytes in total, the oldest. The oldest of each retention class is dropped after the others.
func (s *sharedLedger) DropFiles(ctx context.Context, now time.Time, maxAge time.Duration, maxBytes int64) (out []DroppedFile, err error) {
	oldest := now.Add(-maxAge).UnixNano()
	var total int64
	if err := s.reader.QueryRowContext(ctx, `SELECT sum(bytes) FROM recordings WHERE raw=1`).Scan(&total); err != nil {
		return nil, err
	}
	list, err := queryAll(ctx, s.reader, scanRecording, `SELECT `+recordingColumns+` FROM recordings WHERE raw=1 AND state IN ('done','poison') AND (received<? OR ?)
		ORDER BY received>=?, id IN (SELECT argMin(id, received) FROM recordings WHERE raw=1 AND class<>'' GROUP BY class), received LIMIT 1000`, oldest, boolToInt(total > maxBytes), oldest)
	if err != nil {
		return nil, err
	}
	var flights []*flight
	for _, r := range list {
		d := DroppedFile{r.ID, "age"}
		if r.Received.UnixNano() >= oldest {
			if d.Reason = "bytes"; total <= maxBytes {
				break
			}
		}
		total -= r.Bytes
		r.Raw = false
		out, flights = append(out, d), append(flights, &flight{queueMessage: queueMessage{Recording: r}, written: time.Now().UnixNano()})
	}
	if len(flights) == 0 {
		return nil, s.topic.deleteFinished(ctx)
	}
	return out, s.facts.writeStates(ctx, flights)
}

func (s *sharedLedger) DeleteOldRows(ctx context.Context, now, before time.Time) error {
	return errors.Join(s.tokenFiles.expire(ctx, now), deleteOldClickHouse(ctx, s.clickhouse, before))
}

func (s *sharedLedger) Backup(context.Context, string) error {
	return errors.New("with -kafka, there is no file to copy: Kafka, ClickHouse and S3 keep everything, and have their own means")
}
