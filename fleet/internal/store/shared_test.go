package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"modernc.org/sqlite"

	"github.com/whylate/whylate/fleet/internal/enginetest"
	"github.com/whylate/whylate/fleet/internal/raw"
	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testfull"
)

// memoryFacts is a factStore in maps. The last written state of a recording counts.
type memoryFacts struct {
	mu            sync.Mutex
	states        map[string]recordingState
	contributions map[string]*contribution // by recording, like the key of the table in ClickHouse
	written       map[string]int64         // of contributions, by recording
}

func (m *memoryFacts) recordingStates(_ context.Context, ids []string) (map[string]recordingState, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[string]recordingState)
	for _, id := range ids {
		if k, ok := m.states[id]; ok {
			out[id] = k
		}
	}
	return out, nil
}

func (m *memoryFacts) writeStates(_ context.Context, flights []*flight) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range flights {
		if f.written >= m.states[f.ID].written {
			m.states[f.ID] = recordingState{f.State, f.Tries, f.written}
		}
	}
	return nil
}

func (m *memoryFacts) writeRows(_ context.Context, outcomes []*outcome) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range outcomes {
		if o.contribution != nil && o.written >= m.written[o.ID] {
			m.contributions[o.ID], m.written[o.ID] = o.contribution, o.written
		}
	}
	return nil
}

func (m *memoryFacts) visitSums(_ context.Context, sum func(group, cause string, bucket, n, ns int64)) error {
	for _, c := range m.contributions {
		for _, s := range c.Rows.Sums {
			sum(s.Group, s.Cause, s.Bucket, s.N, s.NS)
		}
	}
	return nil
}

// unreliableFacts is a factStore whose calls may fail, may succeed with an error, or may take effect later, after other workers
// have written.
type unreliableFacts struct {
	factStore
	mu           sync.Mutex
	chance       *rand.Rand     // nil: no call fails
	delayedCalls []func() error // with contexts that outlive their callers: what has been sent arrives although the sender was killed
}

var errDown = errors.New("the database is down")

func (u *unreliableFacts) call(f func() error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.chance != nil {
		switch u.chance.IntN(24) {
		case 0:
			return errDown
		case 1:
			return errors.Join(f(), errDown)
		case 2:
			u.delayedCalls = append(u.delayedCalls, f)
			return errDown
		}
	}
	return f()
}

func (u *unreliableFacts) recordingStates(ctx context.Context, ids []string) (out map[string]recordingState, err error) {
	return out, u.call(func() error { out, err = u.factStore.recordingStates(ctx, ids); return err })
}

func (u *unreliableFacts) writeStates(ctx context.Context, flights []*flight) error {
	sent := mapSlice(flights, func(f **flight) *flight { g := **f; return &g }) // copied now, since a delayed call runs later
	ctx = context.WithoutCancel(ctx)
	return u.call(func() error { return u.factStore.writeStates(ctx, sent) })
}

func (u *unreliableFacts) writeRows(ctx context.Context, outcomes []*outcome) error {
	sent := mapSlice(outcomes, func(e **outcome) *outcome {
		f, o := *(*e).flight, **e
		o.flight = &f
		return &o
	})
	ctx = context.WithoutCancel(ctx)
	return u.call(func() error { return u.factStore.writeRows(ctx, sent) })
}

// runDelayed runs the delayed calls. If makeReliable is set, later calls do not fail.
func (u *unreliableFacts) runDelayed(makeReliable bool) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	var all []error
	for _, f := range u.delayedCalls {
		all = append(all, f())
	}
	u.delayedCalls = nil
	if makeReliable {
		u.chance = nil
	}
	return errors.Join(all...)
}

// newMember returns the ledger of a worker that has joined the consumer group.
func newMember(t *testing.T, address string, f factStore) *sharedLedger {
	topic := must.Have(openTopic(t.Context(), address, true))(t)
	s := &sharedLedger{topic: topic, facts: f, linger: time.Millisecond}
	s.startFlushing()
	return s
}

// kill ends a worker like SIGKILL: another worker gets its unfinished recordings.
func (s *sharedLedger) kill() {
	s.topic.mu.Lock()
	partitions := slices.Collect(maps.Keys(s.topic.uncommitted))
	s.topic.mu.Unlock()
	s.topic.losePartitions(partitions)
	s.close()
}

