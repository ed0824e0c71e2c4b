// Pubsub gives messages of Kafka away over HTTP: a short request opens a
// consumer of its group by bsm/sarama-cluster, takes the first message and
// closes it again.
//
// Faults: dwell (Consumer.MaxProcessingTime stays at its default of 100 ms,
// which opening a consumer sleeps three times; the healthy twin says 5 ms).
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/Shopify/sarama"
	cluster "github.com/bsm/sarama-cluster"
)

var (
	listen  = flag.String("listen", "127.0.0.1:0", "address to serve on")
	profile = flag.String("pprof", "127.0.0.1:0", "address of the profiles")
	backend = flag.String("backend", "", "Kafka's address")
	fault   = flag.String("fault", "", "dwell, or none")
)

const topic = "news"

func config() *cluster.Config {
	c := cluster.NewConfig()
	c.Version = sarama.V1_0_0_0
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.CommitInterval = time.Second
	if *fault != "dwell" {
		c.Consumer.MaxProcessingTime = 5 * time.Millisecond
	}
	return c
}

// sub is a subscriber's request.
func sub(w http.ResponseWriter, r *http.Request) {
	c, err := cluster.NewConsumer([]string{*backend}, r.FormValue("group"), []string{topic}, config())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer c.Close()
	select {
	case m := <-c.Messages():
		fmt.Fprintf(w, "%s\n", m.Value)
	case <-time.After(5 * time.Second):
		http.Error(w, "no message", http.StatusGatewayTimeout)
	}
}

// fill makes the topic and puts messages in.
func fill() error {
	c := sarama.NewConfig()
	c.Version = sarama.V1_0_0_0
	c.Producer.Return.Successes = true
	p, err := sarama.NewSyncProducer([]string{*backend}, c)
	if err != nil {
		return err
	}
	defer p.Close()
	for i := range 100 {
		if _, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(fmt.Sprint("news ", i, strings.Repeat(".", 100)))}); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	flag.Parse()
	var err error
	for range 20 {
		if err = fill(); err == nil {
			break
		}
		time.Sleep(500 * time.Millisecond)
	}
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	l, err := net.Listen("tcp", *profile)
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(http.Serve(l, mux)) }()
	http.HandleFunc("/sub", sub)
	log.Fatal(http.ListenAndServe(*listen, nil))
}
