// Package store is the database of a fleet. A Ledger has tokens, the queue of recordings and the outbox of webhooks. It is in
// SQLite on one machine, or in Kafka, S3 and ClickHouse for several. The rows of explained recordings are in SQLite or
// ClickHouse, and the queries are almost the same SQL for both. Each recording counts exactly once, also if it is explained
// several times or its worker is killed.
package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"time"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // the driver

	"github.com/whylate/whylate/fleet/internal/policy"
	"github.com/whylate/whylate/fleet/internal/rows"
)

//go:embed migrations/sqlite
var migrations embed.FS

// A Store is a Ledger and answers queries about rows. Its methods may be called concurrently, also by several processes.
type Store struct {
	*databases
	Ledger
	// Policy has the owners and mutes of findings; nil for none.
	Policy *policy.File
}

type databases struct {
	writer     *sql.DB // one connection: SQLite has one writer
	reader     *sql.DB
	rowReader  *sql.DB // for queries about rows: reader or clickhouse
	clickhouse *sql.DB // nil if SQLite keeps the rows
}

// A Ledger keeps data that must not be lost: tokens, the queue of recordings, and the state of each recording.
type Ledger interface {
	// AddToken makes a token valid until a time. Only its hash is stored. For SendScope, the name is the service.
	AddToken(ctx context.Context, token, scope, name string, expires time.Time) error
	// RevokeTokens deletes all tokens of a scope and name, and returns their number.
	RevokeTokens(ctx context.Context, scope, name string) (int64, error)
	// TokenName returns the name of a token, "" if no valid token of the scope has this value.
	TokenName(ctx context.Context, token, scope string, now time.Time) (name string, err error)
	Tokens(ctx context.Context) ([]Token, error)

	// AddRecording adds a recording to the queue. When it returns without error, the entry is durable. A known recording does
	// not change.
	AddRecording(ctx context.Context, r Recording) error
	// IsKnown reports whether a recording need not be added again.
	IsKnown(ctx context.Context, id string) (bool, error)
	// CountQueued returns the number of recordings of a service that are not explained yet.
	CountQueued(ctx context.Context, service string) (int, error)
	// Claim returns the next waiting recording, or one whose lease has ended, and marks it as in work; nil if there is none.
	Claim(ctx context.Context, now time.Time, lease time.Duration) (*Recording, error)
	// ClaimsPerChild is the number of recordings that a worker should hold for each child process. It exceeds 1 if rows of many
	// recordings are written together.
	ClaimsPerChild() int
	// Renew extends the lease of a claim. It returns false if another worker holds the claim.
	Renew(ctx context.Context, r *Recording, leaseEnd time.Time) (bool, error)
	// Finish writes the rows of a recording, which replace its earlier ones, and marks it as done. folded is true if labels,
	// groups or findings were replaced by (other).
	Finish(ctx context.Context, r *Recording, newRows *rows.Rows) (folded bool, err error)
	// Fail ends a claim without rows. The recording waits again, or becomes poison and is not tried again.
	Fail(ctx context.Context, r *Recording, poison bool, reason string) error
	// Release ends a claim of a worker that stops. The try does not count.
	Release(ctx context.Context, r *Recording) error
	// Requeue puts done and poison recordings back into the queue if their files are kept, and returns their number.
	Requeue(ctx context.Context, service string, from time.Time) (int64, error)

	// Recording returns the entry of a recording, nil if there is none.
	Recording(ctx context.Context, id string) (*Recording, error)
	// NewestRecordings returns the newest explained recordings of a service and version.
	NewestRecordings(ctx context.Context, service, version, environment string, limit int) ([]Recording, error)
	// PoisonRecordings returns the newest recordings that could not be explained.
	PoisonRecordings(ctx context.Context, limit int) ([]Recording, error)
	// CountByState returns the number of recordings by state.
	CountByState(ctx context.Context) (map[string]int64, error)

	// IsNotifier reports whether this process is the one that sends webhooks.
	IsNotifier() bool
	// SaveMarks saves marks and adds messages to the outbox, which ignores an id that it has. After an error it may be called
	// again.
	SaveMarks(ctx context.Context, marks map[string]Mark, messages []Message) error
	// ClaimMessage returns the message that is due first, and hides it until a time; nil if none is due.
	ClaimMessage(ctx context.Context, now, hiddenUntil time.Time) (*Message, error)
	// RetryMessage sets the time at which a message is due again.
	RetryMessage(ctx context.Context, m *Message, due time.Time) error
	// RemoveMessage removes a message from the outbox.
	RemoveMessage(ctx context.Context, m *Message) error

	// DropFiles marks recordings as without a file and returns them; the caller removes the files. First it drops recordings
	// older than maxAge, then the oldest until the rest has at most maxBytes. The only recording of its service, cause and hour
	// is dropped after the others. Waiting recordings stay.
	DropFiles(ctx context.Context, now time.Time, maxAge time.Duration, maxBytes int64) ([]DroppedFile, error)
	// IsFileKept reports whether the file of a recording must be kept. age is the age of the file, maxAge the retention.
	IsFileKept(ctx context.Context, id string, age, maxAge time.Duration) (bool, error)
	// DeleteOldRows deletes rows from before a time, entries of recordings without a file, and expired tokens.
	DeleteOldRows(ctx context.Context, now, before time.Time) error
	// Backup copies the store to a new file while it is in use.
	Backup(ctx context.Context, file string) error
}

