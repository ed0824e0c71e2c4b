// Memo keeps values for clients that speak a text protocol over TCP, a line a
// command, as memcached's: "get KEY", "set KEY VALUE".
//
// Faults: sweep (every 60 ms all is locked for 15 ms, while what is old is
// written to somewhere).
package main

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"shop.example/shops/internal/run"
)

type memo struct {
	mu     sync.RWMutex
	values map[string]string
}

func (m *memo) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewScanner(conn)
	for in.Scan() {
		f := strings.Fields(in.Text())
		switch {
		case len(f) == 2 && f[0] == "get":
			fmt.Fprintf(conn, "VALUE %s\r\n", m.get(f[1]))
		case len(f) == 3 && f[0] == "set":
			m.set(f[1], f[2])
			fmt.Fprint(conn, "STORED\r\n")
		default:
			fmt.Fprint(conn, "ERROR\r\n")
		}
	}
}

func (m *memo) get(key string) string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.values[key]
}

func (m *memo) set(key, value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[key] = value
}

// sweep writes what is old to somewhere, again and again.
func (m *memo) sweep() {
	for range time.Tick(60 * time.Millisecond) {
		m.mu.Lock()
		spill()
		m.mu.Unlock()
	}
}

// spill stands for a write that takes 15 ms.
func spill() { time.Sleep(15 * time.Millisecond) }

func client(i int) (ask func() error) {
	conn := run.Must(net.Dial("tcp", *run.Load))
	in, n := bufio.NewScanner(conn), 0
	return func() error {
		if n++; n%10 == 0 {
			fmt.Fprintf(conn, "set key%d value%d\r\n", i, n)
		} else {
			fmt.Fprintf(conn, "get key%d\r\n", i)
		}
		if !in.Scan() {
			return fmt.Errorf("no answer: %v", in.Err())
		}
		return nil
	}
}

func main() {
	run.Parse("sweep")
	if *run.Load != "" {
		const n = 12
		var ask [n]func() error
		for i := range ask {
			ask[i] = client(i)
		}
		run.Clients(n, 25*time.Millisecond, func(i int) error { return ask[i]() })
	}
	m := &memo{values: map[string]string{}}
	if run.Fault("sweep") {
		go m.sweep()
	}
	l := run.Must(net.Listen("tcp", *run.Listen))
	run.Profiles()
	for {
		conn := run.Must(l.Accept())
		go m.serve(conn)
	}
}
