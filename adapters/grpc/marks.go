// Package grpc marks the requests of a gRPC server in the process's execution
// traces (service/mark):
//
//	grpc.NewServer(
//		grpc.ChainUnaryInterceptor(whylate.Unary()),
//		grpc.ChainStreamInterceptor(whylate.Stream()),
//	)
//
// A request's name is its full method, "/shop.Orders/Get", its status is the
// code's name, "OK" or "DeadlineExceeded", and the traceparent of its metadata
// is kept. Interceptors before these are not part of the mark. While no trace is
// recorded, they cost two atomic loads.
package grpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/whylate/whylate/service/mark"
)

// Unary returns an interceptor that marks requests with one answer.
func Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if !mark.Active() {
			return handler(ctx, req)
		}
		return runMarked(ctx, info.FullMethod, func() (any, error) { return handler(ctx, req) })
	}
}

// Stream returns an interceptor that marks streams, from the handler's begin to
// its end.
func Stream() grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if !mark.Active() {
			return handler(srv, stream)
		}
		_, err := runMarked(stream.Context(), info.FullMethod, func() (any, error) { return nil, handler(srv, stream) })
		return err
	}
}

// runMarked calls f, which serves a call of a method, within a mark. The mark's status is the gRPC code of f's error, or Panic
// if f does not return.
func runMarked(ctx context.Context, method string, f func() (any, error)) (any, error) {
	m := mark.Begin(mark.GRPC, method, traceparent(ctx))
	outcome := mark.Panic
	defer func() { m.End("", outcome) }()
	res, err := f()
	outcome = status.Code(err).String()
	return res, err
}

// traceparent returns the traceparent header of the call that ctx belongs to, "" if it has none or several.
func traceparent(ctx context.Context) string {
	if v := metadata.ValueFromIncomingContext(ctx, "traceparent"); len(v) == 1 {
		return v[0]
	}
	return ""
}
