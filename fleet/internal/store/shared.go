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

// sharedLedger is the ledger of a fleet on several machines. The queue is a topic of Kafka, tokens are names of empty files next
// to the recordings, and states of recordings are in ClickHouse. A receiver needs no ClickHouse.
type sharedLedger struct {
	sqliteLedger // for queries that are the same in ClickHouse
	topic        *topic
	facts        factStore
	tokenFiles   *tokenFiles

	claimMutex   sync.Mutex
	readyClaims  []*flight // claimed and not returned by Claim yet
	mu           sync.Mutex
	flights      map[string]*flight // claimed, by id
	batch        []*outcome
	flushRequest chan struct{}
	linger       time.Duration // for which an outcome waits for others of its batch
	stopFlushing context.CancelFunc
	flushing     sync.WaitGroup
}

// factStore holds rows and states of recordings. It is ClickHouse, or a map in tests.
type factStore interface {
	// recordingStates returns the states of recordings, without those that have none.
	recordingStates(ctx context.Context, ids []string) (map[string]recordingState, error)
	// writeRows writes the rows of recordings, which replace earlier ones. If it fails, it may have written some of them. It may
	// be called again with the same outcomes, also concurrently by another worker.
	writeRows(ctx context.Context, outcomes []*outcome) error
	// writeStates writes the states of recordings.
	writeStates(ctx context.Context, flights []*flight) error
}

type recordingState struct {
	state   string
	tries   int
	written int64
}

// An outcome is the result of explaining a recording, to be written.
type outcome struct {
	*flight
	contribution *contribution // nil for poison
	folded       bool
	result       chan error
}

const (
	claimBatch = 16              // recordings that are claimed together
	stopGrace  = 5 * time.Second // for which a stopping worker waits for its rows
	riskyTries = 3               // tries after which a recording is explained alone
)

// OpenShared opens the ledger of a fleet on several machines. clickhouse is empty for a receiver. If work is set, the process
// consumes the topic.
func OpenShared(ctx context.Context, kafka, clickhouse string, files *raw.S3, work bool) (_ *Store, err error) {
	s := &sharedLedger{sqliteLedger: sqliteLedger{new(databases)}, tokenFiles: &tokenFiles{files: files.WithPrefix("tokens")}, linger: 200 * time.Millisecond}
	if clickhouse != "" {
		if s.clickhouse, err = openClickHouse(ctx, clickhouse); err != nil {
			return nil, err
		}
		s.rowReader, s.reader = s.clickhouse, s.clickhouse
		s.facts = &clickhouseFacts{db: s.clickhouse}
	}
	if s.topic, err = openTopic(ctx, kafka, work); err != nil {
		return nil, errors.Join(err, (&Store{databases: s.databases, Ledger: sqliteLedger{}}).Close())
	}
	s.startFlushing()
	return &Store{databases: s.databases, Ledger: s}, nil
}

// startFlushing starts the goroutine that writes outcomes.
func (s *sharedLedger) startFlushing() {
	ctx, stop := context.WithCancel(context.Background())
	s.flights, s.flushRequest, s.stopFlushing = make(map[string]*flight), make(chan struct{}, 1), stop
	s.flushing.Go(func() { s.runFlushing(ctx) })
}

// close waits until the last batch of outcomes is written, and leaves the group of consumers.
func (s *sharedLedger) close() {
	s.stopFlushing()
	s.flushing.Wait()
	s.topic.client.Close() // Close commits and leaves the group
}

// ping returns an error if Kafka or the store of tokens does not answer.
func (s *sharedLedger) ping(ctx context.Context) error {
	err := s.topic.client.Ping(ctx)
	if err != nil {
		err = fmt.Errorf("asking Kafka: %w", err)
	}
	return errors.Join(err, s.tokenFiles.files.Ping(ctx))
}

// AddRecording adds a recording to the topic. A known one is added again, and recognised when it is claimed.
func (s *sharedLedger) AddRecording(ctx context.Context, r Recording) error {
	r.Raw = true
	return s.topic.add(ctx, queueMessage{Recording: r})
}

// IsKnown is always false: a receiver cannot query ClickHouse. The worker detects recordings that are done.
func (s *sharedLedger) IsKnown(context.Context, string) (bool, error) { return false, nil }

func (s *sharedLedger) Recording(ctx context.Context, id string) (*Recording, error) {
	return optionalRecording(scanRecording(s.reader.QueryRowContext(ctx, `SELECT `+recordingColumns+` FROM recordings_rows FINAL WHERE id=?`, id).Scan)) // the view recordings would read all rows
}

// CountQueued counts the recordings of all services, since Kafka cannot count those of one.
func (s *sharedLedger) CountQueued(ctx context.Context, _ string) (int, error) {
	_, lag, err := s.topic.progress(ctx)
	return int(lag), err
}