// testSharedQueue runs random steps of workers in a consumer group: they claim, finish, fail and release recordings, die, and
// lose commits, with an unreliable database. At the end, each added recording is done or poison, counts exactly as one of its
// explanations, and no recording waits.
func testSharedQueue(t *testing.T, address string, f factStore, visitSums func(context.Context, func(group, cause string, bucket, n, ns int64)) error, seed uint64, steps int) {
	random := rand.New(rand.NewPCG(seed, 0))
	unreliable := &unreliableFacts{factStore: f, chance: rand.New(rand.NewPCG(seed, 1))}
	workers := []*sharedLedger{newMember(t, address, unreliable), newMember(t, address, unreliable)}
	claims := make([][]*Recording, len(workers))
	added, explained, poison := make(map[string]bool), make(map[string][]map[int64]int64), make(map[string]bool)
	ctx := t.Context()
	finish := func(worker *sharedLedger, claim *Recording) {
		explanation, list := make(map[int64]int64), []rows.Sum(nil)
		for range 2 { // each explanation differs, as with another version of the program
			explanation[int64(1+random.IntN(4))] = int64(1 + random.IntN(100))
		}
		for bucket, n := range explanation {
			list = append(list, rows.Sum{Group: claim.ID, Bucket: bucket, N: n})
		}
		explained[claim.ID] = append(explained[claim.ID], explanation)
		must.Have(worker.Finish(ctx, claim, &rows.Rows{Start: claim.Received, Cause: "cpu", Sums: list}))(t)
	}
	for range steps {
		i := random.IntN(len(workers))
		worker := workers[i]
		var claim *Recording
		if n := len(claims[i]); n > 0 {
			claim = claims[i][random.IntN(n)]
		}
		drop := func() { claims[i] = slices.DeleteFunc(claims[i], func(o *Recording) bool { return o == claim }) }
		switch step := random.IntN(20); {
		case step < 6:
			id := fmt.Sprintf("%032x", 1000*int(seed)+random.IntN(40))
			must.Do(t, worker.AddRecording(ctx, Recording{ID: id, Labels: rows.Labels{Service: "shop"}, Received: time.Now()}))
			added[id] = true
		case step < 13:
			got, err := worker.Claim(ctx, time.Now(), time.Minute)
			if err != nil && !errors.Is(err, errDown) {
				t.Fatal(err)
			}
			if got != nil {
				must.True(t, added[got.ID] && got.Tries >= 1, "claimed %+v", got)
				claims[i] = append(claims[i], got)
			}
		case step == 13:
			worker.kill()
			workers[i], claims[i] = newMember(t, address, unreliable), nil
		case step == 14: // lose the commits: go back to the first offsets
			for _, worker := range workers {
				worker.kill()
			}
			topic, err := openTopic(ctx, address, false)
			must.Do(t, err)
			starts, err := topic.admin.ListStartOffsets(ctx, topic.name)
			must.Do(t, err)
			offsets := make(kadm.Offsets)
			starts.Each(func(o kadm.ListedOffset) { offsets.AddOffset(o.Topic, o.Partition, o.Offset, -1) })
			must.Have(topic.admin.CommitOffsets(ctx, consumerGroup, offsets))(t)
			topic.client.Close()
			for i := range workers {
				workers[i], claims[i] = newMember(t, address, unreliable), nil
			}
		case step == 15 && random.IntN(2) == 0:
			must.Do(t, unreliable.runDelayed(false))
		case claim == nil:
		case step == 15:
			must.Do(t, worker.Release(ctx, claim))
			drop()
		case step == 16:
			isPoison := random.IntN(2) == 0
			must.Do(t, worker.Fail(ctx, claim, isPoison, "why"))
			poison[claim.ID] = poison[claim.ID] || isPoison
			drop()
		default:
			finish(worker, claim)
			drop()
		}
	}
	must.Do(t, unreliable.runDelayed(true))
	for _, worker := range workers {
		worker.kill()
	}
	worker := newMember(t, address, unreliable)
	defer worker.close()
	for lag := int64(1); lag > 0; { // the time limit of the test bounds the loop
		claim, err := worker.Claim(ctx, time.Now(), time.Minute)
		must.Do(t, err)
		if claim != nil {
			finish(worker, claim)
			continue
		}
		if _, lag, err = worker.topic.progress(ctx); err != nil {
			t.Fatal(err)
		}
	}
	all, err := unreliable.recordingStates(ctx, slices.Collect(maps.Keys(added)))
	counts := make(map[string]map[int64]int64)
	if err == nil {
		err = visitSums(ctx, func(id, _ string, bucket, n, _ int64) {
			if counts[id] == nil {
				counts[id] = make(map[int64]int64)
			}
			counts[id][bucket] += n
		})
	}
	check.True(t, err == nil && len(all) == len(added), "seed %d: %d recordings are known, want %d, %v", seed, len(all), len(added), err)
	for id, k := range all {
		check.False(t, k.state != Done && (k.state != Poison || !poison[id]), "seed %d: %s is %s", seed, id, k.state)
		if k.state == Done && !slices.ContainsFunc(explained[id], func(e map[int64]int64) bool { return maps.Equal(e, counts[id]) }) {
			t.Errorf("seed %d: %s counts %v, and was explained as %v", seed, id, counts[id], explained[id])
		}
	}
}

