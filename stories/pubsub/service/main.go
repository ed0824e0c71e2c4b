// Service is an HTTP pub/sub service over Kafka, as in the story pubsub: a request for messages opens a consumer of a group,
// takes messages, commits and closes.
//
//	POST /pub?topic=T           publishes the body
//	GET  /sub?topic=T&group=G   returns the next message for the group; &commit=later leaves the commit to Close
//
// With -modern, subscribers share one long-lived member of one group (franz-go): the way to write it today.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	_ "net/http/pprof"
	"time"

	"github.com/Shopify/sarama"
	cluster "github.com/bsm/sarama-cluster"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "address to serve on")
	broker := flag.String("broker", "127.0.0.1:9092", "address of a Kafka broker")
	topic := flag.String("topic", "orders", "topic that is created at the start")
	wait := flag.Duration("wait", 0, "Config.Consumer.MaxProcessingTime; 0 leaves the library's default")
	modern := flag.Bool("modern", false, "one long-lived consumer by franz-go instead of one by sarama-cluster for each request")
	flag.Parse()
	s := &service{brokers: []string{*broker}, wait: *wait}
	if err := s.run(*listen, *topic, *modern); err != nil {
		log.Fatal(err)
	}
}

type service struct {
	brokers  []string
	wait     time.Duration
	producer sarama.SyncProducer
	messages chan *kgo.Record
}

func (s *service) run(listen, topic string, modern bool) error {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V1_0_0_0 // Kafka 4 no longer supports older versions
	cfg.Producer.Return.Successes = true
	var err error
	if s.producer, err = sarama.NewSyncProducer(s.brokers, cfg); err != nil {
		return fmt.Errorf("connecting to Kafka at %v: %w", s.brokers, err)
	}
	// The first message makes the topic.
	if _, _, err := s.producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("first")}); err != nil {
		return fmt.Errorf("publishing to %s: %w", topic, err)
	}
	http.HandleFunc("POST /pub", s.pub)
	if modern {
		if err := s.consume(topic); err != nil {
			return err
		}
		http.HandleFunc("GET /sub", s.take)
	} else {
		http.HandleFunc("GET /sub", s.sub)
	}
	http.HandleFunc("GET /ready", func(http.ResponseWriter, *http.Request) {})
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	return http.Serve(l, nil)
}

func (s *service) pub(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err == nil {
		_, _, err = s.producer.SendMessage(&sarama.ProducerMessage{Topic: r.FormValue("topic"), Value: sarama.ByteEncoder(body)})
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}

// sub opens a consumer for one message, like a subscriber without its own connection.
func (s *service) sub(w http.ResponseWriter, r *http.Request) {
	cfg := cluster.NewConfig()
	cfg.Version = sarama.V1_0_0_0
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	if s.wait > 0 {
		cfg.Consumer.MaxProcessingTime = s.wait
	}
	message, err := s.next(r.Context(), r.FormValue("group"), r.FormValue("topic"), r.FormValue("commit") == "later", cfg)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Write(message)
}

func (s *service) next(ctx context.Context, group, topic string, later bool, cfg *cluster.Config) (message []byte, err error) {
	consumer, err := cluster.NewConsumer(s.brokers, group, []string{topic}, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, consumer.Close()) }()
	select {
	case m, ok := <-consumer.Messages():
		if !ok {
			return nil, errors.New("the consumer ended")
		}
		consumer.MarkOffset(m, "")
		if !later {
			if err := consumer.CommitOffsets(); err != nil {
				return nil, err
			}
		}
		return m.Value, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// consume keeps one member of one group and passes its messages to requests.
func (s *service) consume(topic string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(s.brokers...), kgo.ConsumerGroup("subscribers"), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.AutoCommitInterval(time.Second))
	if err != nil {
		return fmt.Errorf("connecting to Kafka at %v: %w", s.brokers, err)
	}
	s.messages = make(chan *kgo.Record, 1000)
	go func() {
		for {
			fetches := client.PollFetches(context.Background())
			fetches.EachRecord(func(r *kgo.Record) { s.messages <- r })
		}
	}()
	return nil
}

func (s *service) take(w http.ResponseWriter, r *http.Request) {
	select {
	case m := <-s.messages:
		w.Write(m.Value)
	case <-r.Context().Done():
		http.Error(w, r.Context().Err().Error(), http.StatusBadGateway)
	}
}
