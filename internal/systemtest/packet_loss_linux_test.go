package systemtest_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	_ "net/http/pprof" // record requests the trace from it
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lossyBackend starts a backend that loses segments: a filter on its sockets drops some of those that carry data, as if they
// had never arrived, and the sender's kernel must retransmit them. This needs no privileges and no tool, and affects no other
// connection.
func lossyBackend(percent int, delay time.Duration) (addr string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if err := dropSegments(c.(*net.TCPConn), percent); err != nil {
				c.Close()
				continue
			}
			go func() {
				defer c.Close()
				lines := bufio.NewScanner(c)
				for lines.Scan() {
					time.Sleep(delay) // the backend's work
					fmt.Fprintln(c, lines.Text())
				}
			}()
		}
	}()
	return l.Addr().String(), nil
}

// dropSegments attaches a classic BPF program to a socket (socket(7), SO_ATTACH_FILTER). For TCP the packet begins with the
// TCP header, whose length with all options is at most 60 bytes; headers of loopback connections have 32.
func dropSegments(c *net.TCPConn, percent int) error {
	if percent == 0 {
		return nil
	}
	const random = 0xfffff000 + 56 // SKF_AD_OFF + SKF_AD_RANDOM (linux/filter.h)
	prog := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_LEN},
		{Code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, K: 40, Jt: 0, Jf: 3}, // no data: keep
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: random},
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: uint32(uint64(percent) << 32 / 100), Jt: 1, Jf: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0}, // lost
		{Code: unix.BPF_RET | unix.BPF_K, K: 1<<32 - 1},
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = raw.Control(func(fd uintptr) {
		serr = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]})
	})
	if err != nil {
		return err
	}
	return serr
}

// A callingService has a handler that calls a backend over persistent connections, and counts the segments that its sockets
// retransmit.
type callingService struct {
	backend   string
	mu        sync.Mutex
	idleConns []net.Conn
	conns     []net.Conn
}

func (c *callingService) ask() error {
	c.mu.Lock()
	var conn net.Conn
	if n := len(c.idleConns); n > 0 {
		conn, c.idleConns = c.idleConns[n-1], c.idleConns[:n-1]
	}
	c.mu.Unlock()
	if conn == nil {
		var err error
		if conn, err = net.Dial("tcp", c.backend); err != nil {
			return err
		}
		c.mu.Lock()
		c.conns = append(c.conns, conn)
		c.mu.Unlock()
	}
	if _, err := fmt.Fprintln(conn, "a question of more than a few bytes, so that the segment has data"); err != nil {
		return err
	}
	if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idleConns = append(c.idleConns, conn)
	return nil
}

func (c *callingService) handle(w http.ResponseWriter, _ *http.Request) {
	if err := c.ask(); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}

// writeRetransmissions writes the sum of all sockets' retransmitted segments (tcp(7), TCP_INFO).
func (c *callingService) writeRetransmissions(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := 0
	for _, conn := range c.conns {
		raw, err := conn.(syscall.Conn).SyscallConn()
		if err != nil {
			continue
		}
		raw.Control(func(fd uintptr) {
			if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				sum += int(info.Total_retrans)
			}
		})
	}
	fmt.Fprintln(w, sum)
}

// serveCalls starts the service that is recorded and prints its address.
func serveCalls(backend string) error {
	c := &callingService{backend: backend}
	http.HandleFunc("/ask", c.handle)
	http.HandleFunc("/again", c.writeRetransmissions)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go http.Serve(l, nil)
	fmt.Println(l.Addr())
	return nil
}

// requestUntilDone sends requests to a service from several clients until ctx ends.
func requestUntilDone(ctx context.Context, url string, clients int) {
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for ctx.Err() == nil {
				if resp, err := http.Get(url); err == nil {
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}
		})
	}
	wg.Wait()
}

func getNumber(url string) (int, error) {
	resp, err := http.Get(url)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}
