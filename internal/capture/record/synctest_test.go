package record

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// inBubble calls f in a synctest bubble, whose clock advances only while all its goroutines wait, so
// seconds take no time. The options lead to the server of h, at an address that no network has.
func inBubble(t *testing.T, h http.Handler, f func(t *testing.T, target string, opt Options)) {
	t.Helper()
	cannedTrace() // outside: a trace takes real time
	synctest.Test(t, func(t *testing.T) {
		l := &pipeListener{accept: make(chan net.Conn), closed: make(chan struct{})}
		srv := &http.Server{Handler: h}
		go srv.Serve(l)
		defer srv.Close()
		opt := quickOptions()
		opt.Dial = l.dial
		f(t, "http://service:6060", opt)
	})
}

// A pipeListener is a listener whose connections are pipes in this process.
type pipeListener struct {
	accept chan net.Conn
	closed chan struct{}
}

func (p *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	time.Sleep(time.Millisecond) // the way there
	clientEnd, serverEnd := net.Pipe()
	select {
	case p.accept <- serverEnd:
		return clientEnd, nil
	case <-p.closed:
		return nil, io.ErrClosedPipe
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipeListener) Close() error {
	close(p.closed)
	return nil
}

func (p *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }
