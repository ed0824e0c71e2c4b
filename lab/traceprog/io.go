package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/whylate/whylate/lab/traceprog/internal/rig"
)

func ioScenarios() []rig.Scenario {
	return []rig.Scenario{
		{Name: "filesyscall", Doc: "files: write, fsync, read, stat, directory listing; pipes of the operating system", Run: filesyscall},
		{Name: "poll", Doc: "hundreds of idle connections beside a collector that restarts the world: network wakes by a false waker", Run: poll},
		{Name: "deadlines", Doc: "network waits ended by deadlines and by Close, on TCP, UDP and net.Pipe", Run: deadlines},
		{Name: "exec", Doc: "child processes: started, fed, read, waited for, killed", Run: execs},
		{Name: "dns", Doc: "name lookups by the Go resolver from a server on the loopback, some without an answer", Run: dns},
	}
}

func filesyscall(e *rig.Env) error {
	dir, err := os.MkdirTemp("", "traceprog")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	block := make([]byte, 32<<10)
	return e.Record(func(ctx context.Context) error {
		return rig.Crew(4, func(i int) error {
			if i == 3 {
				return pipes(ctx, e)
			}
			path := filepath.Join(dir, fmt.Sprint(i))
			return rig.Pace(ctx, 2*time.Millisecond, func() error {
				f, err := os.Create(path)
				if err != nil {
					return err
				}
				defer f.Close()
				for range 4 {
					if _, err := f.Write(block); err != nil {
						return err
					}
				}
				if i == 0 {
					if err := f.Sync(); err != nil {
						return err
					}
				}
				if _, err := os.ReadFile(path); err != nil {
					return err
				}
				if _, err := os.ReadDir(dir); err != nil {
					return err
				}
				e.Count("files", 1)
				return nil
			})
		})
	})
}

func pipes(ctx context.Context, e *rig.Env) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, bufio.NewReaderSize(r, 4096))
		done <- err
	}()
	big := make([]byte, 128<<10) // more than a pipe holds: the writer waits for the reader
	err = rig.Pace(ctx, 5*time.Millisecond, func() error {
		_, err := w.Write(big)
		e.Count("pipe writes", 1)
		return err
	})
	return errors.Join(err, w.Close(), <-done)
}

// echoServer answers every byte with the same byte until the connection ends.
func echoServer(ln net.Listener, wg *sync.WaitGroup) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		wg.Go(func() {
			defer conn.Close()
			var b [1]byte
			for {
				if _, err := conn.Read(b[:]); err != nil {
					return
				}
				if _, err := conn.Write(b[:]); err != nil {
					return
				}
			}
		})
	}
}

func ping(conn net.Conn) error {
	b := [1]byte{'x'}
	if _, err := conn.Write(b[:]); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, b[:])
	return err
}

func poll(e *rig.Env) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var servers sync.WaitGroup
	defer servers.Wait()
	defer ln.Close()
	servers.Go(func() { echoServer(ln, &servers) })
	conns := make([]net.Conn, 300)
	for i := range conns {
		if conns[i], err = net.Dial("tcp", ln.Addr().String()); err != nil {
			return err
		}
		defer conns[i].Close()
		if err := ping(conns[i]); err != nil {
			return err
		}
	}
	// 8 clients walk over all connections, which mostly idle; two goroutines
	// make garbage without ever waiting for the network.
	return e.Record(func(ctx context.Context) error {
		return rig.Crew(10, func(i int) error {
			if i >= 8 {
				return rig.Pace(ctx, 200*time.Microsecond, func() error {
					_ = make([]byte, 512<<10)
					rig.Burn(100 * time.Microsecond)
					e.Count("garbage", 1)
					return nil
				})
			}
			k := i
			return rig.Pace(ctx, 2*time.Millisecond, func() error {
				c := conns[k]
				if k += 8; k >= len(conns) {
					k = i
				}
				e.Count("pings", 1)
				return ping(c)
			})
		})
	})
}

