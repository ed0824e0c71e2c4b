package plugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/capture/wire"
	"github.com/whylate/whylate/internal/output/termtext"
)

// A forwarder opens connections to ports of pods through the API server, as kubectl port-forward does:
// over WebSocket, or SPDY if that is refused. It opens no port on this machine.
type forwarder struct {
	config *rest.Config
	client rest.Interface
}

const (
	// dialTimeout bounds the connection through the API server and the kubelet.
	dialTimeout = 15 * time.Second
	// errorWait bounds the wait for the error of a connection that has ended.
	errorWait     = time.Second
	maxErrorBytes = 4 << 10
	// maxLine bounds the columns of a message.
	maxLine = 2000
)

// dial connects to a port of a pod. Every connection is a separate upgraded request. Streams of one
// connection have no separate flow control, so a slow reader would block the others, and a port that
// refuses would end all of them.
//
// Errors are of type *record.Error. So are the errors of the connection's Read if the kubelet reports
// a reason.
func (f *forwarder) dial(ctx context.Context, namespace, pod, port string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	type outcome struct {
		conn *conn
		err  error
	}
	done := make(chan outcome)
	go func() {
		c, err := f.openConn(namespace, pod, port)
		select {
		case done <- outcome{c, err}:
		case <-ctx.Done():
			if c != nil {
				c.Close()
			}
		}
	}()
	select {
	case o := <-done:
		if o.err != nil {
			if e, ok := errors.AsType[*record.Error](o.err); ok {
				return nil, e
			}
			return nil, forwardError(pod, port, o.err.Error())
		}
		return o.conn, nil
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, &record.Error{Kind: record.Timeout, Op: "reaching it", Text: fmt.Sprintf("no connection to port %s of pod %s within %v", port, pod, dialTimeout),
				Remedy: "can the API server reach the pod's node? kubectl port-forward goes the same way"}
		}
		return nil, ctx.Err()
	}
}

// openConn opens a connection to a port of a pod through the API server: over a WebSocket, or over SPDY if a proxy or an old
// server does not upgrade to that. The error of the other side is available from Read.
func (f *forwarder) openConn(namespace, pod, port string) (*conn, error) {
	// Each dialer keeps one connection, so it is used once.
	u := f.client.Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("portforward").URL()
	socketDialer, err := portforward.NewSPDYOverWebsocketDialerForStreaming(u, f.config)
	if err != nil {
		return nil, err
	}
	transport, upgrader, err := spdy.RoundTripperFor(f.config)
	if err != nil {
		return nil, err
	}
	client := wire.Client(wire.DefaultTransport())
	client.Transport = transport
	spdyDialer := spdy.NewDialerForStreaming(upgrader, client, http.MethodPost, u)
	connection, version, err := portforward.NewFallbackDialerForStreaming(socketDialer, spdyDialer, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}).Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return nil, err
	}
	closeWith := func(err error) (*conn, error) {
		connection.Close()
		return nil, err
	}
	if version != portforward.PortForwardProtocolV1Name {
		return closeWith(fmt.Errorf("the cluster speaks %q, not %q", version, portforward.PortForwardProtocolV1Name))
	}
	headers := http.Header{}
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	headers.Set(corev1.PortHeader, port)
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	errStream, err := connection.CreateStream(headers)
	if err != nil {
		return closeWith(err)
	}
	errStream.Close() // this side writes nothing
	c := &conn{connection: connection, errReady: make(chan struct{})}
	go func() {
		defer close(c.errReady)
		if text, _ := wire.ReadFirst(errStream, maxErrorBytes); len(text) > 0 {
			c.err = forwardError(pod, port, string(text))
		}
	}()
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	if c.Stream, err = connection.CreateStream(headers); err != nil {
		return closeWith(c.endReason(err)) // a port that refuses may end the stream before it is open
	}
	return c, nil
}

// A conn is a pair of streams to a port. It is a net.Conn without deadlines.
type conn struct {
	httpstream.Stream
	connection httpstream.Connection
	errReady   chan struct{} // closed when err is final
	err        *record.Error
}

// Read reads from the port. At the end it returns the error that the cluster reported, else that of the stream.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Stream.Read(p)
	if n > 0 || err == nil {
		return n, nil
	}
	return 0, c.endReason(err)
}

// endReason returns the kubelet's reason for the end of the connection, for which it waits errorWait at most, or else err.
func (c *conn) endReason(err error) error {
	select {
	case <-c.errReady:
		if c.err != nil {
			return c.err
		}
	case <-time.After(errorWait):
	}
	return err
}

func (c *conn) Close() error {
	return errors.Join(c.Reset(), c.connection.Close())
}

type address string

func (a address) Network() string { return "portforward" }
func (a address) String() string  { return string(a) }

func (c *conn) LocalAddr() net.Addr              { return address("") }
func (c *conn) RemoteAddr() net.Addr             { return address(c.Headers().Get(corev1.PortHeader)) }
func (c *conn) SetDeadline(time.Time) error      { return nil }
func (c *conn) SetReadDeadline(time.Time) error  { return nil }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// forwardError converts an error (text) of the API server, a kubelet or a container runtime about a port of a pod to an error
// with advice.
func forwardError(pod, port, text string) *record.Error {
	e := &record.Error{Kind: record.Unreachable, Op: "reaching it", Text: fmt.Sprintf("forwarding to port %s of pod %s failed (%s)", port, pod, shortText(text))}
	switch lower := strings.ToLower(text); {
	case strings.Contains(lower, "forbidden"):
		e.Kind = record.Forbidden
		e.Remedy = "ask for the verbs get and create on pods/portforward in the namespace (docs/kubernetes.md has the Role)"
	case strings.Contains(lower, "connection refused"), strings.Contains(lower, "socat") && strings.Contains(lower, "refused"):
		e.Kind, e.Text = record.Refused, fmt.Sprintf("nothing listens on port %s of pod %s", port, pod)
		e.Remedy = "name the port at which the service serves net/http/pprof with --port"
	case strings.Contains(lower, "not found"):
		e.Remedy = "the pod may have been replaced: look at kubectl get pods"
	case strings.Contains(lower, "unauthorized"), strings.Contains(lower, "logged in"):
		e.Kind, e.Remedy = record.Unauthorized, "the cluster did not accept your credentials: log in again"
	default:
		e.Remedy = "does kubectl port-forward work?"
	}
	return e
}

// shortText prepares a foreign text for a quotation, lineText a message for one line.
func shortText(text string) string { return cleanText(text, 300) }
func lineText(err error) string    { return cleanText(err.Error(), maxLine) }

func cleanText(text string, columns int) string {
	return termtext.Head(strings.Join(strings.Fields(text), " "), columns)
}
