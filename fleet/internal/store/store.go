// Package store keeps what a fleet knows: the queue of recordings and tokens in SQLite, and of each explained recording the rows
// that its report holds, in SQLite or ClickHouse. Questions are the same SQL for both.
package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // the engine

	"github.com/whylate/whylate/fleet/internal/rows"
)

//go:embed migrations/sqlite
var migrations embed.FS

// A Store is a ledger, and answers questions about rows. Its methods may be called at the same time, also by several processes.
type Store struct {
	*databases
	Ledger
}

type databases struct {
	writer     *sql.DB // one connection: SQLite has one writer
	reader     *sql.DB
	rowReader  *sql.DB // answers questions about rows: r, or click
	clickhouse *sql.DB // nil if SQLite keeps the rows
}

// A Ledger keeps what must not be lost: tokens, the queue of recordings that wait to be explained, and what became of each.
type Ledger interface {
	// AddToken makes a token valid for a time. Only its hash is kept. The name of one for sending is the service.
	AddToken(ctx context.Context, token, scope, name string, expires time.Time) error
	// RevokeTokens ends all tokens of a scope and name, and says how many there were.
	RevokeTokens(ctx context.Context, scope, name string) (int64, error)
	// TokenName returns the name of a token for a scope, "" if it is none or has expired.
	TokenName(ctx context.Context, token, scope string, now time.Time) (name string, err error)
	Tokens(ctx context.Context) ([]Token, error)

	// AddRecording puts a recording into the queue. When it returns without error, that is durable. One that is known already stays as it is.
	AddRecording(ctx context.Context, r Recording) error
	// IsKnown reports whether a recording need not be added again.
	IsKnown(ctx context.Context, id string) (bool, error)
	// CountQueued is how many recordings of a service still are to be explained.
	CountQueued(ctx context.Context, service string) (int, error)
	// Claim takes the next recording that waits, also one whose worker's lease has ended; nil if there is none.
	Claim(ctx context.Context, now time.Time, lease time.Duration) (*Recording, error)
	// ClaimsPerChild is how many recordings a worker has to hold for each that it explains, because rows are written for many at once.
	ClaimsPerChild() int
	// Renew lengthens the lease of a claim. It reports whether the claim still holds: another worker has it if not.
	Renew(ctx context.Context, r *Recording, leaseEnd time.Time) (bool, error)
	// Finish writes the rows of a recording in place of those it had, and takes it off the queue. Folded says that the service has too
	// many series.
	Finish(ctx context.Context, r *Recording, newRows *rows.Rows) (folded bool, err error)
	// Fail says that explaining came to nothing: the recording is tried again, or, as poison, not.
	Fail(ctx context.Context, r *Recording, poison bool, reason string) error
	// Release ends a claim whose worker stops, as if it had not been made.
	Release(ctx context.Context, r *Recording) error
	// Requeue puts explained recordings and poison back into the queue, where their files are kept, and says how many.
	Requeue(ctx context.Context, service string, from time.Time) (int64, error)

	// Recording returns what is known of one, nil if there is none.
	Recording(ctx context.Context, id string) (*Recording, error)
	// NewestRecordings returns the newest explained recordings of a service and version.
	NewestRecordings(ctx context.Context, service, version, environment string, limit int) ([]Recording, error)
	// PoisonRecordings returns the newest recordings that could not be explained.
	PoisonRecordings(ctx context.Context, limit int) ([]Recording, error)
	// CountByState counts recordings by what became of them.
	CountByState(ctx context.Context) (map[string]int64, error)

	// IsNotifier reports whether this process is the one that sends webhooks.
	IsNotifier() bool
	// SaveMarks marks what is said, and puts messages into the outbox, where each id is once. Where it fails, it may be called again.
	SaveMarks(ctx context.Context, marks map[string]Mark, messages []Message) error
	// ClaimMessage takes the message that is to be delivered next, and hides it until a time; nil if there is none.
	ClaimMessage(ctx context.Context, now, hiddenUntil time.Time) (*Message, error)
	// RetryMessage delivers a message again at a time.
	RetryMessage(ctx context.Context, m *Message, due time.Time) error
	// RemoveMessage takes a message out.
	RemoveMessage(ctx context.Context, m *Message) error

	// DropFiles takes recordings out whose files are no longer kept: those older than maxAge, then, until all have at most maxBytes, the
	// oldest; but those that are the only one of their service, cause and hour last. What waits stays. The files are the caller's.
	DropFiles(ctx context.Context, now time.Time, maxAge time.Duration, maxBytes int64) ([]DroppedFile, error)
	// IsFileKept reports whether a file of a recording, of an age, is to be kept.
	IsFileKept(ctx context.Context, id string, age, maxAge time.Duration) (bool, error)
	// DeleteOldRows removes rows from before a time, what is known of recordings without a file, and tokens that expired.
	DeleteOldRows(ctx context.Context, now, before time.Time) error
	// Backup copies the store to a file that is not there yet, while it is in use.
	Backup(ctx context.Context, file string) error
}

