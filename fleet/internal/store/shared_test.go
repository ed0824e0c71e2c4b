package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"modernc.org/sqlite"

	"github.com/whylate/whylate/fleet/internal/enginetest"
	"github.com/whylate/whylate/fleet/internal/raw"
	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/internal/testing/testfull"
)

// memory are facts in maps, in which what is written last counts.
type memory struct {
	mu      sync.Mutex
	of      map[string]known
	said    map[string]*counted // by recording, as it is the key of what ClickHouse keeps
	written map[string]int64    // of said
}

func (m *memory) known(_ context.Context, ids []string) (map[string]known, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[string]known)
	for _, id := range ids {
		if k, ok := m.of[id]; ok {
			out[id] = k
		}
	}
	return out, nil
}

func (m *memory) states(_ context.Context, flights []*flight) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range flights {
		if f.written >= m.of[f.ID].written {
			m.of[f.ID] = known{f.State, f.Tries, f.written}
		}
	}
	return nil
}

func (m *memory) rows(_ context.Context, outcomes []*outcome) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range outcomes {
		if o.now != nil && o.written >= m.written[o.ID] {
			m.said[o.ID], m.written[o.ID] = o.now, o.written
		}
	}
	return nil
}

func (m *memory) each(_ context.Context, sum func(group, cause string, bucket, n, ns int64)) error {
	for _, c := range m.said {
		for _, s := range c.Rows.Sums {
			sum(s.Group, s.Cause, s.Bucket, s.N, s.NS)
		}
	}
	return nil
}

// unsure are facts that may not answer, may have done what they do not answer to, and may do it late, when other workers have written.
type unsure struct {
	facts
	mu     sync.Mutex
	chance *rand.Rand // nil: all is well
	late   []func() error
}

var errDown = errors.New("the database is down")

func (u *unsure) call(f func() error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.chance != nil {
		switch u.chance.IntN(24) {
		case 0:
			return errDown
		case 1:
			return errors.Join(f(), errDown)
		case 2:
			u.late = append(u.late, f)
			return errDown
		}
	}
	return f()
}

func (u *unsure) known(ctx context.Context, ids []string) (out map[string]known, err error) {
	return out, u.call(func() error { out, err = u.facts.known(ctx, ids); return err })
}

func (u *unsure) states(ctx context.Context, flights []*flight) error {
	sent := column(flights, func(f **flight) *flight { g := **f; return &g }) // as it is now, whenever it comes
	return u.call(func() error { return u.facts.states(ctx, sent) })
}

func (u *unsure) rows(ctx context.Context, outcomes []*outcome) error {
	sent := column(outcomes, func(e **outcome) *outcome {
		f, o := *(*e).flight, **e
		o.flight = &f
		return &o
	})
	return u.call(func() error { return u.facts.rows(ctx, sent) })
}

// settle does what is late.
func (u *unsure) settle(well bool) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	var all []error
	for _, f := range u.late {
		all = append(all, f())
	}
	u.late = nil
	if well {
		u.chance = nil
	}
	return errors.Join(all...)
}

// member is a worker's ledger.
func member(t *testing.T, address string, f facts) *shared {
	topic, err := openTopic(t.Context(), address, true)
	if err != nil {
		t.Fatal(err)
	}
	s := &shared{topic: topic, facts: f, linger: time.Millisecond}
	s.begin()
	return s
}

// die ends a worker as a kill does: what it has taken and not finished is another's.
func (s *shared) die() {
	s.topic.mu.Lock()
	partitions := slices.Collect(maps.Keys(s.topic.parts))
	s.topic.mu.Unlock()
	s.topic.lose(partitions)
	_ = s.close()
}

