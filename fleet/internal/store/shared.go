package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/whylate/whylate/fleet/internal/raw"
	"github.com/whylate/whylate/fleet/internal/rows"
)

// shared is the ledger of a fleet of several machines: what waits is in a topic of Kafka, tokens are names of empty files beside the
// recordings, and what became of recordings is in ClickHouse. What takes recordings in needs no ClickHouse.
type shared struct {
	lite   // answers what it asks of tables that ClickHouse has, too
	topic  *topic
	facts  facts
	tokens *tokens

	claiming sync.Mutex
	ready    []*flight // claimed and not handed out
	mu       sync.Mutex
	flights  map[string]*flight // claimed, by id
	batch    []*outcome
	kick     chan struct{}
	linger   time.Duration // how long rows wait for others, to be written with them
	stop     context.CancelFunc
	flushing sync.WaitGroup
}

// facts are what became of recordings: ClickHouse, or a test's map.
type facts interface {
	// known returns what there is of recordings.
	known(ctx context.Context, ids []string) (map[string]known, error)
	// rows writes what recordings count, in place of what they counted before. Half of it may be written when it fails; then it is
	// called again, also by another worker, at the same time as well.
	rows(ctx context.Context, outcomes []*outcome) error
	// states writes what becomes of recordings.
	states(ctx context.Context, flights []*flight) error
}

type known struct {
	state   string
	tries   int
	written int64
}

// An outcome is what a flight came to.
type outcome struct {
	*flight
	now    *counted // nil if it is poison
	folded bool
	end    chan error
}

const (
	chunk = 16              // recordings claimed at once
	grace = 5 * time.Second // for rows to be written, when a worker stops
	wary  = 3               // times that a recording's worker died, after which it is explained alone
)

// OpenShared opens the ledger of a fleet of several machines. What only takes recordings in gives no address of ClickHouse; what works
// consumes the topic.
func OpenShared(ctx context.Context, kafka, clickhouse string, files *raw.S3, work bool) (_ *Store, err error) {
	s := &shared{lite: lite{new(databases)}, tokens: &tokens{files: files.WithPrefix("tokens")}, linger: 200 * time.Millisecond}
	if clickhouse != "" {
		if s.click, err = openClickHouse(ctx, clickhouse); err != nil {
			return nil, err
		}
		s.q, s.r = s.click, s.click
		s.facts = &clickFacts{db: s.click}
	}
	if s.topic, err = openTopic(ctx, kafka, work); err != nil {
		return nil, errors.Join(err, (&Store{s.databases, lite{}}).Close())
	}
	s.begin()
	return &Store{s.databases, s}, nil
}

func (s *shared) begin() {
	ctx, stop := context.WithCancel(context.Background())
	s.flights, s.kick, s.stop = make(map[string]*flight), make(chan struct{}, 1), stop
	s.flushing.Go(func() { s.flush(ctx) })
}

func (s *shared) close() error {
	s.stop()
	s.flushing.Wait()
	s.topic.client.Close() // which commits, and leaves the group
	return nil
}

func (s *shared) ping(ctx context.Context) error {
	err := s.topic.client.Ping(ctx)
	if err != nil {
		err = fmt.Errorf("asking Kafka: %w", err)
	}
	return errors.Join(err, s.tokens.files.Ping(ctx))
}

func (s *shared) Add(ctx context.Context, r Recording) error {
	r.Raw = true
	return s.topic.add(ctx, message{Recording: r})
}

// Known is no question for those who take recordings in: whoever works finds out.
func (s *shared) Known(context.Context, string) (bool, error) { return false, nil }

func (s *shared) Recording(ctx context.Context, id string) (*Recording, error) {
	return one(scanRecording(s.r.QueryRowContext(ctx, `SELECT `+recordingColumns+` FROM recordings_rows FINAL WHERE id=?`, id).Scan)) // the view would read all
}

// Queued counts the recordings of all services: the topic is not counted by service.
func (s *shared) Queued(ctx context.Context, _ string) (int, error) {
	_, lag, err := s.topic.committed(ctx)
	return int(lag), err
}

