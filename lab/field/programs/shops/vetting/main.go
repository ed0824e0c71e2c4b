// Vetting asks another service by gRPC whether a customer may order. One call
// of three is answered with UNAVAILABLE, and gRPC tries again by itself.
//
// Faults: backoff (it pauses some 60 ms before it does; 1 ms otherwise).
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"shop.example/shops/internal/run"
)

const policy = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5, "initialBackoff": "%s", "maxBackoff": "0.2s", "backoffMultiplier": 1.5, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`

// register is the other service.
type register struct {
	grpc_health_v1.UnimplementedHealthServer
	calls atomic.Int64
}

func (r *register) Check(context.Context, *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	if r.calls.Add(1)%3 == 0 {
		return nil, status.Error(codes.Unavailable, "the leader has moved")
	}
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

type desk struct{ register grpc_health_v1.HealthClient }

func (d *desk) mayOrder(ctx context.Context, customer string) error {
	_, err := d.register.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: customer})
	return err
}

func (d *desk) order(w http.ResponseWriter, r *http.Request) {
	if err := d.mayOrder(r.Context(), r.FormValue("customer")); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "taken")
}

func main() {
	run.Parse("backoff")
	if *run.AsPeer {
		l := run.Must(net.Listen("tcp", *run.Listen))
		s := grpc.NewServer()
		grpc_health_v1.RegisterHealthServer(s, new(register))
		log.Fatal(s.Serve(l))
	}
	pause := "0.001s"
	if run.Fault("backoff") {
		pause = "0.06s"
	}
	conn := run.Must(grpc.NewClient(*run.Peer, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(fmt.Sprintf(policy, pause))))
	d := &desk{grpc_health_v1.NewHealthClient(conn)}
	http.HandleFunc("/order", d.order)
	run.ServeRequests(nil)
}
