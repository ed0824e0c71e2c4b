package explain_test

import (
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// TestStreamMessages: each message of a gRPC stream that began before the trace is a request, from the wake of the connection's reader
// to the next wait for a message. A stream that began in the trace is one request.
func TestStreamMessages(t *testing.T) {
	const transport = "google.golang.org/grpc/internal/transport."
	inStream := func(frames ...string) []string {
		return append(frames, "example.com/oracle.(*server).Times", "google.golang.org/grpc.(*Server).processStreamingRPC", "google.golang.org/grpc.(*Server).handleStream", "google.golang.org/grpc.(*Server).serveStreams.func2.1")
	}
	receive := inStream(transport+"(*recvBufferReader).Read", "google.golang.org/grpc.(*serverStream).RecvMsg")
	read := []string{"internal/poll.(*FD).Read", transport + "(*http2Server).HandleStreams"}
	builder := tracetext.New(26)
	th, poller := builder.Thread(), builder.ThreadWithoutP()
	builder.Waiting(5)
	builder.Waiting(6)
	clock := int64(10 * us)
	const n = 20
	for i := range n + 1 {
		g := uint64(5)
		poller.Unblock(clock, 6)
		th.Start(clock+us, 6)
		if i == n/2 { // the connection's next stream
			g = 7
			th.Create(clock+2*us, g, "google.golang.org/grpc.(*Server).serveStreams.func2.1", "google.golang.org/grpc.(*Server).serveStreams")
		} else {
			th.Unblock(clock+2*us, g, transport+"(*recvBuffer).put", transport+"(*http2Server).HandleStreams")
		}
		th.Block(clock+3*us, "network", read...)
		th.Start(clock+4*us, g)
		th.Block(clock+5*us, "sync", inStream("sync.(*Mutex).Lock")...)
		poller.Unblock(clock+90*us, g)
		th.Start(clock+91*us, g)
		if th.Block(clock+100*us, "select", receive...); g == 7 {
			poller.Unblock(clock+200*us, g)
			th.Start(clock+201*us, g)
			th.Destroy(clock + 300*us)
		}
		clock += ms
	}
	rep := explainBuilt(t, builder, whylate.Options{})
	must.True(t, len(rep.Groups) == 1, "%d groups", len(rep.Groups))
	g := &rep.Groups[0]
	check.True(t, g.Name == "example.com/oracle.(*server).Times" && g.Kind == "grpc" && g.Count == n, "%s %s has %d requests, want %d", g.Kind, g.Name, g.Count, n)
	check.Equal(t, g.TotalNS, int64((n-1)*100*us+300*us), "ns in all")
}
