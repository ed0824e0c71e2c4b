package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// natsClient is a connection with one request at a time.
type natsClient struct {
	conn  net.Conn
	r     *bufio.Reader
	inbox string
	stop  func() bool
}

func dialNATS(ctx context.Context, addr, id string) (*natsClient, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &natsClient{conn: conn, r: bufio.NewReader(conn), inbox: "_INBOX.field." + id}
	c.stop = context.AfterFunc(ctx, func() { conn.Close() })
	_, err = fmt.Fprintf(conn, "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true}\r\nSUB %s 1\r\n", c.inbox)
	return c, err
}

func (c *natsClient) close() {
	c.stop()
	c.conn.Close()
}

// request publishes with a reply subject and returns the reply.
func (c *natsClient) request(subject, payload string) (string, error) {
	if _, err := fmt.Fprintf(c.conn, "PUB %s %s %d\r\n%s\r\n", subject, c.inbox, len(payload), payload); err != nil {
		return "", err
	}
	for {
		line, err := c.r.ReadString('\n')
		if err != nil {
			return "", err
		}
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		switch fields[0] {
		case "PING":
			if _, err := io.WriteString(c.conn, "PONG\r\n"); err != nil {
				return "", err
			}
		case "-ERR":
			return "", fmt.Errorf("the server says %s", strings.TrimSpace(line))
		case "MSG", "HMSG":
			n, err := strconv.Atoi(fields[len(fields)-1])
			if err != nil || n < 0 || n > 1<<20 {
				return "", fmt.Errorf("cannot read %q", line)
			}
			b := make([]byte, n+2)
			if _, err := io.ReadFull(c.r, b); err != nil {
				return "", err
			}
			return string(b[:n]), nil
		}
	}
}
