package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/whylate/whylate/fleet/internal/raw"
)

func (s *sharedLedger) AddToken(ctx context.Context, token, scope, name string, expires time.Time) error {
	return s.tokenFiles.add(ctx, hashToken(token), Token{scope, name, time.Now(), expires})
}

// RevokeTokens deletes the tokens of a scope and name, and returns the number that it found. Other processes accept them for up
// to maxListAge longer.
func (s *sharedLedger) RevokeTokens(ctx context.Context, scope, name string) (n int64, err error) {
	all, err := s.tokenFiles.list(ctx, 0)
	for _, t := range all {
		if t.Scope == scope && t.Name == name && err == nil {
			err = s.tokenFiles.files.Remove(ctx, t.file)
			n++
		}
	}
	return n, err
}

// TokenName returns the name of a token that is valid for the scope at now, "" if there is none. The list of tokens may be
// maxListAge old.
func (s *sharedLedger) TokenName(ctx context.Context, token, scope string, now time.Time) (string, error) {
	all, err := s.tokenFiles.list(ctx, maxListAge)
	if t, ok := all[hashToken(token)]; ok && t.Scope == scope && t.Expires.After(now) {
		return t.Name, err
	}
	return "", err
}

// Tokens returns all tokens by scope and name, without their values, which are not stored.
func (s *sharedLedger) Tokens(ctx context.Context) (out []Token, err error) {
	all, err := s.tokenFiles.list(ctx, 0)
	for _, t := range all {
		out = append(out, t.Token)
	}
	slices.SortFunc(out, func(a, b Token) int { return strings.Compare(a.Scope+" "+a.Name, b.Scope+" "+b.Name) })
	return out, err
}

// tokenFiles stores tokens as names of empty files, hash.scope.created.expires.name, so that one listing returns all.
type tokenFiles struct {
	files    *raw.S3
	mu       sync.Mutex
	listedAt time.Time
	listed   map[string]fileToken
}

type fileToken struct {
	Token
	file string
}

// maxListAge is the time for which a listing is used, and so the delay until a revoked token ends.
const maxListAge = 5 * time.Second

// add stores a token as an empty file whose name has the token's hash and all its fields.
func (t *tokenFiles) add(ctx context.Context, hash string, token Token) error {
	f, err := t.files.CreateTemp()
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	return t.files.Save(ctx, f, fmt.Sprintf("%s.%s.%d.%d.%s", hash, token.Scope, token.Created.Unix(), token.Expires.Unix(), base64.RawURLEncoding.EncodeToString([]byte(token.Name))))
}

// list returns the tokens by hash, in a map that callers share and must not change. It may use an earlier listing up to maxAge old.
func (t *tokenFiles) list(ctx context.Context, maxAge time.Duration) (map[string]fileToken, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.listedAt) < maxAge {
		return t.listed, nil
	}
	all, listedAt := make(map[string]fileToken), time.Now()
	err := t.files.List(ctx, func(file string, _ time.Time) error {
		parts := strings.Split(file, ".")
		if len(parts) != 5 {
			return nil
		}
		made, err := strconv.ParseInt(parts[2], 10, 64)
		expires, err2 := strconv.ParseInt(parts[3], 10, 64)
		name, err3 := base64.RawURLEncoding.DecodeString(parts[4])
		if errors.Join(err, err2, err3) == nil {
			all[parts[0]] = fileToken{Token{parts[1], string(name), time.Unix(made, 0), time.Unix(expires, 0)}, file}
		}
		return nil
	})
	if err == nil {
		t.listed, t.listedAt = all, listedAt
	}
	return all, err
}

// expire removes expired tokens.
func (t *tokenFiles) expire(ctx context.Context, now time.Time) error {
	all, err := t.list(ctx, 0)
	for _, token := range all {
		if token.Expires.Before(now) && err == nil {
			err = t.files.Remove(ctx, token.file)
		}
	}
	return err
}

// Scopes of tokens.
const (
	SendScope = "send" // to upload recordings of one service
	ReadScope = "read" // to read pages and API
)

// AddToken stores the hash of a token with its scope, name and end.
func (s sqliteLedger) AddToken(ctx context.Context, token, scope, name string, expires time.Time) error {
	_, err := s.writer.ExecContext(ctx, `INSERT INTO tokens VALUES (?,?,?,?,?)`, hashToken(token), scope, name, time.Now().UnixNano(), expires.UnixNano())
	return err
}

// RevokeTokens deletes the tokens of a scope and name, and returns their number.
func (s sqliteLedger) RevokeTokens(ctx context.Context, scope, name string) (int64, error) {
	res, err := s.writer.ExecContext(ctx, `DELETE FROM tokens WHERE scope=? AND name=?`, scope, name)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// TokenName returns the name of a token that is valid for the scope at now, "" if there is none.
func (s sqliteLedger) TokenName(ctx context.Context, token, scope string, now time.Time) (name string, err error) {
	err = s.reader.QueryRowContext(ctx, `SELECT name FROM tokens WHERE hash=? AND scope=? AND expires>?`, hashToken(token), scope, now.UnixNano()).Scan(&name)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return name, err
}

// A Token is an issued token without its value.
type Token struct {
	Scope, Name      string
	Created, Expires time.Time
}

// Tokens returns all tokens by scope, name and creation, without their values, which are not stored; expired ones too, until
// they are deleted.
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
