package store

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// A topic is a queue in Kafka, read by one consumer group. Its messages are ids of recordings and what is known of them, never their
// bytes. An offset is committed when all recordings up to it are finished: what a member that is gone had taken, another gets.
type topic struct {
	client *kgo.Client
	admin  *kadm.Client
	name   string

	first   atomic.Bool // whether the first partition is this member's
	polling sync.Mutex  // one polls at a time
	mu      sync.Mutex
	waits   []*flight           // read and not taken
	parts   map[int32][]*flight // of each partition that is this member's: what is not committed, in order
}

// A message is what the topic holds.
type message struct {
	Recording
	Again bool `json:"again,omitempty"` // also one that is explained already
}

// A flight is a message on its way from the topic to a commit.
type flight struct {
	message
	record     *kgo.Record
	done, lost bool  // lost: the partition is another member's
	mine       bool  // its tries are counted here, not in what is known of it
	written    int64 // what is written of it later than that replaces what was written before
	class      string
	twins      []*flight // the same recording, sent at the same time
}

// group is the consumer group. A member that says nothing for session is held to be gone.
const (
	group   = "whylate-fleet"
	session = 10 * time.Second
)

// openTopic connects to kafka://user:password@host:9092,host:9092/topic?tls=true&sasl=scram-sha-512&partitions=12, and makes the topic, if
// there is none. Only members of the group consume.
func openTopic(ctx context.Context, address string, consume bool) (*topic, error) {
	bad := func(why string) error {
		return fmt.Errorf("the address of Kafka is not as kafka://user:password@host:9092/topic?tls=true&sasl=scram-sha-512&partitions=12: %s", why)
	}
	rest, ok := strings.CutPrefix(address, "kafka://")
	host, rest, ok2 := strings.Cut(rest, "/")
	if !ok || !ok2 {
		return nil, bad("it has no scheme or no topic")
	}
	user := ""
	if at := strings.LastIndexByte(host, '@'); at >= 0 {
		user, host = host[:at+1], host[at+1:]
	}
	u, err := url.Parse("kafka://" + user + "host/" + rest) // brokers with commas are no host
	if err != nil || len(u.Path) < 2 || host == "" {
		return nil, bad("it has no broker or no topic")
	}
	t := &topic{name: u.Path[1:], parts: make(map[int32][]*flight)}
	opts := []kgo.Opt{kgo.SeedBrokers(strings.Split(host, ",")...), kgo.ClientID("whylate-fleet"), kgo.DefaultProduceTopic(t.name),
		kgo.RecordDeliveryTimeout(20 * time.Second), kgo.ProducerLinger(0), kgo.DisableClientMetrics()}
	partitions := 12
	for key, values := range u.Query() {
		switch key {
		case "partitions":
			if partitions, err = strconv.Atoi(values[0]); err != nil || partitions < 1 {
				return nil, bad("partitions is no number")
			}
		case "tls":
			if values[0] == "true" {
				opts = append(opts, kgo.DialTLSConfig(&tls.Config{MinVersion: tls.VersionTLS12}))
			}
		case "sasl":
			password, _ := u.User.Password()
			switch name := u.User.Username(); values[0] {
			case "plain":
				opts = append(opts, kgo.SASL(plain.Auth{User: name, Pass: password}.AsMechanism()))
			case "scram-sha-256":
				opts = append(opts, kgo.SASL(scram.Auth{User: name, Pass: password}.AsSha256Mechanism()))
			case "scram-sha-512":
				opts = append(opts, kgo.SASL(scram.Auth{User: name, Pass: password}.AsSha512Mechanism()))
			default:
				return nil, bad("sasl is none of plain, scram-sha-256, scram-sha-512")
			}
		default:
			return nil, bad(key + " is not known")
		}
	}
	if consume {
		opts = append(opts, kgo.ConsumerGroup(group), kgo.ConsumeTopics(t.name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(session),
			kgo.FetchMaxPartitionBytes(64<<10), kgo.AutoCommitMarks(), kgo.AutoCommitInterval(time.Second),
			kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, p map[string][]int32) {
				t.lose(p[t.name]) // what an earlier turn left
				if slices.Contains(p[t.name], 0) {
					t.first.Store(true)
				}
			}),
			kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, p map[string][]int32) { t.lose(p[t.name]) }),
			kgo.OnPartitionsRevoked(func(ctx context.Context, c *kgo.Client, p map[string][]int32) {
				_ = c.CommitMarkedOffsets(ctx) // what is not committed is explained again
				t.lose(p[t.name])
			}))
	}
	if t.client, err = kgo.NewClient(opts...); err != nil {
		return nil, err
	}
	t.admin = kadm.NewClient(t.client)
	forever := "-1" // trim removes what is finished
	if _, err := t.admin.CreateTopic(ctx, int32(partitions), -1, map[string]*string{"retention.ms": &forever, "retention.bytes": &forever}, t.name); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		t.client.Close()
		return nil, fmt.Errorf("making the topic %s: %w", t.name, err)
	}
	return t, nil
}

