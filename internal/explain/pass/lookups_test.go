package pass_test

import (
	"bytes"
	"sync/atomic"
	"testing"

	"github.com/whylate/whylate/internal/explain/groups"
	"github.com/whylate/whylate/internal/explain/pass"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// workerTrace builds a trace of one generation in which a worker runs n iterations. Each iteration begins when a
// connection's goroutine hands over work, waits for a lock and for another goroutine, and calls a service over the
// network.
func workerTrace(t *testing.T, n int) []byte {
	t.Helper()
	b := tracetext.New(26)
	m, o := b.Thread(), b.Thread()
	for g := uint64(1); g <= 3; g++ {
		b.Waiting(g)
	}
	start := int64(1000)
	for range n {
		o.Unblock(start, 1, "main.handOver", "main.serve")
		m.Start(start+100, 1)
		m.Block(start+200, "sync", "sync.(*Mutex).Lock", "main.work", "main.loop")
		o.Unblock(start+300, 1, "sync.(*Mutex).Unlock", "main.other")
		m.Start(start+400, 1)
		m.Unblock(start+450, 2, "main.ask", "main.work", "main.loop")
		m.Block(start+500, "chan receive", "main.ask", "main.work", "main.loop")
		m.Start(start+600, 2)
		m.Syscall(start+650, "syscall.write", "main.answer", "main.answers")
		m.SyscallEnd(start + 700)
		m.Unblock(start+750, 1, "main.answer", "main.answers")
		m.Block(start+800, "select", "main.answers")
		m.Start(start+900, 1)
		m.Block(start+1000, "network", "internal/poll.(*FD).Read", "example.com/client.(*Conn).Get", "main.work", "main.loop")
		o.Unblock(start+1500, 1)
		m.Start(start+1600, 1)
		m.Block(start+1700, "chan receive", "runtime.chanrecv1", "main.loop")
		start += 3000
	}
	return must.Have(b.Bytes())(t)
}

// TestLookups: the meaning of a stack or a text is looked up once, not for each span that has it.
func TestLookups(t *testing.T) {
	lookupsOf := func(n int) (lookups, requests int64) {
		rd := must.Have(tracefmt.NewReader(bytes.NewReader(workerTrace(t, n)), tracefmt.Options{}))(t)
		p := pass.New(pass.Options{Workers: 1})
		p.Sums = []pass.Sum{groups.New(), queues.New()}
		var looked atomic.Int64
		p.Symbols.Lookups = &looked
		must.Do(t, p.Run(t.Context(), rd))
		return looked.Load(), p.Requests
	}
	fewRequests, n := lookupsOf(300)
	manyRequests, m := lookupsOf(1200)
	must.True(t, n >= 250 && m >= 4*n-100, "%d and %d requests", n, m)
	check.True(t, manyRequests <= fewRequests, "%d strings were looked up for %d requests, %d for %d", fewRequests, n, manyRequests, m)
}
