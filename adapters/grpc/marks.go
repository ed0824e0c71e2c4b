// Package grpc marks the requests of a gRPC server for whoever traces the
// process (service/mark):
//
//	grpc.NewServer(
//		grpc.ChainUnaryInterceptor(whylate.Unary()),
//		grpc.ChainStreamInterceptor(whylate.Stream()),
//	)
//
// A request is called by its full method, "/shop.Orders/Get", its status is the
// code's name, "OK" or "DeadlineExceeded", and the traceparent of its metadata
// is kept. Interceptors before these are not part of the mark. While nobody
// traces they cost two atomic loads.
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
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (res any, err error) {
		if !mark.Active() {
			return handler(ctx, req)
		}
		m := mark.Begin(mark.GRPC, info.FullMethod, traceparent(ctx))
		outcome := mark.Panic
		defer func() { m.End("", outcome) }()
		res, err = handler(ctx, req)
		outcome = status.Code(err).String()
		return res, err
	}
}

// Stream returns an interceptor that marks streams, from the handler's begin to
// its end.
func Stream() grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
		if !mark.Active() {
			return handler(srv, stream)
		}
		m := mark.Begin(mark.GRPC, info.FullMethod, traceparent(stream.Context()))
		outcome := mark.Panic
		defer func() { m.End("", outcome) }()
		err = handler(srv, stream)
		outcome = status.Code(err).String()
		return err
	}
}

func traceparent(ctx context.Context) string {
	if v := metadata.ValueFromIncomingContext(ctx, "traceparent"); len(v) == 1 {
		return v[0]
	}
	return ""
}