func (s *shared) Claim(ctx context.Context, _ time.Time, _ time.Duration) (*Recording, error) {
	s.claiming.Lock()
	defer s.claiming.Unlock()
	for len(s.ready) > 0 {
		f := s.ready[0]
		s.ready = s.ready[1:]
		if !s.topic.isLost(f) {
			r := f.Recording
			return &r, nil
		}
		s.drop(f)
	}
	s.mu.Lock()
	busy := len(s.flights)
	for _, f := range s.flights {
		if f.Tries > wary {
			s.mu.Unlock()
			return nil, nil
		}
	}
	s.mu.Unlock()
	list := s.topic.take(ctx, chunk, s.linger/2)
	ids := make([]string, len(list))
	for i, f := range list {
		ids[i] = f.ID
	}
	if len(ids) == 0 {
		return nil, nil
	}
	asked := time.Now().UnixNano()
	all, err := s.facts.known(ctx, ids)
	if err != nil {
		s.topic.back(list...)
		return nil, err
	}
	var claims []*flight
	s.mu.Lock()
	for i, f := range list {
		k, ok := all[f.ID]
		if ok && !f.Again && (k.state == Done || k.state == Poison) {
			s.topic.finish(f)
			continue
		}
		if twin := s.flights[f.ID]; twin != nil && !s.topic.isLost(twin) {
			twin.twins = append(twin.twins, f)
			continue
		}
		if k.state == Working && !f.mine { // of workers that are gone
			f.Tries = k.tries
		}
		if f.Tries >= wary && len(claims)+busy > 0 { // others must not die with it
			s.topic.back(list[i:]...)
			break
		}
		// A claim that comes late must not replace what another worker writes after this one has asked.
		f.written, f.State, f.mine = max(asked, k.written+1), Working, true
		f.Tries++
		s.flights[f.ID] = f
		claims = append(claims, f)
		if f.Tries > wary {
			s.topic.back(list[i+1:]...)
			break
		}
	}
	s.mu.Unlock()
	if len(claims) == 0 {
		return nil, nil
	}
	if err := s.facts.states(ctx, claims); err != nil {
		for _, f := range claims {
			s.release(f)
		}
		return nil, err
	}
	s.ready = claims[1:]
	r := claims[0].Recording
	return &r, nil
}

// release makes a claim wait again.
func (s *shared) release(f *flight) {
	s.mu.Lock()
	f.Tries--
	s.mu.Unlock()
	s.drop(f)
	s.topic.back(f)
}

// drop ends a claim. What is the same recording waits again.
func (s *shared) drop(f *flight) {
	s.mu.Lock()
	if s.flights[f.ID] == f {
		delete(s.flights, f.ID)
	}
	twins := f.twins
	f.twins = nil
	s.mu.Unlock()
	s.topic.back(twins...)
}

// held returns the claim of a recording, nil if another worker has it.
func (s *shared) held(r *Recording) *flight {
	s.mu.Lock()
	f := s.flights[r.ID]
	is := f != nil && f.Tries == r.Tries
	s.mu.Unlock()
	if is && s.topic.isLost(f) {
		s.drop(f)
		is = false
	}
	if !is {
		return nil
	}
	return f
}

func (s *shared) Depth() int { return chunk }

func (s *shared) Renew(_ context.Context, r *Recording, _ time.Time) (bool, error) {
	return s.held(r) != nil, nil // Kafka's own heartbeats hold the partition
}

func (s *shared) Release(_ context.Context, r *Recording) error {
	if f := s.held(r); f != nil {
		s.release(f)
	}
	return nil
}

func (s *shared) Fail(ctx context.Context, r *Recording, poison bool, why string) error {
	f := s.held(r)
	if f == nil {
		return nil
	}
	if !poison {
		s.drop(f)
		s.topic.back(f)
		return nil
	}
	f.State, f.Error = Poison, why[:min(len(why), 1000)]
	return s.write(ctx, &outcome{flight: f})
}

func (s *shared) Finish(ctx context.Context, r *Recording, add *rows.Rows) (folded bool, err error) {
	f := s.held(r)
	if f == nil {
		return false, nil
	}
	f.State, f.Error = Done, ""
	e := &outcome{flight: f, now: &counted{r.Labels, *add}}
	err = s.write(ctx, e)
	return e.folded, err
}

// write waits until an outcome is written with others.
func (s *shared) write(ctx context.Context, e *outcome) error {
	e.end = make(chan error, 1)
	s.mu.Lock()
	s.batch = append(s.batch, e)
	s.mu.Unlock()
	select {
	case s.kick <- struct{}{}:
	default:
	}
	select {
	case err := <-e.end:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-e.end:
		return err
	case <-time.After(grace):
		return ctx.Err()
	}
}

