package queues

import (
	"testing"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
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
