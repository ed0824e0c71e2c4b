package queues

import (
	"testing"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// TestIsHandover: to read a request's body, to answer it and to release a lock hands no work over, over HTTP/2 as well. A
// goroutine that otherwise only waits is a subscriber.
func TestIsHandover(t *testing.T) {
	symbols := tracefmt.NewSymbols()
	stack := func(fns ...string) tracefmt.StackID { return addStack(symbols, fns...) }
	cases := []struct {
		stack tracefmt.StackID
		want  bool
	}{
		{stack("runtime.chansend1", "main.(*queue).push", "main.(*hub).poll"), true},
		{stack("sync.(*Mutex).Unlock", "main.(*hub).poll"), false},
		{stack("net/http.(*connReader).startBackgroundRead", "net/http.(*conn).serve"), false},
		{stack("runtime.selectgo", "net/http.(*http2serverConn).noteBodyReadFromHandler", "net/http.(*http2requestBody).Read", "main.(*hub).poll"), false},
		{stack("runtime.selectgo", "golang.org/x/net/http2.(*serverConn).noteBodyReadFromHandler", "golang.org/x/net/http2.(*requestBody).Read", "main.(*hub).poll"), false},
		{stack("runtime.selectgo", "net/http.(*http2serverConn).writeDataFromHandler", "net/http.(*http2responseWriter).Flush", "main.(*hub).watch"), false},
		{stack("runtime.selectgo", "net/http.(*http2clientStream).writeRequest", "main.(*hub).poll"), true},
	}
	syms := symbols.Snapshot()
	p := &workerSum{stage: path.New(&timeline.Window{}, &syms, path.Options{})}
	for i, c := range cases {
		check.Equal(t, p.isHandover(c.stack), c.want, "stack %d", i)
	}
}

// TestIsHandedOverByPeer: a request that called a peer and then waits for a goroutine that looks for work at a peer after a pause
// has handed its work over through the peer. The test fails if one of the three suffices.
func TestIsHandedOverByPeer(t *testing.T) {
	const own, worker = 1, 2
	segment := func(g uint64, code cause.Code, start, end int64) cause.Segment {
		return cause.Segment{G: g, Code: code, Start: start, End: end}
	}
	ask, pause, look := segment(own, cause.Code(cause.Network), 0, 10), segment(worker, cause.Code(cause.Sleep), 10, 80), segment(worker, cause.Code(cause.Network), 80, 90)
	client := ask
	client.Inbound = true
	for _, c := range []struct {
		name     string
		segments []cause.Segment
		want     bool
	}{
		{"through a peer", []cause.Segment{ask, pause, look}, true},
		{"news of a ticker, after a look-up", []cause.Segment{ask, pause}, false},
		{"no call before the wait", []cause.Segment{pause, look}, false},
		{"its client's body", []cause.Segment{client, pause, look}, false},
		{"no pause", []cause.Segment{ask, look}, false},
	} {
		w := &path.WalkResult{Req: &request.Request{G: own, End: 100}, Segments: c.segments}
		check.Equal(t, isHandedOverByPeer(w, ownWait{start: 10, end: 95}), c.want, "%s", c.name)
	}
}

// TestBatchCycle: a request arrives while the goroutine that will wake it works for another one. If that goroutine wakes the other first, and
// then works for this request, they are served one after the other. News reaches all at once, and a peer's messages are no work.
func TestBatchCycle(t *testing.T) {
	const worker, other, own, ms, origin = 1, 2, 3, 1_000_000, tracetext.Origin
	for name, c := range map[string]struct {
		work          cause.Cause
		call          string // the wait of the worker for its peer
		otherWoken    int64  // in ms; 0: never
		missed, other int64
	}{
		"computes for each":        {cause.CPU, "main.render", 20, 1, 0},
		"calls a peer for each":    {cause.Network, "net/http.(*persistConn).roundTrip", 20, 1, 0},
		"passes messages on":       {cause.Network, "main.read", 20, 0, 1},
		"computes news for all":    {cause.CPU, "main.render", 50, 0, 1},
		"computes for nobody else": {cause.CPU, "main.render", 0, 0, 1},
	} {
		win, symbols := timelinetest.BuildWindow(t, func(b *tracetext.Builder) {
			m := b.Thread(worker)
			b.Waiting(other)
			b.Waiting(own)
			if c.otherWoken != 0 {
				m.Unblock(c.otherWoken*ms, other, "runtime.chansend1", "main.finish", "main.work")
			}
			m.Unblock(50*ms+1000, own, "runtime.chansend1", "main.finish", "main.work")
		})
		stack := addStack(symbols, c.call, "main.work")
		syms := symbols.Snapshot()
		p := &workerSum{stage: path.New(win, &syms, path.Options{})}
		end := int64(origin + 50*ms + 1000)
		waits := []critpath.FollowedWait{{G: own, Waker: worker, Start: origin + 10*ms, End: end, Parent: -1}, {G: worker, Start: origin + 10*ms, End: end - 1000, Parent: 0, Stack: stack}}
		segments := []cause.Segment{{G: worker, Code: cause.Code(c.work), Start: origin + 10*ms, End: end, FollowedWait: 1}}
		var sum longWaitSum
		p.addBatchCycle(&sum, segments, waits, ownWait{start: origin + 10*ms, end: end, waitIndex: 0})
		check.True(t, sum.missedCycles == c.missed && sum.otherCycles == c.other, "%s: %+v", name, sum)
	}
}