// flush writes what has gathered, until it is written: while ClickHouse does not answer, workers wait for it.
func (s *shared) flush(ctx context.Context) {
	for {
		select {
		case <-s.kick:
		case <-ctx.Done():
			return
		}
		sleep(ctx, s.linger)
		s.mu.Lock()
		batch := s.batch
		s.batch = nil
		s.mu.Unlock()
		for {
			batch = slices.DeleteFunc(batch, func(e *outcome) bool { // another member explains it, and would write it at the same time
				lost := s.topic.isLost(e.flight)
				if lost {
					s.drop(e.flight)
					e.end <- nil
				}
				return lost
			})
			if len(batch) == 0 {
				break
			}
			for _, e := range batch {
				e.written = max(time.Now().UnixNano(), e.written+1) // also where another machine's clock was ahead
			}
			err := s.facts.rows(ctx, batch)
			if err == nil {
				err = s.facts.states(ctx, column(batch, func(e **outcome) *flight { return (*e).flight }))
			}
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return
			}
			sleep(ctx, 5*s.linger)
		}
		for _, e := range batch {
			s.topic.finish(e.flight)
			s.mu.Lock()
			twins := e.twins
			e.twins = nil
			delete(s.flights, e.ID)
			s.mu.Unlock()
			for _, f := range twins {
				if f.Again != e.Again { // asked for after it was explained
					s.topic.back(f)
				} else {
					s.topic.finish(f)
				}
			}
			e.end <- nil
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (s *shared) Again(ctx context.Context, service string, from time.Time) (int64, error) {
	list, err := collect(ctx, s.r, scanRecording, `SELECT `+recordingColumns+` FROM recordings WHERE raw=1 AND state IN ('done','poison') AND (?='' OR service=?) AND received>=?`,
		service, service, from.UnixNano())
	for part := range slices.Chunk(list, 1000) {
		if err != nil {
			break
		}
		var messages []message
		for _, r := range part {
			r.State, r.Tries, r.Error = "", 0, ""
			messages = append(messages, message{r, true})
		}
		err = s.topic.add(ctx, messages...)
	}
	return int64(len(list)), err
}

// States counts what waits by the topic, as far as Kafka answers.
func (s *shared) States(ctx context.Context) (map[string]int64, error) {
	out, err := s.count(ctx, `SELECT state, toInt64(count()) FROM recordings_rows FINAL GROUP BY state`)
	if err != nil {
		return nil, err
	}
	short, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, lag, err := s.topic.committed(short); err == nil {
		out[Waiting] = max(0, lag-out[Working])
	}
	return out, nil
}

// Has keeps a file that nothing is known of as long as others: what waits is not known here.
func (s *shared) Has(ctx context.Context, id string, age, keep time.Duration) (bool, error) {
	var n, gone int
	err := s.r.QueryRowContext(ctx, `SELECT count(*), countIf(raw=0) FROM recordings_rows FINAL WHERE id=?`, id).Scan(&n, &gone)
	return n > gone || n == 0 && age < keep+day, err
}

func (s *shared) Drop(ctx context.Context, now time.Time, maxAge time.Duration, maxBytes int64) (out []Dropped, err error) {
	oldest := now.Add(-maxAge).UnixNano()
	var total int64
	if err := s.r.QueryRowContext(ctx, `SELECT sum(bytes) FROM recordings WHERE raw=1`).Scan(&total); err != nil {
		return nil, err
	}
	list, err := collect(ctx, s.r, scanRecording, `SELECT `+recordingColumns+` FROM recordings WHERE raw=1 AND state IN ('done','poison') AND (received<? OR ?)
		ORDER BY received>=?, id IN (SELECT argMin(id, received) FROM recordings WHERE raw=1 AND class<>'' GROUP BY class), received LIMIT 1000`, oldest, number(total > maxBytes), oldest)
	if err != nil {
		return nil, err
	}
	var gone []*flight
	for _, r := range list {
		d := Dropped{r.ID, "age"}
		if r.Received.UnixNano() >= oldest {
			if d.Why = "bytes"; total <= maxBytes {
				break
			}
		}
		total -= r.Bytes
		r.Raw = false
		out, gone = append(out, d), append(gone, &flight{message: message{Recording: r}, written: time.Now().UnixNano()})
	}
	if len(gone) == 0 {
		return nil, s.topic.trim(ctx)
	}
	return out, s.facts.states(ctx, gone)
}

func number(is bool) int {
	if is {
		return 1
	}
	return 0
}

func (s *shared) Forget(ctx context.Context, now, before time.Time) error {
	return errors.Join(s.tokens.expire(ctx, now), forgetClickHouse(ctx, s.click, before))
}

func (s *shared) Backup(context.Context, string) error {
	return errors.New("with -kafka, there is no file to copy: Kafka, ClickHouse and S3 keep everything, and have their own means")
}
