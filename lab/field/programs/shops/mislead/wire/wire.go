// Package wire is a line protocol: a question a line, an answer a line.
package wire

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"time"

	"shop.example/shops/internal/run"
)

// A Conn is a connection to a server. One at a time may use it.
type Conn struct {
	net.Conn
	r *bufio.Reader
}

// Dial connects, to a server that may just be starting.
func Dial(addr string) *Conn {
	c, err := net.Dial("tcp", addr)
	for n := 0; err != nil && n < 50; n++ {
		time.Sleep(20 * time.Millisecond)
		c, err = net.Dial("tcp", addr)
	}
	run.Check(err)
	return &Conn{c, bufio.NewReader(c)}
}

// Ask asks, and waits for the answer.
func (c *Conn) Ask(question string) (string, error) {
	if _, err := fmt.Fprintln(c, question); err != nil {
		return "", err
	}
	line, err := c.r.ReadString('\n')
	return strings.TrimSpace(line), err
}

// Serve answers questions until the process ends.
func Serve(addr string, answer func(question string) string) {
	l := run.Must(net.Listen("tcp", addr))
	for {
		c := run.Must(l.Accept())
		go func() {
			defer c.Close()
			for r := bufio.NewScanner(c); r.Scan(); {
				if _, err := fmt.Fprintln(c, answer(r.Text())); err != nil {
					return
				}
			}
		}()
	}
}