// TestSharedQueue tests the queue of several machines with a fake Kafka.
func TestSharedQueue(t *testing.T) {
	seeds := uint64(3)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		c := must.Have(kfake.NewCluster(kfake.NumBrokers(1)))(t)
		m := &memoryFacts{states: make(map[string]recordingState), contributions: make(map[string]*contribution), written: make(map[string]int64)}
		testSharedQueue(t, "kafka://"+c.ListenAddrs()[0]+"/whylate?partitions=3", m, m.visitSums, seed, 150)
		c.Close()
	}
}

// argMin and countIf are the aggregates of ClickHouse with these names.
type argMin struct{ argument, value driver.Value }

func (a *argMin) Step(_ *sqlite.FunctionContext, args []driver.Value) error {
	if a.value == nil || args[1].(int64) < a.value.(int64) {
		a.argument, a.value = args[0], args[1]
	}
	return nil
}
func (a *argMin) WindowInverse(*sqlite.FunctionContext, []driver.Value) error {
	return errors.ErrUnsupported
}
func (a *argMin) WindowValue(*sqlite.FunctionContext) (driver.Value, error) { return a.argument, nil }
func (a *argMin) Final(*sqlite.FunctionContext)                             {}

type countIf int64

func (c *countIf) Step(_ *sqlite.FunctionContext, args []driver.Value) error {
	*c += countIf(args[0].(int64))
	return nil
}
func (c *countIf) WindowInverse(*sqlite.FunctionContext, []driver.Value) error {
	return errors.ErrUnsupported
}
func (c *countIf) WindowValue(*sqlite.FunctionContext) (driver.Value, error) { return int64(*c), nil }
func (c *countIf) Final(*sqlite.FunctionContext)                             {}

// addClickHouseFunctions adds functions of ClickHouse to SQLite.
var addClickHouseFunctions = sync.OnceFunc(func() {
	sqlite.MustRegisterFunction("argMin", &sqlite.FunctionImpl{NArgs: 2, MakeAggregate: func(sqlite.FunctionContext) (sqlite.AggregateFunction, error) { return new(argMin), nil }})
	sqlite.MustRegisterFunction("countIf", &sqlite.FunctionImpl{NArgs: 1, MakeAggregate: func(sqlite.FunctionContext) (sqlite.AggregateFunction, error) { return new(countIf), nil }})
	sqlite.MustRegisterDeterministicScalarFunction("toInt64", 1, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) { return args[0], nil })
})

