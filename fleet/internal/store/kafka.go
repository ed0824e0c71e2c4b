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

// A topic is the queue of recordings in Kafka, read by one consumer group. A message has the id and labels of a recording, not
// its bytes. The offset of a message is committed after all earlier messages of its partition are finished. If a member ends,
// another member receives its uncommitted messages.
type topic struct {
	client *kgo.Client
	admin  *kadm.Client
	name   string

	hasFirstPartition atomic.Bool // this member has partition 0
	pollMutex         sync.Mutex  // held during a poll
	mu                sync.Mutex
	waiting           []*flight           // read and not returned by poll
	uncommitted       map[int32][]*flight // by assigned partition, in order of offsets
}

// A queueMessage is the value of a message in the topic.
type queueMessage struct {
	Recording
	Repeat bool `json:"again,omitempty"` // explain again even if it is done
}

// A flight is a message that was read from the topic and is not committed yet.
type flight struct {
	queueMessage
	record         *kgo.Record
	finished, lost bool  // lost: another member has the partition
	countsTries    bool  // Tries is current: this process has counted the last one
	written        int64 // version of its rows: the largest one counts
	retentionClass string
	duplicates     []*flight // messages with the same id that arrived while this one was in progress
}

// A member that sends no heartbeat for sessionTimeout loses its partitions.
const (
	consumerGroup  = "whylate-fleet"
	sessionTimeout = 10 * time.Second
)

// openTopic connects to kafka://user:password@host:9092,host:9092/topic?tls=true&sasl=scram-sha-512&partitions=12, and creates
// the topic if there is none. If consume is set, it joins the consumer group.
func openTopic(ctx context.Context, address string, consume bool) (*topic, error) {
	addressError := func(reason string) error {
		return fmt.Errorf("the address of Kafka is not as kafka://user:password@host:9092/topic?tls=true&sasl=scram-sha-512&partitions=12: %s", reason)
	}
	rest, ok := strings.CutPrefix(address, "kafka://")
	host, rest, ok2 := strings.Cut(rest, "/")
	if !ok || !ok2 {
		return nil, addressError("it has no scheme or no topic")
	}
	user := ""
	if separator := strings.LastIndexByte(host, '@'); separator >= 0 {
		user, host = host[:separator+1], host[separator+1:]
	}
	u, err := url.Parse("kafka://" + user + "host/" + rest) // a list of brokers is no valid host
	if err != nil || len(u.Path) < 2 || host == "" {
		return nil, addressError("it has no broker or no topic")
	}
	newTopic := &topic{name: u.Path[1:], uncommitted: make(map[int32][]*flight)}
	opts := []kgo.Opt{kgo.SeedBrokers(strings.Split(host, ",")...), kgo.ClientID("whylate-fleet"), kgo.DefaultProduceTopic(newTopic.name),
		kgo.RecordDeliveryTimeout(20 * time.Second), kgo.ProducerLinger(0), kgo.DisableClientMetrics()}
	partitions := 12
	for key, values := range u.Query() {
		switch key {
		case "partitions":
			if partitions, err = strconv.Atoi(values[0]); err != nil || partitions < 1 {
				return nil, addressError("partitions is no number")
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
				return nil, addressError("sasl is none of plain, scram-sha-256, scram-sha-512")
			}
		default:
			return nil, addressError(key + " is not known")
		}
	}
	if consume {
		opts = append(opts, kgo.ConsumerGroup(consumerGroup), kgo.ConsumeTopics(newTopic.name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(sessionTimeout),
			kgo.FetchMaxPartitionBytes(64<<10), kgo.AutoCommitMarks(), kgo.AutoCommitInterval(time.Second),
			kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, p map[string][]int32) {
				newTopic.losePartitions(p[newTopic.name]) // messages of an earlier assignment
				if slices.Contains(p[newTopic.name], 0) {
					newTopic.hasFirstPartition.Store(true)
				}
			}),
			kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, p map[string][]int32) {
				newTopic.losePartitions(p[newTopic.name])
			}),
			kgo.OnPartitionsRevoked(func(ctx context.Context, c *kgo.Client, p map[string][]int32) {
				_ = c.CommitMarkedOffsets(ctx) // recordings whose messages are not committed are explained again
				newTopic.losePartitions(p[newTopic.name])
			}))
	}
	if newTopic.client, err = kgo.NewClient(opts...); err != nil {
		return nil, err
	}
	newTopic.admin = kadm.NewClient(newTopic.client)
	unlimited := "-1" // deleteFinished removes finished messages
	if _, err := newTopic.admin.CreateTopic(ctx, int32(partitions), -1, map[string]*string{"retention.ms": &unlimited, "retention.bytes": &unlimited}, newTopic.name); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		newTopic.client.Close()
		return nil, fmt.Errorf("making the topic %s: %w", newTopic.name, err)
	}
	return newTopic, nil
}