// Claim polls up to claimBatch messages, writes their claims together, and returns them one by one; nil if there is no recording now, after a short
// wait. It finishes messages of recordings that are done, and attaches messages of a recording in work to its claim. A recording with riskyTries
// tries is claimed alone.
func (s *sharedLedger) Claim(ctx context.Context, _ time.Time, _ time.Duration) (*Recording, error) {
	s.claimMutex.Lock()
	defer s.claimMutex.Unlock()
	for len(s.readyClaims) > 0 {
		f := s.readyClaims[0]
		s.readyClaims = s.readyClaims[1:]
		if !s.topic.isLost(f) {
			r := f.Recording
			return &r, nil
		}
		s.endFlight(f)
	}
	s.mu.Lock()
	runningClaims := len(s.flights)
	for _, f := range s.flights {
		if f.Tries > riskyTries {
			s.mu.Unlock()
			return nil, nil
		}
	}
	s.mu.Unlock()
	polled := s.topic.poll(ctx, claimBatch, s.linger/2)
	ids := make([]string, len(polled))
	for i, f := range polled {
		ids[i] = f.ID
	}
	if len(ids) == 0 {
		return nil, nil
	}
	readAt := time.Now().UnixNano()
	states, err := s.facts.recordingStates(ctx, ids)
	if err != nil {
		s.topic.putBack(polled...)
		return nil, err
	}
	var claims []*flight
	s.mu.Lock()
	for i, f := range polled {
		state, hasState := states[f.ID]
		if hasState && !f.Repeat && (state.state == Done || state.state == Poison) {
			s.topic.markFinished(f)
			continue
		}
		if claimed := s.flights[f.ID]; claimed != nil && !s.topic.isLost(claimed) {
			claimed.duplicates = append(claimed.duplicates, f)
			continue
		}
		if state.state == Working && !f.countsTries { // its worker has ended
			f.Tries = state.tries
		}
		if f.Tries >= riskyTries && len(claims)+runningClaims > 0 { // its crash must not end other claims
			s.topic.putBack(polled[i:]...)
			break
		}
		// A delayed write of this claim must not replace what another worker writes later.
		f.written, f.State, f.countsTries = max(readAt, state.written+1), Working, true
		f.Tries++
		s.flights[f.ID] = f
		claims = append(claims, f)
		if f.Tries > riskyTries {
			s.topic.putBack(polled[i+1:]...)
			break
		}
	}
	s.mu.Unlock()
	if len(claims) == 0 {
		return nil, nil
	}
	if err := s.facts.writeStates(ctx, claims); err != nil {
		for _, f := range claims {
			s.releaseFlight(f)
		}
		return nil, err
	}
	s.readyClaims = claims[1:]
	r := claims[0].Recording
	return &r, nil
}

// releaseFlight ends a claim, which then does not count as a try, and puts its recording back into the queue.
func (s *sharedLedger) releaseFlight(f *flight) {
	s.mu.Lock()
	f.Tries--
	s.mu.Unlock()
	s.endFlight(f)
	s.topic.putBack(f)
}

// endFlight ends this process's claim and puts other messages about the recording back into the queue.
func (s *sharedLedger) endFlight(f *flight) {
	s.mu.Lock()
	if s.flights[f.ID] == f {
		delete(s.flights, f.ID)
	}
	duplicates := f.duplicates
	f.duplicates = nil
	s.mu.Unlock()
	s.topic.putBack(duplicates...)
}

// heldFlight returns the claim of a recording, nil if this process no longer holds it.
func (s *sharedLedger) heldFlight(r *Recording) *flight {
	s.mu.Lock()
	f := s.flights[r.ID]
	isHeld := f != nil && f.Tries == r.Tries
	s.mu.Unlock()
	if isHeld && s.topic.isLost(f) {
		s.endFlight(f)
		isHeld = false
	}
	if !isHeld {
		return nil
	}
	return f
}

func (s *sharedLedger) ClaimsPerChild() int { return claimBatch }

func (s *sharedLedger) Renew(_ context.Context, r *Recording, _ time.Time) (bool, error) {
	return s.heldFlight(r) != nil, nil // heartbeats of the consumer hold the partition
}

// Release puts a claimed recording back into the queue; the try does not count. It does nothing if this process does not hold
// the claim any more.
func (s *sharedLedger) Release(_ context.Context, r *Recording) error {
	if f := s.heldFlight(r); f != nil {
		s.releaseFlight(f)
	}
	return nil
}