// TestSharedRequeue: with a fake Kafka, a done recording is explained again only after Requeue. The number of waiting recordings
// excludes those that a worker holds. SQLite replaces ClickHouse.
func TestSharedRequeue(t *testing.T) {
	addClickHouseFunctions()
	c := must.Have(kfake.NewCluster(kfake.NumBrokers(1)))(t)
	defer c.Close()
	m := &memoryFacts{states: make(map[string]recordingState), contributions: make(map[string]*contribution), written: make(map[string]int64)}
	w := newMember(t, "kafka://"+c.ListenAddrs()[0]+"/whylate?partitions=1", m)
	defer w.close()
	clickhouse := openTestStore(t)
	w.databases = clickhouse.databases
	ctx := t.Context()
	must.Have(clickhouse.writer.Exec(`CREATE VIEW recordings_rows AS SELECT * FROM recordings`))(t)
	// setState sets the state of a recording in SQLite.
	setState := func(id, state string) {
		t.Helper()
		must.Have(clickhouse.writer.Exec(`INSERT INTO recordings VALUES (?,'shop','','','','',?,100,?,1,0,'',1,'',NULL) ON CONFLICT DO UPDATE SET state=excluded.state`, id, time.Now().UnixNano(), state))(t)
	}
	// claim waits for the next recording, or until all are finished.
	claim := func() *Recording {
		t.Helper()
		for {
			r := must.Have(w.Claim(ctx, time.Now(), time.Minute))(t)
			if r != nil {
				setState(r.ID, Working)
				return r
			}
			if _, lag, err := w.topic.progress(ctx); err != nil || lag == 0 {
				return nil
			}
		}
	}
	finish := func(r *Recording, n int64) {
		t.Helper()
		must.Have(w.Finish(ctx, r, &rows.Rows{Start: r.Received, Requests: n}))(t)
		setState(r.ID, Done)
	}
	send := func(ids ...string) {
		t.Helper()
		for _, id := range ids {
			must.Do(t, w.AddRecording(ctx, Recording{ID: id, Labels: rows.Labels{Service: "shop"}, Received: time.Now()}))
		}
	}
	checkStates := func(waiting, working, done int64) {
		t.Helper()
		got, err := w.CountByState(ctx)
		check.True(t, err == nil && got[Waiting] == waiting && got[Working] == working && got[Done] == done,
			"%v %v, want %d waiting, %d working, %d done", got, err, waiting, working, done)
	}
	send("a", "b", "c")
	checkStates(3, 0, 0)
	r := claim()
	checkStates(2, 1, 0)
	for n := int64(1); r != nil; n++ {
		finish(r, n)
		r = claim()
	}
	checkStates(0, 0, 3)
	send("a") // sent a second time
	if r := claim(); r != nil {
		t.Errorf("%+v is explained a second time", r)
	}
	if n, err := w.Requeue(ctx, "shop", time.Unix(0, 0)); n != 3 || err != nil {
		t.Error(n, err)
	}
	requeued := make(map[string]bool)
	for r := claim(); r != nil; r = claim() {
		requeued[r.ID] = true
		finish(r, 100)
	}
	check.True(t, len(requeued) == 3 && m.contributions["a"].Rows.Requests == 100, "%v are explained again", requeued)
	checkStates(0, 0, 3)
}

// TestSharedQueueKafka is TestSharedQueue with a real Kafka, one topic for each seed, and a real ClickHouse.
func TestSharedQueueKafka(t *testing.T) {
	testfull.Need(t, "Kafka and ClickHouse")
	e := enginetest.Kafka(t)
	db := must.Have(openClickHouse(t.Context(), enginetest.ClickHouse(t).Address))(t)
	defer db.Close()
	d := &databases{clickhouse: db, rowReader: db, reader: db}
	for seed := range uint64(3) {
		testSharedQueue(t, fmt.Sprint(e.Address[:len(e.Address)-len("?partitions=4")], seed, "?partitions=3"), &clickhouseFacts{db: db}, (&Store{databases: d, Ledger: sqliteLedger{d}}).VisitSums, 100+seed, 150)
	}
}

// newSharedWorker returns a worker alone in its consumer group, and the store that it writes to.
func newSharedWorker(t *testing.T) (*sharedLedger, *memoryFacts) {
	c := must.Have(kfake.NewCluster(kfake.NumBrokers(1)))(t)
	t.Cleanup(c.Close)
	m := &memoryFacts{states: make(map[string]recordingState), contributions: make(map[string]*contribution), written: make(map[string]int64)}
	w := newMember(t, "kafka://"+c.ListenAddrs()[0]+"/whylate?partitions=1", m)
	t.Cleanup(w.close)
	return w, m
}

// send adds recordings to the queue.
func (s *sharedLedger) send(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		must.Do(t, s.AddRecording(t.Context(), Recording{ID: id, Received: time.Now()}))
	}
}