// add writes messages to the topic. When it returns without error, they are replicated as the topic requires.
func (t *topic) add(ctx context.Context, messages ...queueMessage) error {
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

// poll returns up to limit waiting messages and removes them from the waiting ones. If none waits, it waits for new ones until the timeout; then the
// result may be empty.
func (t *topic) poll(ctx context.Context, limit int, timeout time.Duration) []*flight {
	t.pollMutex.Lock()
	defer t.pollMutex.Unlock()
	t.mu.Lock()
	n := len(t.waiting)
	t.mu.Unlock()
	if n == 0 {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		fetches := t.client.PollRecords(ctx, 16*limit)
		cancel()
		t.mu.Lock()
		fetches.EachRecord(func(r *kgo.Record) {
			f := &flight{record: r}
			t.uncommitted[r.Partition] = append(t.uncommitted[r.Partition], f)
			if err := json.Unmarshal(r.Value, &f.queueMessage); err != nil || f.ID == "" {
				f.finished = true // not written by a fleet: it is committed with the next message
				return
			}
			t.waiting = append(t.waiting, f)
		})
		t.mu.Unlock()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.waiting[:min(limit, len(t.waiting))]
	t.waiting = t.waiting[len(out):]
	return out
}

// putBack returns messages to the front of the waiting ones, except those whose partition another member has taken over.
func (t *topic) putBack(flights ...*flight) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var waiting []*flight
	for _, f := range append(flights[:len(flights):len(flights)], t.waiting...) {
		if !f.lost {
			waiting = append(waiting, f)
		}
	}
	t.waiting = waiting
}

// markFinished marks a message as finished, and marks for commit the finished messages of its partition that no unfinished one precedes.
func (t *topic) markFinished(f *flight) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.finished = true; f.lost {
		return
	}
	list := t.uncommitted[f.record.Partition]
	n := 0
	for n < len(list) && list[n].finished {
		n++
	}
	if n > 0 {
		t.uncommitted[f.record.Partition] = list[n:]
		t.client.MarkCommitRecords(list[n-1].record)
	}
}

// losePartitions discards the waiting messages of partitions that another member takes over, and marks all of their messages as lost.
func (t *topic) losePartitions(partitions []int32) {
	if slices.Contains(partitions, 0) {
		t.hasFirstPartition.Store(false)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range partitions {
		for _, f := range t.uncommitted[p] {
			f.lost = true
		}
		delete(t.uncommitted, p)
	}
	var waiting []*flight
	for _, f := range t.waiting {
		if !f.lost {
			waiting = append(waiting, f)
		}
	}
	t.waiting = waiting
}

// isLost reports whether this process no longer has the partition of a claimed recording's message.
func (t *topic) isLost(f *flight) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return f.lost
}

// progress returns the offset of each partition up to which all messages are finished, and the total number of messages after
// these offsets.
func (t *topic) progress(ctx context.Context) (finished kadm.Offsets, lag int64, err error) {
	starts, err := t.admin.ListStartOffsets(ctx, t.name)
	if err != nil {
		return nil, 0, err
	}
	offsets, err := t.admin.FetchOffsets(ctx, consumerGroup)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) { // no member has joined yet
		return nil, 0, err
	}
	ends, err := t.admin.ListEndOffsets(ctx, t.name)
	if err != nil {
		return nil, 0, err
	}
	finished = make(kadm.Offsets)
	ends.Each(func(end kadm.ListedOffset) {
		start, _ := starts.Lookup(end.Topic, end.Partition)
		if done, ok := offsets.Lookup(end.Topic, end.Partition); ok && done.At > start.Offset {
			start.Offset = done.At
		}
		finished.AddOffset(end.Topic, end.Partition, start.Offset, -1)
		lag += max(0, end.Offset-start.Offset)
	})
	return finished, lag, ends.Error()
}

// deleteFinished deletes finished messages from the disks of the brokers.
func (t *topic) deleteFinished(ctx context.Context) error {
	finished, _, err := t.progress(ctx)
	if err == nil {
		_, err = t.admin.DeleteRecords(ctx, finished)
	}
	return err
}
