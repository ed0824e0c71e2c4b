// Package consumer is the library in the pub/sub service. Its goroutine sleeps before
// each fetch and each release, and a goroutine that opens or closes a consumer waits for
// that.
package consumer

import "time"

// Consumer reads one topic.
type Consumer struct {
	fetch     time.Duration
	let       time.Duration
	messages  chan string
	closing   chan struct{}
	closed    chan struct{}
	fetchWait time.Duration
}

// Open returns a consumer whose goroutine is running. It dwells for fetch before
// it fetches, and for release before it lets go.
func Open(fetch, release time.Duration) *Consumer {
	c := &Consumer{fetch: fetch, let: release, messages: make(chan string), closing: make(chan struct{}), closed: make(chan struct{})}
	go c.run()
	return c
}

// Messages is where messages arrive.
func (c *Consumer) Messages() <-chan string { return c.messages }

// Close returns when the consumer has released its partitions.
func (c *Consumer) Close() {
	close(c.closing)
	<-c.closed
}

// FetchWait is the time that passed before the offset fetch. It is known after
// Close.
func (c *Consumer) FetchWait() time.Duration { return c.fetchWait }

func (c *Consumer) run() {
	defer close(c.closed)
	t := time.Now()
	c.fetchOffsets()
	c.fetchWait = time.Since(t)
	c.messages <- "message"
	<-c.closing
	c.release()
}

func (c *Consumer) fetchOffsets() {
	time.Sleep(c.fetch) // truth: site pubsub
}

func (c *Consumer) release() {
	time.Sleep(c.let) // truth: second pubsub
}