// sqliteLedger is the ledger of a fleet on one machine.
type sqliteLedger struct{ *databases }

// Open opens the store of one machine and migrates its tables. clickhouse, if not empty, is the address of the server with the
// rows, such as clickhouse://user:password@host:9000/database.
func Open(ctx context.Context, file, clickhouse string) (s *Store, err error) {
	const pragmas = "&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)&_pragma=cache_size(-65536)"
	d := new(databases)
	s = &Store{databases: d, Ledger: sqliteLedger{d}}
	defer func() {
		if err != nil {
			_ = s.Close()
			s, err = nil, fmt.Errorf("opening the store %s: %w", file, err)
		}
	}()
	// SQLite creates a database that other users can read, and its log and index with the mode of the database.
	if f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err == nil {
		if err := f.Close(); err != nil {
			return s, err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return s, err
	}
	if err := checkSchema(ctx, file); err != nil {
		return s, err
	}
	if err := makePrivate(file); err != nil {
		return s, err
	}
	if s.writer, err = sql.Open("sqlite", "file:"+file+"?_txlock=immediate"+pragmas); err != nil {
		return s, err
	}
	s.writer.SetMaxOpenConns(1)
	if err := migrate(ctx, s.writer); err != nil {
		return s, err
	}
	if s.reader, err = sql.Open("sqlite", "file:"+file+"?mode=ro"+pragmas); err != nil {
		return s, err
	}
	s.reader.SetMaxOpenConns(2 + runtime.NumCPU())
	s.rowReader = s.reader
	if clickhouse != "" {
		if s.clickhouse, err = openClickHouse(ctx, clickhouse); err != nil {
			return s, err
		}
		s.rowReader = s.clickhouse
	}
	return s, nil
}

// makePrivate removes the permissions of other users from the files of a store: an earlier version created them readable. Files
// of other owners do not change.
func makePrivate(file string) error {
	for _, suffix := range []string{"", "-wal", "-shm"} {
		info, err := os.Lstat(file + suffix)
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o077 == 0 {
			continue
		}
		if err := os.Chmod(file+suffix, 0o600); err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// migrate applies the migrations that the database lacks.
func migrate(ctx context.Context, db *sql.DB) error {
	files, err := fs.Sub(migrations, "migrations/sqlite")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files)
	if err != nil {
		return err
	}
	_, err = p.Up(ctx)
	return err
}

// checkSchema returns an error if a file is the database of another program, or a store with newer tables than this program
// knows. It changes nothing. An empty file is valid.
func checkSchema(ctx context.Context, file string) (err error) {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	tables := make(map[string]bool)
	err = eachRow(ctx, db, func(scan func(...any) error) error {
		var name string
		err := scan(&name)
		tables[name] = true
		return err
	}, `SELECT name FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sqlite_%'`)
	if err != nil || len(tables) == 0 {
		return err
	}
	const versions = "goose_db_version" // the only table if the first start was killed
	if !tables[versions] || len(tables) > 1 && !(tables["recordings"] && tables["tokens"] && tables["points"]) {
		return errors.New("it is a database of another program: name the directory of a fleet, or an empty one")
	}
	var version int64
	if err := db.QueryRowContext(ctx, `SELECT coalesce(max(version_id), 0) FROM `+versions+` WHERE is_applied`).Scan(&version); err != nil {
		return err
	}
	names, err := fs.Glob(migrations, "migrations/sqlite/*.sql")
	if err != nil {
		return err
	}
	if newest := int64(len(names)); version > newest {
		return fmt.Errorf("it is of a newer whylate-fleet (version %d of its tables; this program knows %d): start that program, or put back a copy of the store from before the upgrade", version, newest)
	}
	return nil
}

// Close closes the databases, and leaves the consumer group.
func (s *Store) Close() error {
	var all []error
	if shared, ok := s.Ledger.(*sharedLedger); ok {
		shared.close()
	}
	for _, db := range []*sql.DB{s.writer, s.reader, s.clickhouse} {
		if db != nil {
			all = append(all, db.Close())
		}
	}
	return errors.Join(all...)
}

// Ping returns an error if a database does not answer.
func (s *Store) Ping(ctx context.Context) error {
	var all []error
	if shared, ok := s.Ledger.(*sharedLedger); ok {
		all = append(all, shared.ping(ctx))
	}
	for _, db := range []*sql.DB{s.reader, s.rowReader} {
		if db != nil {
			all = append(all, db.PingContext(ctx))
		}
	}
	return errors.Join(all...)
}

// eachRow calls visit for each row of a query's result; scan reads the row's columns. The first error of visit ends it.
func eachRow(ctx context.Context, db *sql.DB, visit func(scan func(...any) error) error, query string, args ...any) error {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := visit(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// queryAll returns one value for each row of the result.
func queryAll[T any](ctx context.Context, db *sql.DB, scanValue func(scan func(...any) error) (T, error), query string, args ...any) (out []T, err error) {
	out = []T{} // JSON must have [], not null
	err = eachRow(ctx, db, func(scan func(...any) error) error {
		t, err := scanValue(scan)
		out = append(out, t)
		return err
	}, query, args...)
	return out, err
}

// inTransaction calls f in a transaction, which it commits, or rolls back if f returns an error.
func inTransaction(ctx context.Context, db *sql.DB, f func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}