// sharedQueue has workers of a consumer group do what chance says: take recordings, finish, fail or release them, die, lose what they
// have committed, and meet a database that is down or late. In the end, each recording that was added is done or poison and counts as one
// of its explanations says, whole, and nothing waits.
func sharedQueue(t *testing.T, address string, f facts, each func(context.Context, func(group, cause string, bucket, n, ns int64)) error, seed uint64, steps int) {
	r := rand.New(rand.NewPCG(seed, 0))
	m := &unsure{facts: f, chance: rand.New(rand.NewPCG(seed, 1))}
	workers := []*shared{member(t, address, m), member(t, address, m)}
	claims := make([][]*Recording, len(workers))
	added, explained, poison := make(map[string]bool), make(map[string][]map[int64]int64), make(map[string]bool)
	ctx := t.Context()
	finish := func(w *shared, c *Recording) {
		is, list := make(map[int64]int64), []rows.Sum(nil)
		for range 2 { // another program finds something else
			is[int64(1+r.IntN(4))] = int64(1 + r.IntN(100))
		}
		for bucket, n := range is {
			list = append(list, rows.Sum{Group: c.ID, Bucket: bucket, N: n})
		}
		explained[c.ID] = append(explained[c.ID], is)
		if _, err := w.Finish(ctx, c, &rows.Rows{Start: c.Received, Cause: "cpu", Sums: list}); err != nil {
			t.Fatal(err)
		}
	}
	for range steps {
		i := r.IntN(len(workers))
		w := workers[i]
		var c *Recording
		if n := len(claims[i]); n > 0 {
			c = claims[i][r.IntN(n)]
		}
		drop := func() { claims[i] = slices.DeleteFunc(claims[i], func(o *Recording) bool { return o == c }) }
		switch what := r.IntN(20); {
		case what < 6:
			id := fmt.Sprintf("%032x", 1000*int(seed)+r.IntN(40))
			if err := w.Add(ctx, Recording{ID: id, Labels: rows.Labels{Service: "shop"}, Received: time.Now()}); err != nil {
				t.Fatal(err)
			}
			added[id] = true
		case what < 13:
			got, err := w.Claim(ctx, time.Now(), time.Minute)
			if err != nil && !errors.Is(err, errDown) {
				t.Fatal(err)
			}
			if got != nil {
				if !added[got.ID] || got.Tries < 1 {
					t.Fatalf("claimed %+v", got)
				}
				claims[i] = append(claims[i], got)
			}
		case what == 13:
			w.die()
			workers[i], claims[i] = member(t, address, m), nil
		case what == 14: // commits that a killed member had not made yet
			for _, w := range workers {
				w.die()
			}
			topic, err := openTopic(ctx, address, false)
			if err != nil {
				t.Fatal(err)
			}
			at, err := topic.admin.ListStartOffsets(ctx, topic.name)
			if err != nil {
				t.Fatal(err)
			}
			back := make(kadm.Offsets)
			at.Each(func(o kadm.ListedOffset) { back.AddOffset(o.Topic, o.Partition, o.Offset, -1) })
			if _, err := topic.admin.CommitOffsets(ctx, group, back); err != nil {
				t.Fatal(err)
			}
			topic.client.Close()
			for i := range workers {
				workers[i], claims[i] = member(t, address, m), nil
			}
		case what == 15 && r.IntN(2) == 0:
			if err := m.settle(false); err != nil {
				t.Fatal(err)
			}
		case c == nil:
		case what == 15:
			if err := w.Release(ctx, c); err != nil {
				t.Fatal(err)
			}
			drop()
		case what == 16:
			bad := r.IntN(2) == 0
			if err := w.Fail(ctx, c, bad, "why"); err != nil {
				t.Fatal(err)
			}
			poison[c.ID] = poison[c.ID] || bad
			drop()
		default:
			finish(w, c)
			drop()
		}
	}
	if err := m.settle(true); err != nil {
		t.Fatal(err)
	}
	for _, w := range workers {
		w.die()
	}
	w := member(t, address, m)
	defer w.close()
	for lag := int64(1); lag > 0; { // as long as it takes: the test has a limit
		c, err := w.Claim(ctx, time.Now(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if c != nil {
			finish(w, c)
			continue
		}
		if _, lag, err = w.topic.committed(ctx); err != nil {
			t.Fatal(err)
		}
	}
	all, err := m.known(ctx, slices.Collect(maps.Keys(added)))
	counts := make(map[string]map[int64]int64)
	if err == nil {
		err = each(ctx, func(id, _ string, bucket, n, _ int64) {
			if counts[id] == nil {
				counts[id] = make(map[int64]int64)
			}
			counts[id][bucket] += n
		})
	}
	if err != nil || len(all) != len(added) {
		t.Errorf("seed %d: %d recordings are known, want %d, %v", seed, len(all), len(added), err)
	}
	for id, k := range all {
		if k.state != Done && (k.state != Poison || !poison[id]) {
			t.Errorf("seed %d: %s is %s", seed, id, k.state)
		}
		if k.state == Done && !slices.ContainsFunc(explained[id], func(e map[int64]int64) bool { return maps.Equal(e, counts[id]) }) {
			t.Errorf("seed %d: %s counts %v, and was explained as %v", seed, id, counts[id], explained[id])
		}
	}
}

// TestSharedQueue is the queue of several machines on Kafka's stand-in.
func TestSharedQueue(t *testing.T) {
	seeds := uint64(3)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		c, err := kfake.NewCluster(kfake.NumBrokers(1))
		if err != nil {
			t.Fatal(err)
		}
		m := &memory{of: make(map[string]known), said: make(map[string]*counted), written: make(map[string]int64)}
		sharedQueue(t, "kafka://"+c.ListenAddrs()[0]+"/whylate?partitions=3", m, m.each, seed, 150)
		c.Close()
	}
}

// counting makes SQLite count as ClickHouse does.
var counting = sync.OnceFunc(func() {
	sqlite.MustRegisterDeterministicScalarFunction("toInt64", 1, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) { return args[0], nil })
})

