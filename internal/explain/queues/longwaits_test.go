package queues

import (
	"testing"

	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// TestIsHandover: to read a request's body, to answer it and to release a lock hands no work over, over HTTP/2 as well. A
// goroutine that otherwise only waits is a subscriber.
func TestIsHandover(t *testing.T) {
	symbols := tracefmt.NewSymbols()
	stack := func(fns ...string) tracefmt.StackID {
		var frames []tracefmt.FrameText
		for _, fn := range fns {
			frames = append(frames, tracefmt.FrameText{Func: fn})
		}
		return symbols.AddStack(frames...)
	}
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
		if got := p.isHandover(c.stack); got != c.want {
			t.Errorf("stack %d: %t, want %t", i, got, c.want)
		}
	}
}
