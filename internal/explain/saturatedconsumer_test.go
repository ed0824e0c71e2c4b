package explain_test

import (
	"strings"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

// A busyConsumer is goroutine 7, which handles a message every 20 ms and never waits for one. Goroutine 8 reads them.
type busyConsumer struct {
	read         []string // the system call by which goroutine 8 reads each message
	blocks       bool     // goroutine 8 is blocked until the consumer takes the message that it has read; else nothing shows takes
	answers      bool     // goroutine 8 writes to a connection after each read
	asks         string   // the consumer waits in this function for each message; goroutine 8 has none
	askNS        func(workNS int64) int64
	readsItself  bool // the consumer reads each message, without a wait
	hasRestsEach int  // every so many messages, the consumer waits for one
}

func (bc *busyConsumer) build() *tracetext.Builder {
	b := tracetext.New(26)
	worker, reader, poller := b.Thread(), b.Thread(), b.ThreadWithoutP()
	b.IdleProc()
	for _, id := range []uint64{7, 8, 9} {
		b.Waiting(id)
	}
	poller.Unblock(1*ms, 9)
	reader.Start(1*ms+us, 9)
	reader.Block(1*ms+2*us, "network", "internal/poll.(*FD).Accept", "net.(*TCPListener).Accept", "main.main@/src/main.go:50")
	const loop = "main.consume@/src/main.go:"
	poller.Unblock(2*ms, 7)
	worker.Start(2*ms+us, 7)
	clock, readAt := int64(3*ms), int64(0)
	for i := range int64(100) {
		if bc.readsItself {
			worker.Syscall(clock, "syscall.read", "internal/poll.(*FD).Read", "net.(*conn).Read", loop+"10")
			worker.SyscallEnd(clock + 2*us)
		}
		if bc.blocks && readAt > 0 {
			worker.Unblock(clock+3*us, 8, "runtime.chanrecv2", loop+"10")
			reader.Start(clock+4*us, 8)
			readAt = 0
		} else if bc.asks == "" && !bc.readsItself {
			poller.Unblock(clock+3*us, 8)
			reader.Start(clock+4*us, 8)
		}
		if bc.asks == "" && !bc.readsItself {
			reader.Syscall(clock+5*us, bc.read...)
			reader.SyscallEnd(clock + 6*us)
			if bc.answers {
				reader.Syscall(clock+7*us, "syscall.write", "internal/poll.(*FD).Write", "net.(*conn).Write", "main.receive@/src/main.go:22")
				reader.SyscallEnd(clock + 8*us)
			}
			if bc.blocks {
				reader.Block(clock+9*us, "chan send", "runtime.chansend1", "main.receive@/src/main.go:23")
				readAt = clock
			} else {
				reader.Block(clock+9*us, "network", "internal/poll.runtime_pollWait", "internal/poll.(*FD).Read", "net.(*conn).Read", "main.receive@/src/main.go:21")
			}
		}
		work := 20*ms + i%7*ms - 3*ms
		worker.Block(clock+10*us, "sleep", "time.Sleep", "main.store@/src/main.go:31", "main.handle@/src/main.go:28", "main.apply@/src/main.go:27", loop+"11")
		clock += work
		poller.Unblock(clock, 7)
		worker.Start(clock+us, 7)
		clock += 2 * us
		if bc.asks != "" {
			worker.Block(clock, "network", "internal/poll.runtime_pollWait", "internal/poll.(*FD).Read", "net.(*conn).Read", bc.asks, loop+"10")
			clock += bc.askNS(work)
			poller.Unblock(clock, 7)
			worker.Start(clock+us, 7)
			clock += 2 * us
		}
		if bc.hasRestsEach != 0 && i%int64(bc.hasRestsEach) == 0 {
			worker.Block(clock, "chan receive", "runtime.chanrecv2", loop+"10")
			clock += 30 * ms
			poller.Unblock(clock, 7)
			worker.Start(clock+us, 7)
			clock += 2 * us
		}
	}
	return b
}

// TestSaturatedConsumer: consumers that always have a next message never wait for one. It fails if such a queue is not reported, or
// if a loop is accused that rests, that asks for messages which come at regular times, whose feeder reads no network, or whose
// neighbour handles what it reads itself.
func TestSaturatedConsumer(t *testing.T) {
	const (
		pop  = "github.com/redis/go-redis/v9.cmdable.BLPop@/mod/github.com/redis/go-redis/v9@v9.22.0/list_commands.go:66"
		mine = "main.receive@/src/main.go:21"
	)
	conn, file := []string{"syscall.read", "internal/poll.(*FD).Read", "net.(*conn).Read", mine}, []string{"syscall.read", "internal/poll.(*FD).Read", "os.(*File).Read", mine}
	constant := func(ns int64) func(int64) int64 { return func(int64) int64 { return ns } }
	for name, c := range map[string]struct {
		consumer busyConsumer
		want     report.Severity
		advice   string
	}{
		"full channel":         {busyConsumer{read: conn, blocks: true}, report.SeverityHigh, "handle 2 messages at once instead of 1"},
		"file":                 {busyConsumer{read: file, blocks: true}, "", ""},
		"reader may count":     {busyConsumer{read: conn}, "", ""},
		"answered by reader":   {busyConsumer{read: conn, answers: true}, "", ""},
		"rests":                {busyConsumer{read: conn, blocks: true, hasRestsEach: 3}, "", ""},
		"asks":                 {busyConsumer{asks: pop, askNS: constant(400 * us)}, report.SeverityHigh, "handle 2 messages at once instead of 1"},
		"asks far away":        {busyConsumer{asks: pop, askNS: constant(8 * ms)}, report.SeverityHigh, "take many messages in one call at main.consume (main.go:10)"},
		"arrives every 30 ms":  {busyConsumer{asks: pop, askNS: func(work int64) int64 { return 30*ms - work }}, "", ""},
		"waits longer for one": {busyConsumer{asks: pop, askNS: constant(60 * ms)}, "", ""},
		"socket":               {busyConsumer{readsItself: true}, report.SeverityHigh, "handle 2 messages at once instead of 1"},
	} {
		t.Run(name, func(t *testing.T) {
			rep := explainBuilt(t, c.consumer.build(), whylate.Options{})
			got, fix := report.Severity(""), ""
			for i := range rep.Findings {
				if f := &rep.Findings[i]; f.Code == report.RulePoolTooSmall && strings.Contains(f.Title, "always has a next one") {
					got, fix = f.Severity, f.Fix
				}
			}
			check.Equal(t, got, c.want, "%s", fix)
			check.True(t, strings.Contains(fix, c.advice), "%s", fix)
			if c.want != "" {
				g := &rep.Groups[0]
				check.True(t, g.Saturated != nil && g.Saturated.PerSecond > 30 && g.Saturated.PerSecond < 52 && g.Count > 90, "%s %d: %+v", g.Name, g.Count, g.Saturated)
			}
		})
	}
}
