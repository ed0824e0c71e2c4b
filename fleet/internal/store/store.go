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
	"runtime"
	"time"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // the engine
)

//go:embed migrations/sqlite
var migrations embed.FS

// A Store is a database. Its methods may be called at the same time, also by several processes of one machine.
type Store struct {
	w     *sql.DB // one connection: SQLite has one writer
	r     *sql.DB
	q     *sql.DB // answers questions about rows: r, or click
	click *sql.DB // nil if SQLite keeps the rows
}

// Open opens the store of a directory, and brings its tables up to date. clickhouse, if not empty, is the address of the server that
// keeps rows, as in clickhouse://user:password@host:9000/database.
func Open(ctx context.Context, file, clickhouse string) (s *Store, err error) {
	const pragmas = "&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)&_pragma=cache_size(-65536)"
	s = new(Store)
	defer func() {
		if err != nil {
			_ = s.Close()
			s, err = nil, fmt.Errorf("opening the store %s: %w", file, err)
		}
	}()
	if s.w, err = sql.Open("sqlite", "file:"+file+"?_txlock=immediate"+pragmas); err != nil {
		return s, err
	}
	s.w.SetMaxOpenConns(1)
	if err := migrate(ctx, s.w); err != nil {
		return s, err
	}
	if s.r, err = sql.Open("sqlite", "file:"+file+"?mode=ro"+pragmas); err != nil {
		return s, err
	}
	s.r.SetMaxOpenConns(2 + runtime.NumCPU())
	s.q = s.r
	if clickhouse != "" {
		if s.click, err = openClickHouse(ctx, clickhouse); err != nil {
			return s, err
		}
		s.q = s.click
	}
	return s, nil
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

// Close closes the database.
func (s *Store) Close() error {
	var all []error
	for _, db := range []*sql.DB{s.w, s.r, s.click} {
		if db != nil {
			all = append(all, db.Close())
		}
	}
	return errors.Join(all...)
}

// Ping asks whether the databases answer.
func (s *Store) Ping(ctx context.Context) error {
	return errors.Join(s.r.PingContext(ctx), s.q.PingContext(ctx))
}

// What a token is for.
const (
	Send = "send" // recordings of one service
	Read = "read" // what the fleet knows
)

// AddToken makes a token valid for a time. Only its hash is kept. The name of one for sending is the service.
func (s *Store) AddToken(ctx context.Context, token, scope, name string, expires time.Time) error {
	_, err := s.w.ExecContext(ctx, `INSERT INTO tokens VALUES (?,?,?,?,?)`, hash(token), scope, name, time.Now().UnixNano(), expires.UnixNano())
	return err
}

// Revoke ends all tokens of a scope and name, and says how many there were.
func (s *Store) Revoke(ctx context.Context, scope, name string) (int64, error) {
	res, err := s.w.ExecContext(ctx, `DELETE FROM tokens WHERE scope=? AND name=?`, scope, name)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// TokenName returns the name of a token for a scope, "" if it is none or has expired.
func (s *Store) TokenName(ctx context.Context, token, scope string, now time.Time) (name string, err error) {
	err = s.r.QueryRowContext(ctx, `SELECT name FROM tokens WHERE hash=? AND scope=? AND expires>?`, hash(token), scope, now.UnixNano()).Scan(&name)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return name, err
}

// A Token is what is known of one.
type Token struct {
	Scope, Name   string
	Made, Expires time.Time
}

// Tokens lists all tokens.
func (s *Store) Tokens(ctx context.Context) (out []Token, err error) {
	return collect(ctx, s.r, func(scan func(...any) error) (t Token, err error) {
		var made, expires int64
		err = scan(&t.Scope, &t.Name, &made, &expires)
		t.Made, t.Expires = time.Unix(0, made), time.Unix(0, expires)
		return t, err
	}, `SELECT scope, name, made, expires FROM tokens ORDER BY scope, name, made`)
}

func hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// collect returns what a query has, a value a row.
func collect[T any](ctx context.Context, db *sql.DB, row func(scan func(...any) error) (T, error), query string, args ...any) ([]T, error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := []T{} // null is no list
	for rows.Next() {
		t, err := row(rows.Scan)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, rows.Err()
}

// within runs a function in a transaction.
func within(ctx context.Context, db *sql.DB, f func(*sql.Tx) error) error {
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