// TestSharedAgain: on Kafka's stand-in, a recording that is explained is explained again on request only, and what waits is what no
// worker has. SQLite is in the place of ClickHouse.
func TestSharedAgain(t *testing.T) {
	counting()
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m := &memory{of: make(map[string]known), said: make(map[string]*counted), written: make(map[string]int64)}
	w := member(t, "kafka://"+c.ListenAddrs()[0]+"/whylate?partitions=1", m)
	defer w.close()
	clickhouse := open(t)
	w.databases = clickhouse.databases
	ctx := t.Context()
	if _, err := clickhouse.w.Exec(`CREATE VIEW recordings_rows AS SELECT * FROM recordings`); err != nil {
		t.Fatal(err)
	}
	// is makes SQLite know of a recording.
	is := func(id, state string) {
		t.Helper()
		if _, err := clickhouse.w.Exec(`INSERT INTO recordings VALUES (?,'shop','','','','',?,100,?,1,0,'',1,'',NULL) ON CONFLICT DO UPDATE SET state=excluded.state`, id, time.Now().UnixNano(), state); err != nil {
			t.Fatal(err)
		}
	}
	// claim waits for the next recording, or until all are finished.
	claim := func() *Recording {
		t.Helper()
		for {
			r, err := w.Claim(ctx, time.Now(), time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if r != nil {
				is(r.ID, Working)
				return r
			}
			if _, lag, err := w.topic.committed(ctx); err != nil || lag == 0 {
				return nil
			}
		}
	}
	finish := func(r *Recording, n int64) {
		t.Helper()
		if _, err := w.Finish(ctx, r, &rows.Rows{Start: r.Received, Requests: n}); err != nil {
			t.Fatal(err)
		}
		is(r.ID, Done)
	}
	send := func(ids ...string) {
		t.Helper()
		for _, id := range ids {
			if err := w.Add(ctx, Recording{ID: id, Labels: rows.Labels{Service: "shop"}, Received: time.Now()}); err != nil {
				t.Fatal(err)
			}
		}
	}
	states := func(waiting, working, done int64) {
		t.Helper()
		got, err := w.States(ctx)
		if err != nil || got[Waiting] != waiting || got[Working] != working || got[Done] != done {
			t.Errorf("%v %v, want %d waiting, %d working, %d done", got, err, waiting, working, done)
		}
	}
	send("a", "b", "c")
	states(3, 0, 0)
	r := claim()
	states(2, 1, 0)
	for n := int64(1); r != nil; n++ {
		finish(r, n)
		r = claim()
	}
	states(0, 0, 3)
	send("a") // again by its sender
	if r := claim(); r != nil {
		t.Errorf("%+v is explained, and was", r)
	}
	if n, err := w.Again(ctx, "shop", time.Unix(0, 0)); n != 3 || err != nil {
		t.Error(n, err)
	}
	again := make(map[string]bool)
	for r := claim(); r != nil; r = claim() {
		again[r.ID] = true
		finish(r, 100)
	}
	if len(again) != 3 || m.said["a"].Rows.Requests != 100 {
		t.Errorf("%v are explained again", again)
	}
	states(0, 0, 3)
}

// TestSharedQueueKafka is the same on a real Kafka, a topic a time, and a real ClickHouse.
func TestSharedQueueKafka(t *testing.T) {
	testfull.Need(t, "Kafka and ClickHouse")
	e := enginetest.Kafka(t)
	db, err := openClickHouse(t.Context(), enginetest.ClickHouse(t).Address)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	d := &databases{click: db, q: db, r: db}
	for seed := range uint64(3) {
		sharedQueue(t, fmt.Sprint(e.Address[:len(e.Address)-len("?partitions=4")], seed, "?partitions=3"), &clickFacts{db: db}, (&Store{d, lite{d}}).EachSum, 100+seed, 150)
	}
}

// TestKafkaAddress: what is wrong in an address is an error.
func TestKafkaAddress(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(2))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	all := c.ListenAddrs()
	for _, address := range []string{"", "kafka://", "kafka://host", "kafka://host:1/", "http://host/topic", "kafka://host/topic?x=1", "kafka://host/topic?sasl=none", "kafka://host/topic?partitions=0"} {
		if _, err := openTopic(t.Context(), address, false); err == nil {
			t.Errorf("%q is an address", address)
		}
	}
	topic, err := openTopic(t.Context(), "kafka://"+all[0]+","+all[1]+"/a?partitions=2", false)
	if err != nil {
		t.Fatal(err)
	}
	defer topic.client.Close()
	if seeds := topic.client.SeedBrokers(); len(seeds) != 2 {
		t.Errorf("%d brokers", len(seeds))
	}
}

