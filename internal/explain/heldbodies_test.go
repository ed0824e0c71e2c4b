package explain_test

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestHeldBody: a request's body waits for HTTP/2's flow control, before any part of it is sent, because what main.upload sends on the same
// connection has used up what the peer allows; or after a part, because the peer reads slowly. It fails if the report
// asks for a faster answer, or does not distinguish the two.
func TestHeldBody(t *testing.T) {
	const reader, uploader, upload, send = uint64(20), uint64(21), uint64(22), "net/http.(*http2clientStream).doRequest"
	body := []string{"net/http.(*http2clientStream).writeRequestBody", "net/http.(*http2clientStream).writeRequest", send + ":8718"}
	held := append([]string{"sync.runtime_notifyListWait", "sync.(*Cond).Wait", "net/http.(*http2clientStream).awaitFlowControl"}, body...)
	write := append([]string{"syscall.write", "net.(*netFD).Write", "net.(*conn).Write"}, body...)
	read := []string{"internal/poll.runtime_pollWait", "net.(*conn).Read", "net/http.(*http2clientConnReadLoop).run", "net/http.(*http2ClientConn).readLoop:9419"}
	for _, sentBefore := range []bool{false, true} {
		s := newServer()
		s.builder.Waiting(reader)
		s.builder.Waiting(uploader)
		s.wake(ms, reader)
		s.thread.Block(ms+2*us, "network", read...)
		s.wake(2*ms, uploader)
		s.thread.Create(2*ms+2*us, upload, send, "net/http.(*http2ClientConn).roundTrip", "main.upload@/src/main.go:40")
		s.thread.Block(2*ms+3*us, "select", "runtime.selectgo", "net/http.(*http2ClientConn).roundTrip", "main.upload@/src/main.go:40")
		s.thread.Start(2*ms+4*us, upload)
		s.thread.Block(2*ms+5*us, "sync.(*Cond).Wait", held...)
		for clock := int64(10 * ms); clock < 400*ms; clock += 10 * ms {
			sender := uint64(clock) + 1
			s.wake(clock, firstConn)
			s.thread.Create(clock+2*us, uint64(clock), "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", connFunc)
			call := []string{"net/http.(*http2ClientConn).roundTrip", "main.book@/src/main.go:20", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", connFunc}
			s.thread.Create(clock+3*us, sender, send, call...)
			s.thread.Block(clock+4*us, "select", append([]string{"runtime.selectgo"}, call...)...)
			s.thread.Start(clock+5*us, sender)
			if sentBefore {
				s.thread.Syscall(clock+6*us, write...)
				s.thread.SyscallEnd(clock + 7*us)
			}
			s.thread.Block(clock+8*us, "sync.(*Cond).Wait", held...)
			s.wake(clock+5*ms, reader)
			for i, g := range []uint64{upload, sender} {
				s.thread.Unblock(clock+5*ms+int64(2+i)*us, g, "sync.(*Cond).Broadcast", "net/http.(*http2clientConnReadLoop).processWindowUpdate", "net/http.(*http2ClientConn).readLoop:9419")
			}
			s.thread.Block(clock+5*ms+5*us, "network", read...)
			s.thread.Start(clock+5*ms+6*us, sender)
			s.thread.Syscall(clock+5*ms+7*us, write...)
			s.thread.SyscallEnd(clock + 5*ms + 8*us)
			s.thread.Destroy(clock + 5*ms + 9*us)
			s.thread.Start(clock+5*ms+10*us, upload)
			s.thread.Block(clock+5*ms+12*us, "sync.(*Cond).Wait", held...)
			s.wake(clock+6*ms, reader)
			s.thread.Unblock(clock+6*ms+2*us, firstConn, "net/http.(*http2clientConnReadLoop).processHeaders", "net/http.(*http2ClientConn).readLoop:9419")
			s.thread.Block(clock+6*ms+3*us, "network", read...)
			s.thread.Start(clock+6*ms+4*us, firstConn)
			s.awaitRequest(clock+6*ms+10*us, firstConn)
		}
		rep := s.explain(t)
		must.True(t, len(rep.Findings) != 0 && len(rep.Verdict) != 0, "no findings")
		first, cause := rep.Findings[0], rep.Verdict[0].Causes[0]
		check.True(t, cause.Kind == "flow-control" && cause.Share > 0.8, "%+v", cause)
		check.True(t, first.Predicted != nil && first.Predicted.P50NS.Est < 2e6, "%+v", first.Predicted) // the answer itself takes 1 ms
		if sentBefore {
			check.True(t, strings.Contains(first.Title, "reads more of their bodies") && strings.Contains(first.Fix, "MaxReceiveBufferPerStream"), "%s: %s", first.Title, first.Fix)
		} else {
			check.True(t, strings.Contains(first.Title, "which main.upload (main.go:40) uses up") && strings.Contains(first.Fix, "a connection of its own"), "%s: %s", first.Title, first.Fix)
		}
	}
}

// TestHeldMessage: a stream of gRPC waits until its earlier messages are sent. It fails if the report asks for a faster answer.
func TestHeldMessage(t *testing.T) {
	s := newServer()
	s.serve(400*ms, "select", "runtime.selectgo", "google.golang.org/grpc/internal/transport.(*writeQuota).get@/mod/google.golang.org/grpc@v1.85.0/internal/transport/flowcontrol.go:59", "google.golang.org/grpc.(*clientStream).SendMsg@/mod/google.golang.org/grpc@v1.85.0/stream.go:958", "main.upload@/src/main.go:20")
	rep := s.explain(t)
	must.True(t, len(rep.Findings) != 0, "no findings")
	check.True(t, strings.Contains(rep.Findings[0].Title, "reads more of their bodies") && strings.Contains(rep.Findings[0].Fix, "InitialWindowSize"), "%+v", rep.Findings[0])
}

// TestWindowRounds: an answer comes in five parts, of which the caller of gRPC allows the next one when it has read one, a round trip of 18 ms
// before that comes. It fails if the report does not name the window; or names it although the caller allows nothing, or the header of an answer
// comes within 2 ms.
func TestWindowRounds(t *testing.T) {
	const reader, writer, module = uint64(20), uint64(21), "/mod/google.golang.org/grpc@v1.85.0/"
	read := []string{"internal/poll.(*FD).RawRead", "google.golang.org/grpc/internal/transport/readyreader.(*nonBlockingReader).ReadOnReady@" + module + "internal/transport/readyreader/ready_reader.go:114", "google.golang.org/grpc/internal/transport.(*http2Client).reader@" + module + "internal/transport/http2_client.go:1791"}
	receive := []string{"google.golang.org/grpc.(*clientStream).RecvMsg@" + module + "stream.go:1143", "main.fetch@/src/main.go:20", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", connFunc}
	header := append([]string{"runtime.selectgo", "google.golang.org/grpc/internal/transport.(*ClientStream).waitOnHeader@" + module + "internal/transport/client_stream.go:129"}, receive...)
	part := append([]string{"runtime.selectgo", "google.golang.org/grpc/internal/transport.(*recvBufferReader).readClient@" + module + "internal/transport/transport.go:331"}, receive...)
	update := append([]string{"google.golang.org/grpc/internal/transport.(*http2Client).updateWindow@" + module + "internal/transport/http2_client.go:1194"}, receive...)
	get := []string{"runtime.selectgo", "google.golang.org/grpc/internal/transport.(*controlBuffer).get@" + module + "internal/transport/controlbuf.go:496", "google.golang.org/grpc/internal/transport.NewHTTP2Client.func6@" + module + "internal/transport/http2_client.go:492"}
	for _, c := range []struct {
		name     string
		headerNS int64
		allows   bool
	}{{"window", 18 * ms, true}, {"nothing allowed", 18 * ms, false}, {"header sooner", 2 * ms, true}} {
		s := newServer()
		s.builder.Waiting(reader)
		s.builder.Waiting(writer)
		s.wake(ms, reader)
		s.thread.Block(ms+2*us, "network", read...)
		s.wake(2*ms, writer)
		s.thread.Block(2*ms+2*us, "select", get...)
		for clock := int64(10 * ms); clock < 3000*ms; clock += 100 * ms {
			s.begin(clock, firstConn, "select", header...)
			for i := range int64(5) {
				arrival := clock + c.headerNS + i*18*ms
				s.wake(arrival, reader)
				s.thread.Unblock(arrival+2*us, firstConn, "google.golang.org/grpc/internal/transport.(*http2Client).handleData", "google.golang.org/grpc/internal/transport.(*http2Client).reader@"+module+"internal/transport/http2_client.go:1791")
				s.thread.Block(arrival+3*us, "network", read...)
				s.thread.Start(arrival+4*us, firstConn)
				if i == 4 {
					s.awaitRequest(arrival+10*us, firstConn)
					break
				}
				if c.allows {
					s.thread.Unblock(arrival+5*us, writer, update...)
				}
				s.thread.Block(arrival+6*us, "select", part...)
				if c.allows {
					s.thread.Start(arrival+7*us, writer)
					s.thread.Block(arrival+8*us, "select", get...)
				}
			}
		}
		rep := s.explain(t)
		must.True(t, len(rep.Findings) != 0, "%s: no findings", c.name)
		first := rep.Findings[0]
		if c.name != "window" {
			check.False(t, strings.Contains(first.Title, "window"), "%s: %s", c.name, first.Title)
			continue
		}
		check.True(t, strings.Contains(first.Title, "wait 5 round trips of 18ms") && strings.Contains(first.Fix, "WithInitialWindowSize"), "%s: %s", first.Title, first.Fix)
		check.True(t, first.Predicted != nil && first.Predicted.P50NS.Est > 12e6 && first.Predicted.P50NS.Est < 20e6, "%+v", first.Predicted)
	}
}

// TestHeldAnswer: the answers of main.item wait until the client allows more bytes, before any part of them is sent, because it reads an answer of
// main.export on the same connection slowly; or the server writes a part of them at once. It fails if the report calls only the client slow, or
// blames main.export although a part is sent.
func TestHeldAnswer(t *testing.T) {
	const reader, serve, export, h2 = uint64(20), uint64(21), uint64(22), "net/http.(*http2serverConn)."
	handler := func(line string) []string {
		return []string{"runtime.selectgo", h2 + "writeDataFromHandler", "net/http.(*http2responseWriterState).writeChunk", "net/http.(*http2responseWriter).Write", line, "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", h2 + "runHandler"}
	}
	read := []string{"internal/poll.runtime_pollWait", "net.(*conn).Read", "net/http.(*http2Framer).ReadFrame", h2 + "readFrames"}
	loop := []string{"runtime.selectgo", h2 + "serve", "net/http.(*conn).serve"}
	write := []string{"syscall.write", "net.(*conn).Write", "net/http.(*http2bufferedWriter).Write", "net/http.(*http2Framer).endWrite", h2 + "writeFrameAsync"}
	begin := []string{h2 + "scheduleHandler", h2 + "serve", "net/http.(*conn).serve"}
	for _, sent := range []bool{false, true} {
		s := newServer()
		s.builder.Waiting(reader)
		s.builder.Waiting(serve)
		s.wake(ms, reader)
		s.thread.Unblock(ms+2*us, serve, h2+"readFrames")
		s.thread.Block(ms+3*us, "network", read...)
		s.thread.Start(ms+4*us, serve)
		s.thread.Create(ms+5*us, export, h2+"runHandler", begin...)
		s.thread.Block(ms+6*us, "select", loop...)
		s.thread.Start(ms+7*us, export)
		s.thread.Block(ms+8*us, "select", handler("main.export@/src/main.go:40")...)
		for clock := int64(10 * ms); clock < 400*ms; clock += 10 * ms {
			item, writer := uint64(clock), uint64(clock)+1
			s.wake(clock, reader)
			s.thread.Unblock(clock+2*us, serve, h2+"readFrames")
			s.thread.Block(clock+3*us, "network", read...)
			s.thread.Start(clock+4*us, serve)
			s.thread.Create(clock+5*us, item, h2+"runHandler", begin...)
			s.thread.Block(clock+6*us, "select", loop...)
			s.thread.Start(clock+7*us, item)
			s.thread.Unblock(clock+8*us, serve, append([]string{h2 + "writeFrameFromHandler"}, handler("main.item@/src/main.go:20")[1:]...)...)
			s.thread.Block(clock+9*us, "select", handler("main.item@/src/main.go:20")...)
			s.thread.Start(clock+10*us, serve)
			if sent {
				s.thread.Create(clock+11*us, writer, h2+"writeFrameAsync", h2+"startFrameWrite", h2+"serve", "net/http.(*conn).serve")
			}
			s.thread.Block(clock+12*us, "select", loop...)
			if sent {
				s.thread.Start(clock+13*us, writer)
				s.thread.Syscall(clock+14*us, write...)
				s.thread.SyscallEnd(clock + 15*us)
				s.thread.Destroy(clock + 16*us)
			}
			s.wake(clock+5*ms, reader)
			s.thread.Unblock(clock+5*ms+2*us, serve, h2+"readFrames")
			s.thread.Block(clock+5*ms+3*us, "network", read...)
			s.thread.Start(clock+5*ms+4*us, serve)
			s.thread.Unblock(clock+5*ms+5*us, export, h2+"wroteFrame", h2+"serve", "net/http.(*conn).serve")
			s.thread.Unblock(clock+5*ms+6*us, item, h2+"wroteFrame", h2+"serve", "net/http.(*conn).serve")
			s.thread.Block(clock+5*ms+7*us, "select", loop...)
			s.thread.Start(clock+5*ms+8*us, export)
			s.thread.Block(clock+5*ms+9*us, "select", handler("main.export@/src/main.go:40")...)
			s.thread.Start(clock+5*ms+10*us, item)
			s.thread.Destroy(clock + 5*ms + 11*us)
		}
		rep := s.explain(t)
		must.True(t, len(rep.Findings) != 0, "no findings")
		first := rep.Findings[0]
		if sent {
			check.True(t, strings.Contains(first.Title, "waits for its client to read the answer"), "%s: %s", first.Title, first.Fix)
		} else {
			check.True(t, strings.Contains(first.Title, "which main.export (main.go:40) uses up, at main.item (main.go:20)") && strings.Contains(first.Fix, "address of its own"), "%s: %s", first.Title, first.Fix)
			check.True(t, first.Predicted != nil && first.Predicted.P50NS.Est < 1e6, "%+v", first.Predicted)
		}
	}
}

// TestHeldCall: calls of gRPC that begin while main.upload waits for flow control on their connection are answered a millisecond after the peer
// has allowed more bytes, or a millisecond after they begin; all others, a millisecond after they begin. It fails if the report does not name
// main.upload in the first case, or names it in the second.
func TestHeldCall(t *testing.T) {
	const reader, writer, upload, transport = uint64(20), uint64(21), uint64(22), "google.golang.org/grpc/internal/transport."
	frame := func(function, file string) string { return function + "@/mod/google.golang.org/grpc@v1.85.0/" + file }
	read := []string{"internal/poll.(*FD).RawRead", frame("google.golang.org/grpc/internal/transport/readyreader.(*nonBlockingReader).ReadOnReady", "internal/transport/readyreader/ready_reader.go:114"), frame(transport+"(*http2Client).reader", "internal/transport/http2_client.go:1791")}
	get := []string{"runtime.selectgo", frame(transport+"(*controlBuffer).get", "internal/transport/controlbuf.go:496"), frame(transport+"NewHTTP2Client.func6", "internal/transport/http2_client.go:492")}
	call := []string{frame("google.golang.org/grpc.(*ClientConn).Invoke", "call.go:35"), "main.book@/src/main.go:20", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", connFunc}
	header := append([]string{"runtime.selectgo", frame(transport+"(*ClientStream).waitOnHeader", "internal/transport/client_stream.go:129")}, call...)
	quota := []string{"runtime.selectgo", frame(transport+"(*writeQuota).get", "internal/transport/flowcontrol.go:59"), frame("google.golang.org/grpc.(*clientStream).SendMsg", "stream.go:958"), "main.upload@/src/main.go:40"}
	for _, isHeld := range []bool{true, false} {
		s := newServer()
		for _, g := range []uint64{reader, writer, upload} {
			s.builder.Waiting(g)
		}
		s.wake(ms, reader)
		s.thread.Block(ms+2*us, "network", read...)
		s.wake(2*ms, writer)
		s.thread.Block(2*ms+2*us, "select", get...)
		s.wake(3*ms, upload)
		s.thread.Block(3*ms+2*us, "select", quota...)
		answer := func(clock int64) {
			s.wake(clock, reader)
			s.thread.Unblock(clock+2*us, firstConn, frame(transport+"(*http2Client).operateHeaders", "internal/transport/http2_client.go:1675"), frame(transport+"(*http2Client).reader", "internal/transport/http2_client.go:1789"))
			s.thread.Block(clock+3*us, "network", read...)
			s.thread.Start(clock+4*us, firstConn)
			s.awaitRequest(clock+5*us, firstConn)
		}
		for clock := int64(10 * ms); clock < 900*ms; clock += 10 * ms {
			isBlocked := clock < 450*ms
			s.wake(clock, firstConn)
			s.thread.Create(clock+2*us, uint64(clock), "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", connFunc)
			s.thread.Unblock(clock+3*us, writer, append([]string{frame(transport+"(*http2Client).NewStream", "internal/transport/http2_client.go:929")}, call...)...)
			s.thread.Block(clock+4*us, "select", header...)
			s.thread.Start(clock+5*us, writer)
			s.thread.Block(clock+6*us, "select", get...)
			if !isBlocked || !isHeld {
				answer(clock + ms)
			}
			if isBlocked {
				s.wake(clock+6*ms, reader)
				s.thread.Unblock(clock+6*ms+2*us, writer, frame(transport+"(*http2Client).handleWindowUpdate", "internal/transport/http2_client.go:1502"), frame(transport+"(*http2Client).reader", "internal/transport/http2_client.go:1802"))
				s.thread.Block(clock+6*ms+3*us, "network", read...)
				s.thread.Start(clock+6*ms+4*us, writer)
				s.thread.Unblock(clock+6*ms+5*us, upload, frame(transport+"(*writeQuota).realReplenish", "internal/transport/flowcontrol.go:75"), frame(transport+"(*loopyWriter).processData", "internal/transport/controlbuf.go:1071"))
				s.thread.Block(clock+6*ms+6*us, "select", get...)
				s.thread.Start(clock+6*ms+7*us, upload)
				if clock+10*ms < 450*ms {
					s.thread.Block(clock+6*ms+8*us, "select", quota...)
				} else {
					s.thread.Destroy(clock + 6*ms + 8*us)
				}
			}
			if isBlocked && isHeld {
				answer(clock + 7*ms)
			}
		}
		rep := s.explain(t)
		must.True(t, len(rep.Findings) != 0, "no findings")
		first := rep.Findings[0]
		check.Equal(t, strings.Contains(first.Title, "which main.upload (main.go:40) uses up, at main.book (main.go:20)"), isHeld, "%s: %s", first.Title, first.Fix)
		if isHeld {
			check.True(t, strings.Contains(first.Fix, "a ClientConn of gRPC") && first.Predicted != nil && first.Predicted.P99NS.Est < 2e6, "%s: %+v", first.Fix, first.Predicted)
		}
	}
}
