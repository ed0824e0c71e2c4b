// Gateway answers HTTP requests by calling a gRPC service: its own, over
// loopback, or that of another process (-peer).
//
// Faults: slow (the gRPC service sleeps for 12 ms, under no lock), lock (it
// does so for 3 ms, under a lock).
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"shop.example/shops/internal/run"
)

// prices is the gRPC service.
type prices struct {
	mu     sync.Mutex
	prices map[string]int
}

func (p *prices) Price(_ context.Context, item *wrapperspb.StringValue) (*wrapperspb.Int64Value, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case run.Fault("slow"):
		p.mu.Unlock()
		refresh(12 * time.Millisecond)
		p.mu.Lock()
	case run.Fault("lock"):
		refresh(3 * time.Millisecond)
	}
	return wrapperspb.Int64(int64(p.prices[item.Value])), nil
}

// refresh stands for a call of something slow.
func refresh(d time.Duration) { time.Sleep(d) }

var desc = grpc.ServiceDesc{
	ServiceName: "shop.Prices",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Price",
		Handler: func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			in := new(wrapperspb.StringValue)
			if err := dec(in); err != nil {
				return nil, err
			}
			return srv.(*prices).Price(ctx, in)
		},
	}},
}

func serve(l net.Listener) {
	p := &prices{prices: map[string]int{}}
	for i := range 100 {
		p.prices[fmt.Sprint(i)] = 10 * i
	}
	s := grpc.NewServer()
	s.RegisterService(&desc, p)
	log.Fatal(s.Serve(l))
}

type gateway struct {
	conn *grpc.ClientConn
}

// price asks the service.
func (g *gateway) price(ctx context.Context, item string) (int64, error) {
	var out wrapperspb.Int64Value
	err := g.conn.Invoke(ctx, "/shop.Prices/Price", wrapperspb.String(item), &out)
	return out.Value, err
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p, err := g.price(r.Context(), r.FormValue("item"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	fmt.Fprintln(w, p)
}

func main() {
	run.Parse("slow", "lock")
	addr := *run.Peer
	if addr == "" || *run.AsPeer {
		if addr = "127.0.0.1:0"; *run.AsPeer {
			addr = *run.Listen
		}
		l := run.Must(net.Listen("tcp", addr))
		if addr = l.Addr().String(); *run.AsPeer {
			run.Profiles()
			serve(l)
		}
		go serve(l)
	}
	conn := run.Must(grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials())))
	run.ServePath("/price", &gateway{conn})
}
