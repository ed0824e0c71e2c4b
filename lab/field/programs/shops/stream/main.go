// Stream consumes orders from Kafka by franz-go and asks a service about each.
// A request is an order: from when it is polled until it is handled.
//
// Faults: commit (the offset is committed and waited for after every order).
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"shop.example/shops/internal/run"
)

const topic = "orders"

// book asks the booking service, which takes 2 ms.
func book(order []byte) error {
	resp, err := http.Post("http://"+*run.Peer+"/book", "text/plain", bytes.NewReader(order))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// handle does one order.
func handle(ctx context.Context, c *kgo.Client, r *kgo.Record) {
	start := time.Now()
	err := book(r.Value)
	if err == nil && run.Fault("commit") {
		err = c.CommitRecords(ctx, r)
	}
	run.Took(start, err)
}

// consume polls and handles for ever.
func consume(ctx context.Context, c *kgo.Client) {
	for {
		c.PollFetches(ctx).EachRecord(func(r *kgo.Record) { handle(ctx, c, r) })
	}
}

// produce sends an order every 10 ms.
func produce(ctx context.Context, c *kgo.Client) {
	for i := 0; ; i++ {
		c.Produce(ctx, &kgo.Record{Topic: topic, Value: fmt.Append(nil, "order ", i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				log.Print(err)
			}
		})
		time.Sleep(10 * time.Millisecond)
	}
}

func main() {
	run.Parse("commit")
	run.AnswerAsPeer(2*time.Millisecond, "")
	ctx := context.Background()
	if *run.Load != "" {
		c := run.Must(kgo.NewClient(kgo.SeedBrokers(*run.Backend), kgo.AllowAutoTopicCreation()))
		go produce(ctx, c)
		run.End()
	}
	options := []kgo.Opt{kgo.SeedBrokers(*run.Backend), kgo.ConsumeTopics(topic), kgo.ConsumerGroup(fmt.Sprint("booking", time.Now().UnixNano())), kgo.AllowAutoTopicCreation(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd())}
	if run.Fault("commit") {
		options = append(options, kgo.DisableAutoCommit())
	}
	c := run.Must(kgo.NewClient(options...))
	go consume(ctx, c)
	run.Profiles()
	select {}
}
