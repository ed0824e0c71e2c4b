package explain_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

const (
	workNS     = int64(20 * ms) // for one message
	brokerRead = "github.com/nats-io/nats.go.(*Conn).readLoop@/mod/github.com/nats-io/nats.go@v1.48.0/nats.go:3766"
	brokerWait = "github.com/nats-io/nats.go.(*Conn).waitForMsgs@/mod/github.com/nats-io/nats.go@v1.48.0/nats.go:3819"
)

// A consumer is a goroutine (7) that handles messages one after another. It sleeps for workNS for each. handle and await are the
// stacks of the work and of the wait for the next message.
type consumer struct {
	builder                *tracetext.Builder
	worker, reader, poller *tracetext.Thread
	handle, await          []string
	awaitReason            string
	readsItself            bool // the consumer reads the socket; else goroutine 8 does, and passes the messages on
}

func newConsumer() *consumer {
	b := tracetext.New(26)
	c := &consumer{builder: b, worker: b.Thread(), reader: b.Thread(), poller: b.ThreadWithoutP()}
	b.IdleProc()
	b.Waiting(7)
	b.Waiting(8)
	return c
}

// begin lets the consumer handle a message, or wait for the next one.
func (c *consumer) begin(clock int64, hasMessage bool) {
	if c.readsItself {
		c.worker.Syscall(clock, append([]string{"syscall.recvfrom", "internal/poll.(*FD).ReadFromInet4"}, c.await...)...)
		c.worker.SyscallEnd(clock + us)
	}
	if hasMessage {
		c.worker.Block(clock+10*us, "sleep", append([]string{"time.Sleep"}, c.handle...)...)
	} else {
		c.worker.Block(clock+10*us, c.awaitReason, c.await...)
	}
}

// write writes the messages that arrive at some times.
func (c *consumer) write(arrivals []int64) {
	isBusy, busyUntil, queued := false, int64(0), 0
	for len(arrivals) != 0 || isBusy {
		if isBusy && (len(arrivals) == 0 || busyUntil < arrivals[0]) {
			c.poller.Unblock(busyUntil, 7)
			c.worker.Start(busyUntil+us, 7)
			isBusy = queued > 0
			c.begin(busyUntil+2*us, isBusy)
			queued, busyUntil = max(0, queued-1), busyUntil+12*us+workNS
			continue
		}
		clock := arrivals[0]
		arrivals = arrivals[1:]
		wakes := !isBusy
		if wakes {
			isBusy, busyUntil = true, clock+14*us+workNS
		} else {
			queued++
		}
		if !c.readsItself {
			c.poller.Unblock(clock, 8)
			c.reader.Start(clock+us, 8)
			if wakes {
				c.reader.Unblock(clock+2*us, 7, "sync.(*Cond).Signal", "github.com/nats-io/nats.go.(*Conn).processMsg@/mod/github.com/nats-io/nats.go@v1.48.0/nats.go:4055", brokerRead)
			}
			c.reader.Block(clock+3*us, "network", "internal/poll.(*FD).Read", "net.(*conn).Read", brokerRead)
		} else if wakes {
			c.poller.Unblock(clock, 7)
		}
		if wakes {
			c.worker.Start(clock+3*us, 7)
			c.begin(clock+4*us, true)
		}
	}
}

// TestConsumerFallsBehind: messages that arrive while the only goroutine that handles them is at work wake nobody. It fails if they
// count as a part of the message before, if their queueing is not seen, or if a consumer that keeps up is accused.
func TestConsumerFallsBehind(t *testing.T) {
	var burst, steady []int64
	for cycle := int64(10 * ms); cycle < 5000*ms; cycle += 100 * ms {
		for i := range int64(4) {
			burst, steady = append(burst, cycle+2*i*ms), append(steady, cycle+25*i*ms)
		}
	}
	for name, set := range map[string]func(*consumer){
		"broker": func(c *consumer) {
			c.handle, c.await, c.awaitReason = []string{"main.handle@/src/main.go:22", brokerWait}, []string{"sync.(*Cond).Wait", brokerWait}, "sync.(*Cond).Wait"
		},
		"iterator": func(c *consumer) {
			next := "github.com/nats-io/nats.go/jetstream.(*pullSubscription).Next@/mod/github.com/nats-io/nats.go@v1.48.0/jetstream/pull.go:684"
			c.handle, c.await, c.awaitReason = []string{"main.process@/src/main.go:22", "main.consume@/src/main.go:11"}, []string{next, "main.consume@/src/main.go:10"}, "select"
		},
		"socket": func(c *consumer) {
			c.handle, c.await, c.awaitReason = []string{"main.answer@/src/main.go:22", "main.serve@/src/main.go:11"}, []string{"net.(*UDPConn).ReadFromUDP", "main.serve@/src/main.go:10"}, "network"
			c.readsItself = true
		},
	} {
		t.Run(name, func(t *testing.T) {
			isQueue := func(f report.Finding) bool {
				// What lies in a socket is estimated to have arrived later than it did.
				return f.Code == report.RulePoolTooSmall && (f.Severity == report.SeverityHigh || name == "socket") && strings.HasPrefix(f.Title, "messages queue ")
			}
			for _, arrivals := range [][]int64{burst, steady} {
				c := newConsumer()
				set(c)
				c.write(arrivals)
				rep := explainBuilt(t, c.builder, whylate.Options{})
				check.True(t, len(rep.Groups) != 0 && rep.Groups[0].Count >= len(arrivals)*9/10 && *rep.Groups[0].LatencyNS.Mean <= workNS*11/10,
					"%d messages: groups %+v", len(arrivals), rep.Groups)
				check.Equal(t, slices.ContainsFunc(rep.Findings, isQueue), arrivals[1]-arrivals[0] < workNS, "%+v", rep.Findings)
			}
		})
	}
}

