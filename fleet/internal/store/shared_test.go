package store

import (
	"context"
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

	"github.com/whylate/whylate/fleet/internal/enginetest"
	"github.com/whylate/whylate/fleet/internal/raw"
	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/internal/testing/testfull"
)

// memory are facts in a map, of which a call may fail at its start or half way.
type memory struct {
	mu   sync.Mutex
	of   map[string]known
	rows map[string]map[int64]int64 // by recording and bucket
	fail func() int                 // 0 is well, 1 at the start, 2 after what will be counted is written
}

var errDown = errors.New("the database is down")

func (m *memory) known(_ context.Context, ids []string) (map[string]known, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail() == 1 {
		return nil, errDown
	}
	out := make(map[string]known)
	for _, id := range ids {
		if k, ok := m.of[id]; ok {
			out[id] = k
		}
	}
	return out, nil
}

func (m *memory) claim(_ context.Context, flights []*flight) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail() == 1 {
		return errDown
	}
	for _, f := range flights {
		m.of[f.ID] = known{state: Working, tries: f.Tries, counted: f.before.counted}
	}
	return nil
}

func (m *memory) finish(_ context.Context, outcomes []*outcome) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	how := m.fail()
	if how == 1 {
		return errDown
	}
	for _, o := range outcomes {
		k := known{state: o.State, tries: o.Tries, counted: o.before.counted}
		if o.now != nil {
			if o.before.counted != nil {
				for _, s := range o.before.counted.Rows.Sums {
					delete(m.rows[o.ID], s.Bucket)
				}
			}
			o.before.counted, k.counted = o.now, o.now
			if m.rows[o.ID] == nil {
				m.rows[o.ID] = make(map[int64]int64)
			}
			for _, s := range o.now.Rows.Sums {
				m.rows[o.ID][s.Bucket] = s.N
			}
		}
		if how == 2 {
			k.state = Working
		}
		m.of[o.ID] = k
	}
	if how == 2 {
		return errDown
	}
	return nil
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
// have committed, and meet a database that is down. In the end, each recording that was added is done or poison and counts as its last
// explanation says, and nothing waits.
func sharedQueue(t *testing.T, address string, seed uint64, steps int) {
	r := rand.New(rand.NewPCG(seed, 0))
	var failing sync.Mutex
	fails := rand.New(rand.NewPCG(seed, 1))
	well := false
	m := &memory{of: make(map[string]known), rows: make(map[string]map[int64]int64), fail: func() int {
		failing.Lock()
		defer failing.Unlock()
		if n := fails.IntN(20); !well && n < 3 {
			return n
		}
		return 0
	}}
	workers := []*shared{member(t, address, m), member(t, address, m)}
	claims := make([][]*Recording, len(workers))
	added, last, poison := make(map[string]bool), make(map[string]int64), make(map[string]bool)
	ctx := t.Context()
	finish := func(w *shared, c *Recording) {
		bucket, n := int64(1+r.IntN(3)), int64(1+r.IntN(5)) // another program finds something else
		if _, err := w.Finish(ctx, c, &rows.Rows{At: time.Now(), Cause: "cpu", Sums: []rows.Sum{{Group: "GET /", Bucket: bucket, N: n}}}); err != nil {
			t.Fatal(err)
		}
		last[c.ID] = n
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
			id := fmt.Sprintf("%032x", r.IntN(40))
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
	failing.Lock()
	well = true
	failing.Unlock()
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
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.of) != len(added) {
		t.Errorf("seed %d: %d recordings are known, want %d", seed, len(m.of), len(added))
	}
	for id, k := range m.of {
		var n int64
		for _, more := range m.rows[id] {
			n += more
		}
		switch {
		case k.state == Poison && poison[id]:
		case k.state != Done:
			t.Errorf("seed %d: %s is %s", seed, id, k.state)
		case n != k.counted.Rows.Sums[0].N || last[id] == 0 || len(m.rows[id]) != 1:
			t.Errorf("seed %d: %s counts %v, explained as %+v", seed, id, m.rows[id], k.counted)
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
		sharedQueue(t, "kafka://"+c.ListenAddrs()[0]+"/whylate?partitions=3", seed, 150)
		c.Close()
	}
}

// TestSharedQueueKafka is the same on a real Kafka, a topic a time.
func TestSharedQueueKafka(t *testing.T) {
	testfull.Need(t, "Kafka")
	e := enginetest.Kafka(t)
	for seed := range uint64(3) {
		sharedQueue(t, fmt.Sprint(e.Address[:len(e.Address)-len("?partitions=4")], seed, "?partitions=3"), 100+seed, 150)
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
	s := &shared{tokens: &tokens{files: files.Below("tokens")}}
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