// Fail ends a claim: the recording goes back into the queue, or, with poison, is written as poison with the reason and not
// tried again. It does nothing if this process does not hold the claim any more.
func (s *sharedLedger) Fail(ctx context.Context, r *Recording, poison bool, reason string) error {
	f := s.heldFlight(r)
	if f == nil {
		return nil
	}
	if !poison {
		s.endFlight(f)
		s.topic.putBack(f)
		return nil
	}
	f.State, f.Error = Poison, reason[:min(len(reason), 1000)]
	return s.writeOutcome(ctx, &outcome{flight: f})
}

// Finish writes the rows of a recording with the next batch and marks it as done. folded reports whether labels, groups or
// findings were replaced by (other). It does nothing if this process does not hold the claim any more.
func (s *sharedLedger) Finish(ctx context.Context, r *Recording, newRows *rows.Rows) (folded bool, err error) {
	f := s.heldFlight(r)
	if f == nil {
		return false, nil
	}
	f.State, f.Error = Done, ""
	outcome := &outcome{flight: f, contribution: &contribution{r.Labels, *newRows}}
	err = s.writeOutcome(ctx, outcome)
	return outcome.folded, err
}

// writeOutcome adds an outcome to the next batch and waits until the batch is written. After the end of ctx it waits for stopGrace at most.
func (s *sharedLedger) writeOutcome(ctx context.Context, o *outcome) error {
	o.result = make(chan error, 1)
	s.mu.Lock()
	s.batch = append(s.batch, o)
	s.mu.Unlock()
	select {
	case s.flushRequest <- struct{}{}:
	default:
	}
	select {
	case err := <-o.result:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-o.result:
		return err
	case <-time.After(stopGrace):
		return ctx.Err()
	}
}

// runFlushing writes batches of outcomes. It repeats a failed write until it succeeds: while ClickHouse does not answer, workers
// wait.
func (s *sharedLedger) runFlushing(ctx context.Context) {
	for {
		select {
		case <-s.flushRequest:
		case <-ctx.Done():
			return
		}
		sleep(ctx, s.linger)
		s.mu.Lock()
		batch := s.batch
		s.batch = nil
		s.mu.Unlock()
		for {
			batch = slices.DeleteFunc(batch, func(o *outcome) bool { // another member now explains it
				lost := s.topic.isLost(o.flight)
				if lost {
					s.endFlight(o.flight)
					o.result <- nil
				}
				return lost
			})
			if len(batch) == 0 {
				break
			}
			for _, o := range batch {
				o.written = max(time.Now().UnixNano(), o.written+1) // even if another machine's clock was ahead
			}
			err := s.facts.writeRows(ctx, batch)
			if err == nil {
				err = s.facts.writeStates(ctx, mapSlice(batch, func(o **outcome) *flight { return (*o).flight }))
			}
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return
			}
			sleep(ctx, 5*s.linger)
		}
		for _, o := range batch {
			s.topic.markFinished(o.flight)
			s.mu.Lock()
			duplicates := o.duplicates
			o.duplicates = nil
			delete(s.flights, o.ID)
			s.mu.Unlock()
			for _, f := range duplicates {
				if f.Repeat != o.Repeat { // it was requeued after this claim
					s.topic.putBack(f)
				} else {
					s.topic.markFinished(f)
				}
			}
			o.result <- nil
		}
	}
}

// sleep returns after d, or as soon as ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Requeue adds explained and poison recordings to the queue again if their files are kept: those of a service ("" for all) that
// were received at from or later. It returns the number of those found, also if adding fails.
func (s *sharedLedger) Requeue(ctx context.Context, service string, from time.Time) (int64, error) {
	list, err := queryAll(ctx, s.reader, scanRecording, `SELECT `+recordingColumns+` FROM recordings WHERE raw=1 AND state IN ('done','poison') AND (?='' OR service=?) AND received>=?`,
		service, service, from.UnixNano())
	for chunk := range slices.Chunk(list, 1000) {
		if err != nil {
			break
		}
		var messages []queueMessage
		for _, r := range chunk {
			r.State, r.Tries, r.Error = "", 0, ""
			messages = append(messages, queueMessage{r, true})
		}
		err = s.topic.add(ctx, messages...)
	}
	return int64(len(list)), err
}

// CountByState returns the number of recordings by state. The number of waiting ones comes from the topic, and is missing if Kafka does not answer
// within five seconds.
func (s *sharedLedger) CountByState(ctx context.Context) (map[string]int64, error) {
	out, err := s.queryStateCounts(ctx, `SELECT state, toInt64(count()) FROM recordings_rows FINAL GROUP BY state`)
	if err != nil {
		return nil, err
	}
	shortCtx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, lag, err := s.topic.progress(shortCtx); err == nil {
		out[Waiting] = max(0, lag-out[Working])
	}
	return out, nil
}

// boolToInt returns 1 for true, as the tables store it.
func boolToInt(value bool) int {
	if value {
		return 1
	}
	return 0
}
