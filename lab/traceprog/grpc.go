package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/whylate/whylate/lab/traceprog/internal/rig"
)

func grpcScenarios() []rig.Scenario {
	return []rig.Scenario{
		{Name: "grpc", Doc: "gRPC: unary calls, server, client and two-way streams, an interceptor", Run: func(e *rig.Env) error {
			return grpcCalls(e)
		}},
		{Name: "grpc-workers", Doc: "gRPC with grpc.NumStreamWorkers: streams handled by long-lived workers", Run: func(e *rig.Env) error {
			return grpcCalls(e, grpc.NumStreamWorkers(4))
		}},
	}
}

// text is the message of all methods: a well-known type spares generated code.
type text = wrapperspb.StringValue

// labServer is the interface that the service description names.
type labServer interface {
	Echo(context.Context, *text) (*text, error)
	Late(context.Context, *text) (*text, error)
	List(*text, grpc.ServerStream) error
	Collect(grpc.ServerStream) error
	Chat(grpc.ServerStream) error
}

type lab struct{}

func (lab) Echo(_ context.Context, in *text) (*text, error) { return in, nil }

func (lab) Late(_ context.Context, in *text) (*text, error) {
	time.Sleep(500 * time.Microsecond)
	return in, nil
}

func (lab) List(in *text, s grpc.ServerStream) error {
	for range 5 {
		time.Sleep(time.Millisecond)
		if err := s.SendMsg(in); err != nil {
			return err
		}
	}
	return nil
}

func (lab) Collect(s grpc.ServerStream) error {
	n := 0
	for {
		switch err := s.RecvMsg(new(text)); {
		case errors.Is(err, io.EOF):
			return s.SendMsg(wrapperspb.String(fmt.Sprint(n)))
		case err != nil:
			return err
		}
		n++
	}
}

func (lab) Chat(s grpc.ServerStream) error {
	for {
		in := new(text)
		if err := s.RecvMsg(in); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := s.SendMsg(in); err != nil {
			return err
		}
	}
}

const labService = "whylate.lab.Trace"

// The handlers have the shape and the names that protoc-gen-go-grpc gives them:
// traces of real services show them between grpc and the method.

func _Lab_Echo_Handler(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
	in := new(text)
	if err := dec(in); err != nil {
		return nil, err
	}
	if interceptor == nil {
		return srv.(labServer).Echo(ctx, in)
	}
	handler := func(ctx context.Context, req any) (any, error) { return srv.(labServer).Echo(ctx, req.(*text)) }
	return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/" + labService + "/Echo"}, handler)
}

func _Lab_Late_Handler(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
	in := new(text)
	if err := dec(in); err != nil {
		return nil, err
	}
	if interceptor == nil {
		return srv.(labServer).Late(ctx, in)
	}
	handler := func(ctx context.Context, req any) (any, error) { return srv.(labServer).Late(ctx, req.(*text)) }
	return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/" + labService + "/Late"}, handler)
}

func _Lab_List_Handler(srv any, stream grpc.ServerStream) error {
	in := new(text)
	if err := stream.RecvMsg(in); err != nil {
		return err
	}
	return srv.(labServer).List(in, stream)
}

func _Lab_Collect_Handler(srv any, stream grpc.ServerStream) error {
	return srv.(labServer).Collect(stream)
}

func _Lab_Chat_Handler(srv any, stream grpc.ServerStream) error { return srv.(labServer).Chat(stream) }

func labDesc() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: labService,
		HandlerType: (*labServer)(nil),
		Methods: []grpc.MethodDesc{
			{MethodName: "Echo", Handler: _Lab_Echo_Handler},
			{MethodName: "Late", Handler: _Lab_Late_Handler},
		},
		Streams: []grpc.StreamDesc{
			{StreamName: "List", ServerStreams: true, Handler: _Lab_List_Handler},
			{StreamName: "Collect", ClientStreams: true, Handler: _Lab_Collect_Handler},
			{StreamName: "Chat", ServerStreams: true, ClientStreams: true, Handler: _Lab_Chat_Handler},
		},
	}
}

func grpcCalls(e *rig.Env, opts ...grpc.ServerOption) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	opts = append(opts, grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		return next(ctx, req)
	}))
	srv := grpc.NewServer(opts...)
	srv.RegisterService(labDesc(), lab{})
	serveErr := make(chan error, 1)
	go func() { serveErr <- srv.Serve(ln) }()
	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	call := func(method string) error {
		e.Count("calls", 1)
		e.Count("calls "+method, 1)
		return conn.Invoke(context.Background(), "/"+labService+"/"+method, wrapperspb.String("x"), new(text))
	}
	if err := conn.Invoke(context.Background(), "/"+labService+"/Echo", wrapperspb.String("x"), new(text)); err != nil {
		return err
	}
	err = e.Record(func(ctx context.Context) error {
		return rig.Crew(5, func(i int) error {
			return rig.Pace(ctx, time.Millisecond, func() error {
				switch i {
				case 0:
					return call("Echo")
				case 1:
					return call("Late")
				case 2:
					return grpcStream(e, conn, "List", 1, 5)
				case 3:
					return grpcStream(e, conn, "Collect", 5, 1)
				default:
					return grpcStream(e, conn, "Chat", 5, 5)
				}
			})
		})
	})
	return errors.Join(err, conn.Close(), stopGRPC(srv, serveErr))
}

func stopGRPC(srv *grpc.Server, serveErr <-chan error) error {
	srv.GracefulStop()
	return <-serveErr
}

// grpcStream opens a stream, sends and receives that many messages and reads
// to the end.
func grpcStream(e *rig.Env, conn *grpc.ClientConn, method string, send, receive int) error {
	s, err := conn.NewStream(context.Background(), &grpc.StreamDesc{StreamName: method, ServerStreams: true, ClientStreams: true}, "/"+labService+"/"+method)
	if err != nil {
		return err
	}
	for range send {
		if err := s.SendMsg(wrapperspb.String("x")); err != nil {
			return err
		}
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	for range receive {
		if err := s.RecvMsg(new(text)); err != nil {
			return fmt.Errorf("receiving from %s: %w", method, err)
		}
	}
	if err := s.RecvMsg(new(text)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s did not end: %v", method, err)
	}
	e.Count("calls", 1)
	e.Count("calls "+method, 1)
	return nil
}