// TestConsumerFetchesThroughGoroutines: a library starts a goroutine for each fetch, and its consumer receives the messages from a
// channel. It fails if that goroutine's messages count as work of the consumer's own, or if the result of a goroutine that the
// service started for a part of its work counts as a message.
func TestConsumerFetchesThroughGoroutines(t *testing.T) {
	const messages = 40
	jetstream := "@/mod/github.com/nats-io/nats.go@v1.53.1/jetstream/pull.go:"
	loop := "main.(*worker).loop@/src/main.go:52"
	for call, isMessage := range map[string]bool{
		"github.com/nats-io/nats.go/jetstream.(*pullConsumer).Fetch" + jetstream + "870": true,
		"main.split@/src/main.go:40": false,
	} {
		b := tracetext.New(26)
		worker, helper, poller := b.Thread(), b.Thread(), b.ThreadWithoutP()
		b.IdleProc()
		worker.Create(1*us, 7, "main.(*worker).loop")
		worker.Start(2*us, 7)
		for i := range uint64(messages) {
			clock := int64(10*us) + int64(i)*50*ms + 2*us*int64(i)
			worker.Create(clock, 100+i, "github.com/nats-io/nats.go/jetstream.(*pullConsumer).fetch.func1"+jetstream+"992", call, loop)
			worker.Block(clock+10*us, "chan receive", loop)
			helper.Start(clock+20*us, 100+i)
			helper.Block(clock+30*us, "sleep", "time.Sleep")
			poller.Unblock(clock+30*ms, 100+i)
			helper.Start(clock+30*ms+us, 100+i)
			helper.Unblock(clock+30*ms+2*us, 7)
			helper.Destroy(clock + 30*ms + 3*us)
			worker.Start(clock+30*ms+4*us, 7)
			worker.Block(clock+30*ms+5*us, "sleep", "time.Sleep", "main.(*worker).handle@/src/main.go:36", loop)
			poller.Unblock(clock+50*ms, 7)
			worker.Start(clock+50*ms+us, 7)
		}
		worker.Block(int64(10*us)+messages*(50*ms+2*us), "chan receive", loop)
		rep := explainBuilt(t, b, whylate.Options{})
		isFound := slices.ContainsFunc(rep.Groups, func(g report.Group) bool {
			return g.Name == "main.(*worker).loop" && g.Count >= messages-1 && *g.LatencyNS.Mean < 21*ms
		})
		check.Equal(t, isFound, isMessage, "%s: %d groups", call, len(rep.Groups))
	}
}

// TestEventLoop: an event loop waits for its connections in a system call. That is idle time, each message that it reads is a unit, and
// those that it finds ready after a long one have queued. It fails if the wait counts as work, or if all messages of one wait are one unit.
func TestEventLoop(t *testing.T) {
	const rounds = 40
	b := tracetext.New(26)
	worker, poller := b.Thread(), b.ThreadWithoutP()
	b.IdleProc()
	loop := []string{"main.(*loop).run@/src/main.go:52"}
	on := func(frames ...string) []string { return append(frames, loop...) }
	wait, read := on("syscall.EpollWait"), on("syscall.Read")
	handler := "main.(*loop).handle@/src/main.go:87"
	worker.Create(1*us, 7, "main.(*loop).run")
	worker.Start(2*us, 7)
	clock := int64(10 * us)
	for range rounds {
		worker.Syscall(clock, wait...)
		clock += 20 * ms
		for message := range 3 { // the last two came while the first was handled
			if message == 1 {
				worker.Syscall(clock, wait...)
				clock += us
			}
			if message < 2 {
				worker.SyscallEnd(clock)
			}
			worker.Syscall(clock+us, read...)
			worker.SyscallEnd(clock + 2*us)
			if message == 0 {
				worker.Block(clock+3*us, "sleep", on("time.Sleep", "main.(*loop).usage@/src/main.go:133", handler)...)
				clock += 10 * ms
				poller.Unblock(clock, 7)
				worker.Start(clock+us, 7)
			}
			worker.Syscall(clock+4*us, on("syscall.Write", handler)...)
			worker.SyscallEnd(clock + 5*us)
			clock += 10 * us
		}
	}
	worker.Syscall(clock, wait...)
	rep := explainBuilt(t, b, whylate.Options{})
	check.True(t, len(rep.Groups) == 1 && rep.Groups[0].Name == "main.(*loop).run", "groups %+v", rep.Groups)
	group := &rep.Groups[0]
	check.True(t, group.Count >= 3*rounds-3 && *group.LatencyNS.Max < 11*ms, "%d units, the longest %d ns", group.Count, *group.LatencyNS.Max)
	check.True(t, group.Backlog != nil && group.Backlog.Queued >= 2*rounds-2 && *group.Backlog.WaitNS.P90 > 5*ms, "backlog %+v", group.Backlog)
	check.True(t, slices.ContainsFunc(rep.Findings, func(f report.Finding) bool {
		return f.Code == report.RulePoolTooSmall
	}), "%+v", rep.Findings)
}