// sqliteLedger is the ledger of one machine, in SQLite.
type sqliteLedger struct{ *databases }

// Open opens the store of a directory, and brings its tables up to date. clickhouse, if not empty, is the address of the server that
// keeps rows, as in clickhouse://user:password@host:9000/database.
func Open(ctx context.Context, file, clickhouse string) (s *Store, err error) {
	const pragmas = "&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)&_pragma=cache_size(-65536)"
	d := new(databases)
	s = &Store{d, sqliteLedger{d}}
	defer func() {
		if err != nil {
			_ = s.Close()
			s, err = nil, fmt.Errorf("opening the store %s: %w", file, err)
		}
	}()
	// SQLite gives new files the mode of others, and its log and index that of the database.
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

// makePrivate takes the files of a store from other users: an earlier program let them read it. What this user does not own stays.
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

// checkSchema returns an error where a file is another program's database, or a store of a newer version than the newest that is
// known here, and changes nothing in it. An empty file is neither.
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
	const versions = "goose_db_version" // all that there is when a first start was killed
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

// Close closes the database.
func (s *Store) Close() error {
	var all []error
	if shared, ok := s.Ledger.(*sharedLedger); ok {
		all = append(all, shared.close())
	}
	for _, db := range []*sql.DB{s.writer, s.reader, s.clickhouse} {
		if db != nil {
			all = append(all, db.Close())
		}
	}
	return errors.Join(all...)
}

// Ping asks whether the databases answer.
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

// What a token is for.
const (
	SendScope = "send" // recordings of one service
	ReadScope = "read" // what the fleet knows
)

func (s sqliteLedger) AddToken(ctx context.Context, token, scope, name string, expires time.Time) error {
	_, err := s.writer.ExecContext(ctx, `INSERT INTO tokens VALUES (?,?,?,?,?)`, hashToken(token), scope, name, time.Now().UnixNano(), expires.UnixNano())
	return err
}

func (s sqliteLedger) RevokeTokens(ctx context.Context, scope, name string) (int64, error) {
	res, err := s.writer.ExecContext(ctx, `DELETE FROM tokens WHERE scope=? AND name=?`, scope, name)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (s sqliteLedger) TokenName(ctx context.Context, token, scope string, now time.Time) (name string, err error) {
	err = s.reader.QueryRowContext(ctx, `SELECT name FROM tokens WHERE hash=? AND scope=? AND expires>?`, hashToken(token), scope, now.UnixNano()).Scan(&name)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return name, err
}

// A Token is what is known of one.
type Token struct {
	Scope, Name      string
	Created, Expires time.Time
}

func (s sqliteLedger) Tokens(ctx context.Context) (out []Token, err error) {
	return queryAll(ctx, s.reader, func(scan func(...any) error) (t Token, err error) {
		var made, expires int64
		err = scan(&t.Scope, &t.Name, &made, &expires)
		t.Created, t.Expires = time.Unix(0, made), time.Unix(0, expires)
		return t, err
	}, `SELECT scope, name, made, expires FROM tokens ORDER BY scope, name, made`)
}

func hashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// eachRow calls a function for each row that a query has.
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

// queryAll returns what a query has, a value a row.
func queryAll[T any](ctx context.Context, db *sql.DB, scanValue func(scan func(...any) error) (T, error), query string, args ...any) (out []T, err error) {
	out = []T{} // null is no list
	err = eachRow(ctx, db, func(scan func(...any) error) error {
		t, err := scanValue(scan)
		out = append(out, t)
		return err
	}, query, args...)
	return out, err
}

// inCondition is the condition that a column has one of some values, and its arguments.
func inCondition(column string, values []string) (string, []any) {
	args := make([]any, len(values))
	for i, v := range values {
		args[i] = v
	}
	return column + ` IN (?` + strings.Repeat(",?", len(values)-1) + `)`, args
}

// inTransaction runs a function in a transaction.
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