func deadlines(e *rig.Env) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var servers sync.WaitGroup
	defer servers.Wait()
	defer ln.Close()
	servers.Go(func() { echoServer(ln, &servers) })
	timedOut := func(err error) error {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		return fmt.Errorf("expected a deadline, got: %v", err)
	}
	return e.Record(func(ctx context.Context) error {
		return rig.Crew(5, func(i int) error {
			return rig.Pace(ctx, 2*time.Millisecond, func() error {
				var b [1]byte
				switch i {
				case 3: // a UDP socket without a sender
					pc, err := net.ListenPacket("udp", "127.0.0.1:0")
					if err != nil {
						return err
					}
					defer pc.Close()
					pc.SetReadDeadline(time.Now().Add(2 * time.Millisecond))
					_, _, err = pc.ReadFrom(b[:])
					e.Count("deadlines", 1)
					return timedOut(err)
				case 4: // net.Pipe has no poller: its deadline is a timer and a channel
					a, z := net.Pipe()
					defer a.Close()
					defer z.Close()
					a.SetReadDeadline(time.Now().Add(2 * time.Millisecond))
					_, err := a.Read(b[:])
					e.Count("pipe deadlines", 1)
					return timedOut(err)
				}
				conn, err := net.Dial("tcp", ln.Addr().String())
				if err != nil {
					return err
				}
				defer conn.Close()
				switch i {
				case 0: // expires without a read
					conn.SetReadDeadline(time.Now().Add(2 * time.Millisecond))
					_, err = conn.Read(b[:])
					e.Count("deadlines", 1)
					return timedOut(err)
				case 1: // moved into the past by another goroutine, as net/http does
					go func() {
						time.Sleep(time.Millisecond)
						conn.SetReadDeadline(time.Unix(1, 0))
					}()
					_, err = conn.Read(b[:])
					e.Count("deadlines moved", 1)
					return timedOut(err)
				default: // closed under the reader
					go func() {
						time.Sleep(time.Millisecond)
						conn.Close()
					}()
					if _, err = conn.Read(b[:]); !errors.Is(err, net.ErrClosed) {
						return fmt.Errorf("expected a closed connection, got: %v", err)
					}
					e.Count("closes", 1)
					return nil
				}
			})
		})
	})
}

// childVerb is the first argument with which the program starts itself.
const childVerb = "__child"

// child is the other side of the exec scenario.
func child(args []string, in io.Reader, out io.Writer) int {
	if len(args) != 1 {
		return 2
	}
	switch args[0] {
	case "exit":
	case "sleep":
		time.Sleep(10 * time.Millisecond)
	case "hang":
		time.Sleep(time.Minute)
	case "echo":
		if _, err := io.Copy(out, in); err != nil {
			return 1
		}
	default:
		return 2
	}
	return 0
}

func execs(e *rig.Env) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return e.Record(func(ctx context.Context) error {
		return rig.Crew(3, func(i int) error {
			return rig.Pace(ctx, 10*time.Millisecond, func() error {
				e.Count("children", 1)
				switch i {
				case 0:
					return exec.Command(self, childVerb, "sleep").Run()
				case 1:
					cmd := exec.Command(self, childVerb, "echo")
					in, err := cmd.StdinPipe()
					if err != nil {
						return err
					}
					go func() {
						time.Sleep(2 * time.Millisecond)
						io.WriteString(in, "hello")
						in.Close()
					}()
					got, err := cmd.Output()
					if err == nil && string(got) != "hello" {
						err = fmt.Errorf("child answered %q", got)
					}
					return err
				default: // killed by its context
					kctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
					defer cancel()
					if err := exec.CommandContext(kctx, self, childVerb, "hang").Run(); err == nil {
						return errors.New("a child that hangs ended by itself")
					}
					return nil
				}
			})
		})
	})
}

// answerNames is a name server: names under "lab.test." have the address
// 127.0.0.1 after a millisecond, all others are not known.
func answerNames(pc net.PacketConn, e *rig.Env) {
	buf := make([]byte, 1500)
	for {
		n, from, err := pc.ReadFrom(buf)
		if err != nil {
			return
		}
		var q dnsmessage.Message
		if q.Unpack(buf[:n]) != nil || len(q.Questions) != 1 {
			continue
		}
		e.Count("queries", 1)
		q.Response, q.RecursionAvailable, q.Additionals = true, true, nil
		name := q.Questions[0].Name
		switch {
		case name.String() != "known.lab.test.":
			q.RCode = dnsmessage.RCodeNameError
		case q.Questions[0].Type == dnsmessage.TypeA:
			q.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET, TTL: 1},
				Body:   &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}},
			}}
		}
		out, err := q.Pack()
		if err != nil {
			continue
		}
		time.Sleep(time.Millisecond)
		pc.WriteTo(out, from)
	}
}

func dns(e *rig.Env) error {
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var server sync.WaitGroup
	defer server.Wait()
	defer pc.Close()
	server.Go(func() { answerNames(pc, e) })
	res := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", pc.LocalAddr().String())
	}}
	return e.Record(func(ctx context.Context) error {
		return rig.Crew(2, func(i int) error {
			return rig.Pace(ctx, 3*time.Millisecond, func() error {
				e.Count("lookups", 1)
				if i == 0 {
					addrs, err := res.LookupHost(context.Background(), "known.lab.test.")
					if err == nil && len(addrs) != 1 {
						err = fmt.Errorf("addresses %v", addrs)
					}
					return err
				}
				var dnsErr *net.DNSError
				if _, err := res.LookupHost(context.Background(), "unknown.lab.test."); !errors.As(err, &dnsErr) || !dnsErr.IsNotFound {
					return fmt.Errorf("expected no such host, got: %v", err)
				}
				return nil
			})
		})
	})
}
