package store

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// A Mark is what was said last of something, and when it was seen last.
type Mark struct {
	State string
	At    time.Time
}

// A Message is an event that waits to be delivered.
type Message struct {
	ID    string
	Body  []byte
	Made  time.Time
	Tries int
}

// Told returns what was said of something, nil if nothing was.
func (s *Store) Told(ctx context.Context, what string) (*Mark, error) {
	var m Mark
	var at int64
	err := s.r.QueryRowContext(ctx, `SELECT state, moment FROM told WHERE what=?`, what).Scan(&m.State, &at)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	m.At = time.Unix(0, at)
	return &m, err
}

// Tell marks what is said, and puts messages into the outbox, where each id is once: both or neither.
func (s *Store) Tell(ctx context.Context, marks map[string]Mark, messages []Message) error {
	return within(ctx, s.w, func(tx *sql.Tx) error {
		for what, m := range marks {
			if _, err := tx.ExecContext(ctx, `INSERT INTO told VALUES (?,?,?) ON CONFLICT DO UPDATE SET state=excluded.state, moment=excluded.moment`, what, m.State, m.At.UnixNano()); err != nil {
				return err
			}
		}
		for _, m := range messages {
			if _, err := tx.ExecContext(ctx, `INSERT INTO outbox VALUES (?,?,?,?,0) ON CONFLICT DO NOTHING`, m.ID, m.Body, m.Made.UnixNano(), m.Made.UnixNano()); err != nil {
				return err
			}
		}
		return nil
	})
}

// Unsent is how many messages wait to be delivered.
func (s *Store) Unsent(ctx context.Context) (n int, err error) {
	err = s.r.QueryRowContext(ctx, `SELECT count(*) FROM outbox`).Scan(&n)
	return n, err
}

// Due takes the message that is to be delivered next, and hides it until a time; nil if there is none.
func (s *Store) Due(ctx context.Context, now, until time.Time) (*Message, error) {
	var any bool
	if err := s.r.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM outbox WHERE due<=?)`, now.UnixNano()).Scan(&any); !any || err != nil {
		return nil, err
	}
	var m Message
	var made int64
	err := s.w.QueryRowContext(ctx, `UPDATE outbox SET due=?, tries=tries+1 WHERE id=(SELECT id FROM outbox WHERE due<=? ORDER BY due LIMIT 1) RETURNING id, body, made, tries`,
		until.UnixNano(), now.UnixNano()).Scan(&m.ID, &m.Body, &made, &m.Tries)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	m.Made = time.Unix(0, made)
	return &m, err
}

// Redeliver delivers a message again at a time.
func (s *Store) Redeliver(ctx context.Context, id string, at time.Time) error {
	_, err := s.w.ExecContext(ctx, `UPDATE outbox SET due=? WHERE id=?`, at.UnixNano(), id)
	return err
}

// Sent takes a message out.
func (s *Store) Sent(ctx context.Context, id string) error {
	_, err := s.w.ExecContext(ctx, `DELETE FROM outbox WHERE id=?`, id)
	return err
}
