// Package wire has the protocol between the services and the load generator: the header in which a service reports how much of
// a request's time its injected fault took, and a gRPC service without generated code.
package wire

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Blamed is the response header (HTTP) or trailer key (gRPC) with the time in
// nanoseconds that the injected fault took of this request, by the service's
// own monotonic clock.
const Blamed = "Truth-Blamed-Ns"

// Text is the message of all methods. A well-known type needs no generated code.
type Text = wrapperspb.StringValue

// GRPCService is the full name of the gRPC service.
const GRPCService = "whylate.lab.Truth"

// Methods are the methods of a gRPC service of the catalog.
type Methods interface {
	Slow(context.Context, *Text) (*Text, error)
	Fast(context.Context, *Text) (*Text, error)
	Stream(*Text, grpc.ServerStream) error
}

// The handlers have the form and the names that protoc-gen-go-grpc generates: traces of real services show them between grpc
// and the method.

func _Truth_Slow_Handler(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
	in := new(Text)
	if err := dec(in); err != nil {
		return nil, err
	}
	if interceptor == nil {
		return srv.(Methods).Slow(ctx, in)
	}
	handler := func(ctx context.Context, req any) (any, error) { return srv.(Methods).Slow(ctx, req.(*Text)) }
	return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/" + GRPCService + "/Slow"}, handler)
}

func _Truth_Fast_Handler(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
	in := new(Text)
	if err := dec(in); err != nil {
		return nil, err
	}
	if interceptor == nil {
		return srv.(Methods).Fast(ctx, in)
	}
	handler := func(ctx context.Context, req any) (any, error) { return srv.(Methods).Fast(ctx, req.(*Text)) }
	return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/" + GRPCService + "/Fast"}, handler)
}

func _Truth_Stream_Handler(srv any, stream grpc.ServerStream) error {
	in := new(Text)
	if err := stream.RecvMsg(in); err != nil {
		return err
	}
	return srv.(Methods).Stream(in, stream)
}

// Desc describes the gRPC service.
func Desc() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: GRPCService,
		HandlerType: (*Methods)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Slow", Handler: _Truth_Slow_Handler}, {MethodName: "Fast", Handler: _Truth_Fast_Handler}},
		Streams:     []grpc.StreamDesc{{StreamName: "Stream", ServerStreams: true, Handler: _Truth_Stream_Handler}},
	}
}
