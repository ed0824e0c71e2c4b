package catalog

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/whylate/whylate/lab/truth/wire"
)

func streamServices() []*Service {
	return []*Service{
		{Name: "sse", Doc: "server-sent events: ten events with a pause between", Proto: "http1",
			Load: Load{Conns: 2, Rest: 2 * time.Millisecond, Paths: []Path{{Path: "/slow", Weight: 1, Slow: true, Client: "stream"}, {Path: "/fast", Weight: 2}}},
			Truth: Truth{Kind: "http1", Group: "(*events).send", Cause: "sleep", Injected: "ten pauses of 10 ms", LeastNS: 100e6, InjectedNS: 100e6, Share: 0.98,
				Doubt: "a stream's length is not lateness to everybody"},
			Fix: "10 ms -> 1 ms", FixAtMost: 0.4, start: startEvents},
		{Name: "upgrade", Doc: "connections taken over: a pause before each line is answered, over the connection's life", Proto: "http1",
			Load: Load{Conns: 3, Rest: time.Millisecond, Paths: []Path{{Path: "/slow", Weight: 1, Slow: true, Client: "echo"}}},
			Truth: Truth{Kind: "http1", Group: "(*echo).serve", Cause: "sleep", Injected: "10 ms pause for each line; the client counts a line as a request", LeastNS: 10e6, InjectedNS: 10e6, ShareMin: 0.5,
				Doubt: "a taken-over connection is one request that never ends, or a loop with a turn a line, or nothing"},
			Fix: "10 ms -> 1 ms", FixAtMost: 0.5, start: startEcho},
		{Name: "grpc-unary", Doc: "gRPC: a unary call that sleeps", Proto: "grpc",
			Load:  Load{Conns: 3, Rest: 2 * time.Millisecond, Paths: []Path{{Path: "Slow", Weight: 1, Slow: true}, {Path: "Fast", Weight: 1}}},
			Truth: Truth{Kind: "grpc", Group: "(*rpc).Slow", OrGroups: []string{"github.com/whylate/whylate/lab/truth/wire._Truth_Slow_Handler"}, Cause: "sleep", Injected: "15 ms sleep", LeastNS: 15e6, InjectedNS: 15e6, Share: 0.97},
			Fix:   "15 ms -> 2 ms", FixAtMost: 0.5, start: startRPC},
		{Name: "grpc-workers", Doc: "as grpc-unary, with grpc.NumStreamWorkers: long-lived workers handle the calls", Proto: "grpc",
			Load:  Load{Conns: 3, Rest: 2 * time.Millisecond, Paths: []Path{{Path: "Slow", Weight: 1, Slow: true}, {Path: "Fast", Weight: 1}}},
			Truth: Truth{Kind: "grpc", Group: "(*rpc).Slow", OrGroups: []string{"github.com/whylate/whylate/lab/truth/wire._Truth_Slow_Handler"}, Cause: "sleep", Injected: "15 ms sleep", LeastNS: 15e6, InjectedNS: 15e6, Share: 0.97},
			Fix:   "15 ms -> 2 ms", FixAtMost: 0.5, start: startRPCWorkers},
		{Name: "grpc-stream", Doc: "gRPC: a server stream of ten messages with pauses", Proto: "grpc",
			Load:  Load{Conns: 2, Rest: 2 * time.Millisecond, Paths: []Path{{Path: "Stream", Weight: 1, Slow: true, Client: "stream"}, {Path: "Fast", Weight: 1}}},
			Truth: Truth{Kind: "grpc", Group: "(*rpc).Stream", OrGroups: []string{"github.com/whylate/whylate/lab/truth/wire._Truth_Stream_Handler"}, Cause: "sleep", Injected: "ten pauses of 5 ms", LeastNS: 50e6, InjectedNS: 50e6, Share: 0.98},
			Fix:   "5 ms -> 1 ms", FixAtMost: 0.6, start: startRPC},
	}
}

type events struct{ pause time.Duration }

func startEvents(e *Env) (*Parts, error) {
	s := &events{e.pickDuration(10*time.Millisecond, time.Millisecond)}
	return &Parts{HTTP: withFast(s.send)}, nil
}

func (s *events) send(w http.ResponseWriter, _ *http.Request) {
	declareBlame(w)
	w.Header().Set("Content-Type", "text/event-stream")
	rc := http.NewResponseController(w)
	var blamed time.Duration
	for i := range 10 {
		fmt.Fprintf(w, "data: %d\n\n", i)
		rc.Flush()
		t := time.Now()
		time.Sleep(s.pause) // truth: site sse
		blamed += time.Since(t)
	}
	blame(w, blamed)
}

type echo struct{ pause time.Duration }

func startEcho(e *Env) (*Parts, error) {
	s := &echo{e.pickDuration(10*time.Millisecond, time.Millisecond)}
	return &Parts{HTTP: withFast(s.serve)}, nil
}

func (s *echo) serve(w http.ResponseWriter, _ *http.Request) {
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	io.WriteString(buf, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	for buf.Flush() == nil {
		if _, err := buf.ReadString('\n'); err != nil {
			return
		}
		t := time.Now()
		time.Sleep(s.pause) // truth: site upgrade
		fmt.Fprintln(buf, int64(time.Since(t)))
	}
}

type rpc struct{ unary, pause time.Duration }

func startRPC(e *Env) (*Parts, error) {
	return &Parts{GRPC: &rpc{e.pickDuration(15*time.Millisecond, 2*time.Millisecond), e.pickDuration(5*time.Millisecond, time.Millisecond)}}, nil
}

func startRPCWorkers(e *Env) (*Parts, error) {
	p, err := startRPC(e)
	if err == nil {
		p.GRPCOptions = []grpc.ServerOption{grpc.NumStreamWorkers(8)}
	}
	return p, err
}

func trailer(d time.Duration) metadata.MD {
	return metadata.Pairs(wire.Blamed, strconv.FormatInt(int64(d), 10))
}

func (s *rpc) Slow(ctx context.Context, in *wire.Text) (*wire.Text, error) {
	t := time.Now()
	time.Sleep(s.unary) // truth: site grpc-unary, site grpc-workers
	return in, grpc.SetTrailer(ctx, trailer(time.Since(t)))
}

func (s *rpc) Fast(_ context.Context, in *wire.Text) (*wire.Text, error) { return in, nil }

func (s *rpc) Stream(in *wire.Text, out grpc.ServerStream) error {
	var blamed time.Duration
	for range 10 {
		t := time.Now()
		time.Sleep(s.pause) // truth: site grpc-stream
		blamed += time.Since(t)
		if err := out.SendMsg(in); err != nil {
			return err
		}
	}
	out.SetTrailer(trailer(blamed))
	return nil
}
