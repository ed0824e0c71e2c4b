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
	ID      string
	Body    []byte
	Made    time.Time
	Tries   int
	written int64 // what is written later replaces it
}

// Told returns what was said of things, of those of which something was.
func (s *Store) Told(ctx context.Context, what []string) (map[string]Mark, error) {
	if len(what) == 0 {
		return nil, nil
	}
	out := make(map[string]Mark)
	which, args := among("what", what)
	err := eachRow(ctx, s.r, func(scan func(...any) error) error {
		var w string
		var m Mark
		var at int64
		err := scan(&w, &m.State, &at)
		m.At = time.Unix(0, at)
		out[w] = m
		return err
	}, `SELECT what, state, moment FROM told WHERE `+which, args...)
	return out, err
}

// Unsent is how many messages wait to be delivered.
func (s *Store) Unsent(ctx context.Context) (n int, err error) {
	err = s.r.QueryRowContext(ctx, `SELECT count(*) FROM outbox`).Scan(&n)
	return n, err
}

func (s lite) Notifies() bool { return true }

func (s lite) Tell(ctx context.Context, marks map[string]Mark, messages []Message) error {
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

func (s lite) Due(ctx context.Context, now, until time.Time) (*Message, error) {
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

func (s lite) Redeliver(ctx context.Context, m *Message, at time.Time) error {
	_, err := s.w.ExecContext(ctx, `UPDATE outbox SET due=? WHERE id=?`, at.UnixNano(), m.ID)
	return err
}

func (s lite) Sent(ctx context.Context, m *Message) error {
	_, err := s.w.ExecContext(ctx, `DELETE FROM outbox WHERE id=?`, m.ID)
	return err
}

// Notifies is true for the worker that has the first partition: so one does it, and when it is gone, another.
func (s *shared) Notifies() bool { return s.topic.first.Load() }

// Tell writes messages first: a worker that dies in between leaves the next one to say the same, with the same ids.
func (s *shared) Tell(ctx context.Context, marks map[string]Mark, messages []Message) error {
	for i := range messages {
		if err := s.put(ctx, &messages[i], messages[i].Made.UnixNano()); err != nil {
			return err
		}
	}
	var list [][]any
	for what, m := range marks {
		list = append(list, []any{what, m.State, m.At.UnixNano(), time.Now().UnixNano()})
	}
	return insertRows(ctx, s.click, "told_rows (what, state, moment, written)", list)
}

func (s *shared) Due(ctx context.Context, now, until time.Time) (*Message, error) {
	var m Message
	var body string
	var made int64
	err := s.click.QueryRowContext(ctx, `SELECT id, body, made, tries, written FROM outbox WHERE due<=? ORDER BY due LIMIT 1`, now.UnixNano()).Scan(&m.ID, &body, &made, &m.Tries, &m.written)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m.Body, m.Made = []byte(body), time.Unix(0, made)
	m.Tries++
	return &m, s.put(ctx, &m, until.UnixNano())
}

func (s *shared) Redeliver(ctx context.Context, m *Message, at time.Time) error {
	return s.put(ctx, m, at.UnixNano())
}

func (s *shared) Sent(ctx context.Context, m *Message) error {
	m.Body = nil
	return s.put(ctx, m, sent)
}

const sent = -1 // in place of when a message is due

func (s *shared) put(ctx context.Context, m *Message, due int64) error {
	m.written = max(time.Now().UnixNano(), m.written+1)
	return insertRows(ctx, s.click, "outbox_rows (id, body, made, due, tries, written)", [][]any{{m.ID, string(m.Body), m.Made.UnixNano(), due, int32(m.Tries), m.written}})
}
