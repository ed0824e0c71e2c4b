package grpc

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/whylate/whylate/service/mark"
)

// TestMarks sends requests to a real server and checks its marks.
func TestMarks(t *testing.T) {
	var mu sync.Mutex
	var ended []mark.Ended
	stop, ok := mark.Watch(func(e mark.Ended) {
		mu.Lock()
		defer mu.Unlock()
		ended = append(ended, e)
	})
	if !ok {
		t.Fatal("somebody else watches")
	}
	defer stop()
	l := bufconn.Listen(1 << 16)
	srv := grpc.NewServer(grpc.ChainUnaryInterceptor(Unary()), grpc.ChainStreamInterceptor(Stream()))
	h := health.NewServer()
	healthpb.RegisterHealthServer(srv, h)
	go srv.Serve(l)
	defer srv.Stop()
	conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return l.Dial() }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := healthpb.NewHealthClient(conn)
	ctx := context.Background()
	if _, err := c.Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Check(ctx, &healthpb.HealthCheckRequest{Service: "none"}); status.Code(err) != codes.NotFound {
		t.Fatal(err)
	}
	watching, cancel := context.WithCancel(ctx)
	w, err := c.Watch(watching, &healthpb.HealthCheckRequest{})
	if err == nil {
		_, err = w.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	srv.GracefulStop()
	mu.Lock()
	defer mu.Unlock()
	got := map[string]bool{}
	for _, e := range ended {
		got[string(e.Kind)+" "+e.Name+" "+e.Status] = true
	}
	for _, want := range []string{"grpc /grpc.health.v1.Health/Check OK", "grpc /grpc.health.v1.Health/Check NotFound", "grpc /grpc.health.v1.Health/Watch Canceled"} {
		if !got[want] {
			t.Errorf("%q is not marked: %v", want, got)
		}
	}
	if len(ended) != 3 {
		t.Errorf("%d marks", len(ended))
	}
}

// TestPanic tests that a panic passes through, and that the mark's status is "panic".
func TestPanic(t *testing.T) {
	var ended []mark.Ended
	stop, ok := mark.Watch(func(e mark.Ended) { ended = append(ended, e) })
	if !ok {
		t.Fatal("somebody else watches")
	}
	defer stop()
	func() {
		defer func() {
			if p := recover(); p == nil || p.(error).Error() != "oh" {
				t.Errorf("recovered %v", p)
			}
		}()
		_, _ = Unary()(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: "/a/B"}, func(context.Context, any) (any, error) { panic(errors.New("oh")) })
	}()
	if len(ended) != 1 || ended[0].Status != mark.Panic {
		t.Errorf("seen %+v", ended)
	}
}
