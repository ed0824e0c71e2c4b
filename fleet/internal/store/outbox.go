package store

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// A Mark is the last reported state of a finding or version, and the time at which it was last seen.
type Mark struct {
	State    string
	LastSeen time.Time
}

// A Message is an event that waits to be delivered.
type Message struct {
	ID      string
	Body    []byte
	Created time.Time
	Tries   int
	written int64 // version of the row in ClickHouse: the largest one counts
}

// Marks returns, by key, the marks of those keys that have one; nil without keys.
func (s *Store) Marks(ctx context.Context, keys []string) (map[string]Mark, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	out := make(map[string]Mark)
	condition, args := inCondition("what", keys)
	err := eachRow(ctx, s.reader, func(scan func(...any) error) error {
		var key string
		var m Mark
		var lastSeen int64
		err := scan(&key, &m.State, &lastSeen)
		m.LastSeen = time.Unix(0, lastSeen)
		out[key] = m
		return err
	}, `SELECT what, state, moment FROM told WHERE `+condition, args...)
	return out, err
}

// CountUnsent returns the number of messages in the outbox.
func (s *Store) CountUnsent(ctx context.Context) (n int, err error) {
	err = s.reader.QueryRowContext(ctx, `SELECT count(*) FROM outbox`).Scan(&n)
	return n, err
}

func (s sqliteLedger) IsNotifier() bool { return true }

// SaveMarks saves the marks by key and adds the messages that the outbox does not have, in one transaction.
func (s sqliteLedger) SaveMarks(ctx context.Context, marks map[string]Mark, messages []Message) error {
	return inTransaction(ctx, s.writer, func(tx *sql.Tx) error {
		for key, m := range marks {
			if _, err := tx.ExecContext(ctx, `INSERT INTO told VALUES (?,?,?) ON CONFLICT DO UPDATE SET state=excluded.state, moment=excluded.moment`, key, m.State, m.LastSeen.UnixNano()); err != nil {
				return err
			}
		}
		for _, m := range messages {
			if _, err := tx.ExecContext(ctx, `INSERT INTO outbox VALUES (?,?,?,?,0) ON CONFLICT DO NOTHING`, m.ID, m.Body, m.Created.UnixNano(), m.Created.UnixNano()); err != nil {
				return err
			}
		}
		return nil
	})
}

// ClaimMessage returns the message that is due first at now, and makes it due again at hiddenUntil; nil if none is due.
func (s sqliteLedger) ClaimMessage(ctx context.Context, now, hiddenUntil time.Time) (*Message, error) {
	var isDue bool
	if err := s.reader.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM outbox WHERE due<=?)`, now.UnixNano()).Scan(&isDue); !isDue || err != nil {
		return nil, err
	}
	var m Message
	var created int64
	err := s.writer.QueryRowContext(ctx, `UPDATE outbox SET due=?, tries=tries+1 WHERE id=(SELECT id FROM outbox WHERE due<=? ORDER BY due LIMIT 1) RETURNING id, body, made, tries`,
		hiddenUntil.UnixNano(), now.UnixNano()).Scan(&m.ID, &m.Body, &created, &m.Tries)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	m.Created = time.Unix(0, created)
	return &m, err
}

func (s sqliteLedger) RetryMessage(ctx context.Context, m *Message, due time.Time) error {
	_, err := s.writer.ExecContext(ctx, `UPDATE outbox SET due=? WHERE id=?`, due.UnixNano(), m.ID)
	return err
}

func (s sqliteLedger) RemoveMessage(ctx context.Context, m *Message) error {
	_, err := s.writer.ExecContext(ctx, `DELETE FROM outbox WHERE id=?`, m.ID)
	return err
}

// IsNotifier is true for the worker with the first partition. So one worker sends webhooks, and if it ends, another one does.
func (s *sharedLedger) IsNotifier() bool { return s.topic.hasFirstPartition.Load() }

// SaveMarks writes messages before marks. If the worker dies in between, the next one writes the same messages with the same
// ids.
func (s *sharedLedger) SaveMarks(ctx context.Context, marks map[string]Mark, messages []Message) error {
	for i := range messages {
		if err := s.writeMessage(ctx, &messages[i], messages[i].Created.UnixNano()); err != nil {
			return err
		}
	}
	var list [][]any
	for key, m := range marks {
		list = append(list, []any{key, m.State, m.LastSeen.UnixNano(), time.Now().UnixNano()})
	}
	return insertRows(ctx, s.clickhouse, "told_rows (what, state, moment, written)", list)
}

// ClaimMessage returns the message that is due first at now, and makes it due again at hiddenUntil; nil if none is due. Only
// the notifier calls it, so no other process claims the same message.
func (s *sharedLedger) ClaimMessage(ctx context.Context, now, hiddenUntil time.Time) (*Message, error) {
	var m Message
	var body string
	var created int64
	err := s.clickhouse.QueryRowContext(ctx, `SELECT id, body, made, tries, written FROM outbox WHERE due<=? ORDER BY due LIMIT 1`, now.UnixNano()).Scan(&m.ID, &body, &created, &m.Tries, &m.written)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m.Body, m.Created = []byte(body), time.Unix(0, created)
	m.Tries++
	return &m, s.writeMessage(ctx, &m, hiddenUntil.UnixNano())
}

func (s *sharedLedger) RetryMessage(ctx context.Context, m *Message, due time.Time) error {
	return s.writeMessage(ctx, m, due.UnixNano())
}

// RemoveMessage marks a message as delivered, by its due time, and removes its body.
func (s *sharedLedger) RemoveMessage(ctx context.Context, m *Message) error {
	m.Body = nil
	return s.writeMessage(ctx, m, sentDue)
}

const sentDue = -1 // the due time of a delivered message

// writeMessage writes a new version of the row of a message.
func (s *sharedLedger) writeMessage(ctx context.Context, m *Message, due int64) error {
	m.written = max(time.Now().UnixNano(), m.written+1)
	return insertRows(ctx, s.clickhouse, "outbox_rows (id, body, made, due, tries, written)", [][]any{{m.ID, string(m.Body), m.Created.UnixNano(), due, int32(m.Tries), m.written}})
}