// add puts messages into the topic. When it returns without error, they are on the brokers that must have them.
func (t *topic) add(ctx context.Context, messages ...message) error {
	var records []*kgo.Record
	for _, m := range messages {
		value, err := json.Marshal(m)
		if err != nil {
			return err
		}
		records = append(records, kgo.KeySliceRecord([]byte(m.ID), value))
	}
	return t.client.ProduceSync(ctx, records...).FirstErr()
}

// take returns up to most messages that wait, or come within a time.
func (t *topic) take(ctx context.Context, most int, within time.Duration) []*flight {
	t.polling.Lock()
	defer t.polling.Unlock()
	t.mu.Lock()
	n := len(t.waits)
	t.mu.Unlock()
	if n == 0 {
		ctx, cancel := context.WithTimeout(ctx, within)
		fetches := t.client.PollRecords(ctx, 16*most)
		cancel()
		t.mu.Lock()
		fetches.EachRecord(func(r *kgo.Record) {
			f := &flight{record: r}
			t.parts[r.Partition] = append(t.parts[r.Partition], f)
			if err := json.Unmarshal(r.Value, &f.message); err != nil || f.ID == "" {
				f.done = true // somebody else's: it goes with the next one
				return
			}
			t.waits = append(t.waits, f)
		})
		t.mu.Unlock()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.waits[:min(most, len(t.waits))]
	t.waits = t.waits[len(out):]
	return out
}

// back makes messages wait again, as the next ones.
func (t *topic) back(flights ...*flight) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var waits []*flight
	for _, f := range append(flights[:len(flights):len(flights)], t.waits...) {
		if !f.lost {
			waits = append(waits, f)
		}
	}
	t.waits = waits
}

// finish says that a message needs nothing more. What is finished from the start of its partition on is committed soon.
func (t *topic) finish(f *flight) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.done = true; f.lost {
		return
	}
	list := t.parts[f.record.Partition]
	n := 0
	for n < len(list) && list[n].done {
		n++
	}
	if n > 0 {
		t.parts[f.record.Partition] = list[n:]
		t.client.MarkCommitRecords(list[n-1].record)
	}
}

// lose forgets partitions. Another member gets what is not committed of them.
func (t *topic) lose(partitions []int32) {
	if slices.Contains(partitions, 0) {
		t.first.Store(false)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range partitions {
		for _, f := range t.parts[p] {
			f.lost = true
		}
		delete(t.parts, p)
	}
	var waits []*flight
	for _, f := range t.waits {
		if !f.lost {
			waits = append(waits, f)
		}
	}
	t.waits = waits
}

func (t *topic) isLost(f *flight) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return f.lost
}

// committed returns of each partition up to where it is finished, and how many messages wait beyond.
func (t *topic) committed(ctx context.Context) (at kadm.Offsets, lag int64, err error) {
	starts, err := t.admin.ListStartOffsets(ctx, t.name)
	if err != nil {
		return nil, 0, err
	}
	offsets, err := t.admin.FetchOffsets(ctx, group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) { // nobody worked yet
		return nil, 0, err
	}
	ends, err := t.admin.ListEndOffsets(ctx, t.name)
	if err != nil {
		return nil, 0, err
	}
	at = make(kadm.Offsets)
	ends.Each(func(end kadm.ListedOffset) {
		start, _ := starts.Lookup(end.Topic, end.Partition)
		if done, ok := offsets.Lookup(end.Topic, end.Partition); ok && done.At > start.Offset {
			start.Offset = done.At
		}
		at.AddOffset(end.Topic, end.Partition, start.Offset, -1)
		lag += max(0, end.Offset-start.Offset)
	})
	return at, lag, ends.Error()
}

// trim removes what is finished from the brokers' disks.
func (t *topic) trim(ctx context.Context) error {
	at, _, err := t.committed(ctx)
	if err == nil {
		_, err = t.admin.DeleteRecords(ctx, at)
	}
	return err
}