// TestTokens: tokens in a bucket are found by one listing, expire and are revoked.
func TestTokens(t *testing.T) {
	testfull.Need(t, "MinIO")
	files, err := raw.OpenS3(t.Context(), enginetest.MinIO(t).Address, raw.Dir(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	s := &shared{tokens: &tokens{files: files.WithPrefix("tokens")}}
	ctx, now := t.Context(), time.Now()
	for token, name := range map[string]string{"a": "shop", "b": "a.b/c", "old": "shop"} {
		expires := now.Add(time.Hour)
		if token == "old" {
			expires = now.Add(-time.Hour)
		}
		if err := s.AddToken(ctx, token, Send, name, expires); err != nil {
			t.Fatal(err)
		}
	}
	is := func(token, scope, want string) {
		t.Helper()
		s.tokens.read = time.Time{}
		if name, err := s.TokenName(ctx, token, scope, now); name != want || err != nil {
			t.Errorf("%s for %s: %q %v, want %q", token, scope, name, err, want)
		}
	}
	is("a", Send, "shop")
	is("b", Send, "a.b/c")
	is("a", Read, "")
	is("old", Send, "")
	is("", Send, "")
	if n, err := s.Revoke(ctx, Send, "a.b/c"); n != 1 || err != nil {
		t.Error(n, err)
	}
	is("b", Send, "")
	if err := s.tokens.expire(ctx, now); err != nil {
		t.Error(err)
	}
	list, err := s.Tokens(ctx)
	if err != nil || len(list) != 1 || !reflect.DeepEqual(list[0], Token{Send, "shop", time.Unix(list[0].Made.Unix(), 0), time.Unix(now.Add(time.Hour).Unix(), 0)}) {
		t.Errorf("%+v %v", list, err)
	}
}