// claimNext waits for a claim.
func (s *sharedLedger) claimNext(t *testing.T) *Recording {
	t.Helper()
	for { // the time limit of the test ends the loop
		if r := must.Have(s.Claim(t.Context(), time.Now(), time.Minute))(t); r != nil {
			return r
		}
	}
}

// TestSharedClaims: how claims end, and how often a recording counts as tried.
func TestSharedClaims(t *testing.T) {
	w, m := newSharedWorker(t)
	ctx := t.Context()
	w.send(t, "a")
	r := w.claimNext(t)
	held, stale := must.Have(w.Renew(ctx, r, time.Time{}))(t), must.Have(w.Renew(ctx, &Recording{ID: "a", Tries: r.Tries + 1}, time.Time{}))(t)
	check.True(t, r.Tries == 1 && held && !stale && w.IsNotifier(), "%+v: held %v, with another try %v", r, held, stale)
	must.Do(t, w.Release(ctx, r))
	check.False(t, must.Have(w.Renew(ctx, r, time.Time{}))(t), "a released claim is held")
	for try := range 2 { // the released try does not count
		r = w.claimNext(t)
		check.Equal(t, r.Tries, try+1, "tries")
		must.Do(t, w.Fail(ctx, r, false, "why"))
	}
	stale3 := *r
	r = w.claimNext(t)
	for _, err := range []error{w.Fail(ctx, &stale3, true, "why"), w.Release(ctx, &stale3)} { // a claim that has ended
		must.Do(t, err)
	}
	folded, err := w.Finish(ctx, &stale3, new(rows.Rows))
	check.True(t, !folded && err == nil && m.states["a"].state == Working, "%+v %v", m.states, err)
	must.Do(t, w.Fail(ctx, r, true, "why"))
	check.True(t, m.states["a"].state == Poison && m.states["a"].tries == 3, "%+v", m.states)
	check.Equal(t, must.Have(w.CountQueued(ctx, "any"))(t) <= 1, true, "queued")
	isKnown, err := w.IsKnown(ctx, "a")
	check.True(t, !isKnown && err == nil && w.ClaimsPerChild() == claimBatch, "known %v, %v", isKnown, err)
	check.Error(t, w.Backup(ctx, "x"), "a copy of no file")
}

// TestRiskyRecording: a recording whose workers ended three times is explained alone.
func TestRiskyRecording(t *testing.T) {
	for _, order := range [][]string{{"risky", "x", "y"}, {"x", "risky", "y"}} {
		w, m := newSharedWorker(t)
		m.states["risky"] = recordingState{Working, riskyTries, 1}
		w.send(t, order...)
		var got []string
		for range order {
			r := w.claimNext(t)
			got = append(got, fmt.Sprint(r.ID, r.Tries))
			if r.ID == "risky" {
				next, err := w.Claim(t.Context(), time.Now(), time.Minute)
				check.True(t, next == nil && err == nil, "%+v next to it, %v", next, err)
			}
			must.Have(w.Finish(t.Context(), r, &rows.Rows{Start: r.Received}))(t)
		}
		slices.Sort(got)
		check.Equal(t, fmt.Sprint(got), "[risky4 x1 y1]", "claims")
	}
	w, m := newSharedWorker(t)
	m.states["a"], m.states["b"] = recordingState{Working, riskyTries - 1, 1}, recordingState{Waiting, 9, 1}
	w.send(t, "a", "b")
	a, b := w.claimNext(t), w.claimNext(t)
	check.True(t, a.Tries == riskyTries && b.Tries == 1, "%+v %+v", a, b)
}

// failingFacts fails in one of its methods.
type failingFacts struct {
	*memoryFacts
	reads, writes bool
}

func (f *failingFacts) recordingStates(ctx context.Context, ids []string) (map[string]recordingState, error) {
	if f.reads {
		return nil, errDown
	}
	return f.memoryFacts.recordingStates(ctx, ids)
}

func (f *failingFacts) writeStates(ctx context.Context, flights []*flight) error {
	if f.writes {
		return errDown
	}
	return f.memoryFacts.writeStates(ctx, flights)
}

