package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/whylate/whylate/lab/truth/wire"
)

// h2Client shares one HTTP/2 connection without TLS with all other clients.
type h2Client struct{ client *http.Client }

func h2Dialer() (func() (client, error), func(), error) {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	c := &http.Client{Transport: &http.Transport{Protocols: p}}
	return func() (client, error) { return h2Client{c}, nil }, c.CloseIdleConnections, nil
}

func (h h2Client) do(ctx context.Context, t *Target) (start time.Time, a response, err error) {
	trace := &httptrace.ClientTrace{GotFirstResponseByte: func() { a.first = time.Now() }}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), methodOf(t), t.URL, nil)
	if err != nil {
		return time.Now(), a, err
	}
	start = time.Now()
	res, err := h.client.Do(req)
	if err != nil {
		return start, a, err
	}
	defer res.Body.Close()
	if res.ProtoMajor != 2 {
		return start, a, fmt.Errorf("%s speaks %s, not HTTP/2", t.URL, res.Proto)
	}
	_, err = io.Copy(io.Discard, res.Body)
	a.status, a.blamed = res.StatusCode, blamedTime(res)
	return start, a, err
}

func (h2Client) close() error { return nil }

// grpcClient shares one gRPC connection with all other clients. A successful call has status 200, so that results are
// comparable.
type grpcClient struct{ conn *grpc.ClientConn }

func grpcDialer(host string) (func() (client, error), func(), error) {
	c, err := grpc.NewClient(host, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, nil, fmt.Errorf("load: %w", err)
	}
	return func() (client, error) { return grpcClient{c}, nil }, func() { c.Close() }, nil
}

func (g grpcClient) do(ctx context.Context, t *Target) (start time.Time, a response, err error) {
	method := "/" + wire.GRPCService + "/" + t.Name
	var md metadata.MD
	start = time.Now()
	if t.Client == "stream" {
		md, err = g.stream(ctx, method, &a)
	} else {
		err = g.conn.Invoke(ctx, method, wrapperspb.String("x"), new(wire.Text), grpc.Trailer(&md))
	}
	if err != nil {
		return start, a, err
	}
	a.status = http.StatusOK
	if v := md.Get(wire.Blamed); len(v) == 1 {
		a.blamed, err = strconv.ParseInt(v[0], 10, 64)
	}
	return start, a, err
}

func (g grpcClient) stream(ctx context.Context, method string, a *response) (metadata.MD, error) {
	s, err := g.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(s.SendMsg(wrapperspb.String("x")), s.CloseSend()); err != nil {
		return nil, err
	}
	for {
		switch err := s.RecvMsg(new(wire.Text)); {
		case errors.Is(err, io.EOF):
			return s.Trailer(), nil
		case err != nil:
			return nil, err
		}
		if a.first.IsZero() {
			a.first = time.Now()
		}
	}
}

func (grpcClient) close() error { return nil }
