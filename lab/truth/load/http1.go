package load

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/lab/truth/wire"
)

// http1Client implements HTTP/1.1 with one connection per host. net/http's client would put two goroutines between the socket
// and the clock.
type http1Client struct {
	conns    map[string]*http1Conn
	upgraded bool // the server has hijacked the connection
}

type http1Conn struct {
	conn   net.Conn
	reader *bufio.Reader
}

func (h *http1Client) conn(ctx context.Context, host string) (*http1Conn, error) {
	if c := h.conns[host]; c != nil {
		return c, nil
	}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	if h.conns == nil {
		h.conns = map[string]*http1Conn{}
	}
	h.conns[host] = &http1Conn{c, bufio.NewReaderSize(c, 64<<10)}
	return h.conns[host], nil
}

func (h *http1Client) close() error {
	for _, c := range h.conns {
		c.conn.Close()
	}
	h.conns, h.upgraded = nil, false
	return nil
}

const (
	slowPieces    = 4
	slowSendRest  = 5 * time.Millisecond
	slowReadChunk = 256 << 10
	slowReadRest  = 3 * time.Millisecond
)

func (h *http1Client) do(ctx context.Context, t *Target) (start time.Time, a response, err error) {
	u, err := url.Parse(t.URL)
	if err != nil {
		return time.Now(), a, err
	}
	c, err := h.conn(ctx, u.Host)
	if err != nil {
		return time.Now(), a, err
	}
	if t.Client == "slow-read" {
		if tc, ok := c.conn.(*net.TCPConn); ok {
			tc.SetReadBuffer(64 << 10) // otherwise the kernel reads ahead
		}
	}
	if d, ok := ctx.Deadline(); ok {
		c.conn.SetDeadline(d)
	}
	if t.Client == "echo" {
		return h.sendLine(c, u)
	}
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n", methodOf(t), u.RequestURI(), u.Host)
	if t.Client == "slow-send" {
		head += fmt.Sprintf("Content-Length: %d\r\n", slowPieces*1024)
	}
	start = time.Now()
	if _, err := io.WriteString(c.conn, head+"\r\n"); err != nil {
		return start, a, err
	}
	if t.Client == "slow-send" {
		piece := make([]byte, 1024)
		for range slowPieces {
			time.Sleep(slowSendRest)
			if _, err := c.conn.Write(piece); err != nil {
				return start, a, err
			}
		}
	}
	if _, err := c.reader.Peek(1); err != nil {
		return start, a, err
	}
	a.first = time.Now()
	res, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return start, a, err
	}
	defer res.Body.Close()
	a.status = res.StatusCode
	if t.Client == "slow-read" {
		for err == nil {
			_, err = io.CopyN(io.Discard, res.Body, slowReadChunk)
			time.Sleep(slowReadRest)
		}
		if err == io.EOF {
			err = nil
		}
	} else {
		_, err = io.Copy(io.Discard, res.Body)
	}
	a.blamed = blamedTime(res)
	if res.Close {
		h.close()
	}
	return start, a, err
}

// sendLine sends a line over a connection that the server has hijacked, and waits for the answer. The first call requests the
// upgrade.
func (h *http1Client) sendLine(c *http1Conn, u *url.URL) (start time.Time, a response, err error) {
	if !h.upgraded {
		if _, err := fmt.Fprintf(c.conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", u.RequestURI(), u.Host); err != nil {
			return time.Now(), a, err
		}
		for {
			line, err := c.reader.ReadString('\n')
			if err != nil {
				return time.Now(), a, fmt.Errorf("asking for the upgrade: %w", err)
			}
			if strings.TrimSpace(line) == "" {
				break
			}
		}
		h.upgraded = true
	}
	start = time.Now()
	if _, err := io.WriteString(c.conn, "line\n"); err != nil {
		return start, a, err
	}
	line, err := c.reader.ReadString('\n')
	if err != nil {
		return start, a, err
	}
	a.first, a.status = time.Now(), http.StatusOK
	a.blamed, err = strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	return start, a, err
}

func methodOf(t *Target) string {
	if t.Client == "slow-send" {
		return http.MethodPost
	}
	return http.MethodGet
}

// blamedTime returns the time that the service attributes to its fault, from the header or, after the body, from the trailer;
// 0 if there is none.
func blamedTime(res *http.Response) int64 {
	v := res.Header.Get(wire.Blamed)
	if v == "" {
		v = res.Trailer.Get(wire.Blamed)
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