// TestFailedClaims: while the database is down, no recording is claimed and none is lost.
func TestFailedClaims(t *testing.T) {
	w, m := newSharedWorker(t)
	f := &failingFacts{m, true, true}
	w.facts = f
	w.send(t, "a", "b")
	for _, next := range []func(){func() { f.reads = false }, func() { f.writes = false }} {
		for err := error(nil); err == nil; { // the time limit of the test ends the loop
			_, err = w.Claim(t.Context(), time.Now(), time.Minute)
		}
		next()
	}
	a, b := w.claimNext(t), w.claimNext(t)
	check.True(t, a.ID != b.ID && a.Tries == 1 && b.Tries == 1, "%+v %+v", a, b)
}

// TestOpenShared: a receiver needs no ClickHouse, and a store with an engine that does not answer is not opened.
func TestOpenShared(t *testing.T) {
	c := must.Have(kfake.NewCluster(kfake.NumBrokers(1)))(t)
	defer c.Close()
	address, _ := enginetest.S3(t)
	files, ctx := must.Have(raw.OpenS3(t.Context(), address, raw.Dir(t.TempDir())))(t), t.Context()
	kafka := "kafka://" + c.ListenAddrs()[0] + "/whylate?partitions=1"
	s := must.Have(OpenShared(ctx, kafka, "", files, false))(t)
	must.Do(t, s.AddToken(ctx, "a", SendScope, "shop", time.Now().Add(time.Hour)))
	must.Do(t, s.AddRecording(ctx, Recording{ID: "a", Received: time.Now()}))
	name, err := s.TokenName(ctx, "a", SendScope, time.Now())
	check.True(t, err == nil && name == "shop" && must.Have(s.CountQueued(ctx, "shop"))(t) == 1 && s.Ping(ctx) == nil, "%q %v", name, err)
	must.Do(t, s.Close())
	for _, clickhouse := range []string{"clickhouse://127.0.0.1:1/x", "clickhouse://%"} {
		_, err := OpenShared(ctx, kafka, clickhouse, files, false)
		check.True(t, err != nil && strings.Contains(err.Error(), "ClickHouse"), "%s: %v", clickhouse, err)
		_, err = Open(ctx, filepath.Join(t.TempDir(), "fleet.db"), clickhouse)
		check.True(t, err != nil && strings.Contains(err.Error(), "ClickHouse"), "%s: %v", clickhouse, err)
	}
	_, err = OpenShared(ctx, "kafka://", "", files, false)
	check.Error(t, err, "there is no topic")
}

// TestKafkaPasswords: openTopic authenticates by each mechanism, and makes a topic with as many partitions as the address says.
func TestKafkaPasswords(t *testing.T) {
	for name, method := range map[string]string{"plain": "PLAIN", "scram-sha-256": "SCRAM-SHA-256", "scram-sha-512": "SCRAM-SHA-512"} {
		c := must.Have(kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser(method, "u", "p@w")))(t)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		for suffix, partitions := range map[string]int{"": 12, "&partitions=1": 1} {
			topic, err := openTopic(ctx, "kafka://u:p%40w@"+c.ListenAddrs()[0]+"/t"+strconv.Itoa(partitions)+"?sasl="+name+suffix, false)
			must.Do(t, err, name)
			ends := must.Have(topic.admin.ListEndOffsets(ctx, topic.name))(t)
			check.Equal(t, len(ends[topic.name]), partitions, "%s%s: partitions", name, suffix)
			topic.client.Close()
		}
		cancel()
		c.Close()
	}
}

// TestKafkaAddress: an invalid address is an error.
func TestKafkaAddress(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(2))
	must.Do(t, err)
	defer c.Close()
	all := c.ListenAddrs()
	for _, address := range []string{"", "kafka://", "kafka://host", "kafka://host:1/", "http://host/topic", "kafka://host/topic?x=1", "kafka://host/topic?sasl=none", "kafka://host/topic?partitions=0"} {
		if _, err := openTopic(t.Context(), address, false); err == nil {
			t.Errorf("%q is an address", address)
		}
	}
	topic, err := openTopic(t.Context(), "kafka://"+all[0]+","+all[1]+"/a?partitions=2", false)
	must.Do(t, err)
	defer topic.client.Close()
	check.Equal(t, len(topic.client.SeedBrokers()), 2, "brokers")
}
