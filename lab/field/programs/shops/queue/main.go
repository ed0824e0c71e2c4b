// Queue takes events as datagrams and writes them to a slow store in the
// background, by four consumers. Prometheus scrapes it. A request is the turn
// of a consumer: from the first event of a batch until the batch is written.
//
// Faults: batch (a consumer sleeps 50 ms for more events before it writes).
package main

import (
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"shop.example/shops/internal/run"
)

type queue struct {
	events  chan string
	written atomic.Int64
}

// listen puts every datagram into the queue.
func (q *queue) listen(c net.PacketConn) {
	var b [1500]byte
	for {
		n, _, err := c.ReadFrom(b[:])
		run.Check(err)
		q.events <- string(b[:n])
	}
}

// consume writes batches.
func (q *queue) consume() {
	for first := range q.events {
		start := time.Now()
		batch := []string{first}
		if run.Fault("batch") {
			linger()
		}
		for len(batch) < 100 && len(q.events) > 0 {
			batch = append(batch, <-q.events)
		}
		write(batch)
		q.written.Add(int64(len(batch)))
		run.Took(start, nil)
	}
}

// linger lets more events come.
func linger() { time.Sleep(50 * time.Millisecond) }

// write stands for a store that takes 2 ms for a batch.
func write(batch []string) { time.Sleep(2 * time.Millisecond) }

func (q *queue) metrics(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "# TYPE events_written_total counter\nevents_written_total %d\n# TYPE events_waiting gauge\nevents_waiting %d\n", q.written.Load(), len(q.events))
}

// send sends 250 events a second.
func send(addr string) {
	c := run.Must(net.Dial("udp", addr))
	for i := 0; ; i++ {
		fmt.Fprintf(c, "event %d", i)
		time.Sleep(4 * time.Millisecond)
	}
}

func main() {
	run.Parse("batch")
	if *run.Load != "" {
		send(*run.Load)
	}
	q := &queue{events: make(chan string, 10000)}
	c := run.Must(net.ListenPacket("udp", *run.Listen))
	go q.listen(c)
	for range 4 {
		go q.consume()
	}
	run.ServePath("/metrics", http.HandlerFunc(q.metrics))
}
