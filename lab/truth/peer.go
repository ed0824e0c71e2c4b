package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/rpc"
	"strconv"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"google.golang.org/grpc"

	"github.com/whylate/whylate/lab/truth/wire"
)

// peerVerb runs the peer of some services: "peer KIND DURATION" for a server, "peer ask-KIND DURATION ADDRESS" for clients
// that pause for the duration after an answer. It ends when stdin does.
func peerVerb(_ context.Context, args []string, stdin io.Reader, stdout, _ io.Writer) error {
	if len(args) == 3 {
		return runClient(args, stdin)
	}
	if len(args) != 2 {
		return fmt.Errorf("peer wants a kind and a duration, got %q", args)
	}
	d, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	switch args[0] {
	case "sleep": // a slow child process
		time.Sleep(d)
		return nil
	case "drain": // a slow reader of its standard input
		buf := make([]byte, 4096)
		for {
			if _, err := stdin.Read(buf); err != nil {
				return nil
			}
			time.Sleep(d)
		}
	}
	if args[0] == "names" {
		pc, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "listening on %s\n", pc.LocalAddr())
		go answerNames(pc, d)
		_, err = io.Copy(io.Discard, stdin)
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "listening on %s\n", ln.Addr())
	go func() {
		switch args[0] {
		case "http":
			servePeerHTTP(ln, d)
		case "grpc":
			g := grpc.NewServer()
			g.RegisterService(wire.Desc(), delayedRPC{d})
			g.Serve(ln)
		case "lines":
			serveConns(ln, func(c net.Conn) { answerLines(c, d) })
		case "greeting":
			serveConns(ln, func(c net.Conn) {
				time.Sleep(d)
				io.WriteString(c, "hello\n")
				io.Copy(io.Discard, c)
			})
		}
	}()
	_, err = io.Copy(io.Discard, stdin)
	return err
}

// runClient sends requests over three connections, two at a time on each, until stdin ends.
func runClient(args []string, stdin io.Reader) error {
	pause, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	for range 3 {
		c, err := net.Dial("tcp", args[2])
		if err != nil {
			return err
		}
		switch args[0] {
		case "ask-call":
			client := rpc.NewClient(c)
			for i := range 2 {
				go func() {
					for price := 0; client.Call("Pricing.Quote", i, &price) == nil; {
						time.Sleep(pause)
					}
				}()
			}
		case "ask-lines":
			go func() {
				for r := bufio.NewReader(c); ; time.Sleep(pause) {
					io.WriteString(c, "one\ntwo\n")
					for range 2 {
						if _, err := r.ReadString('\n'); err != nil {
							return
						}
					}
				}
			}()
		}
	}
	_, err = io.Copy(io.Discard, stdin)
	return err
}

func servePeerHTTP(ln net.Listener, d time.Duration) {
	mux := http.NewServeMux()
	mux.HandleFunc("/slow", func(w http.ResponseWriter, _ *http.Request) {
		t := time.Now()
		time.Sleep(d)
		w.Header().Set(wire.Blamed, strconv.FormatInt(int64(time.Since(t)), 10)) // for a proxy that only forwards the answer
		io.WriteString(w, "slow\n")
	})
	mux.HandleFunc("/fast", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "fast\n") })
	httpServer(mux).Serve(ln)
}

// delayedRPC answers calls of Slow and Stream after d.
type delayedRPC struct{ d time.Duration }

func (s delayedRPC) Slow(_ context.Context, in *wire.Text) (*wire.Text, error) {
	time.Sleep(s.d)
	return in, nil
}

func (s delayedRPC) Fast(_ context.Context, in *wire.Text) (*wire.Text, error) { return in, nil }

func (s delayedRPC) Stream(in *wire.Text, out grpc.ServerStream) error {
	time.Sleep(s.d)
	return out.SendMsg(in)
}

// answerNames is a name server that answers after d. Every name has the address 127.0.0.1.
func answerNames(pc net.PacketConn, d time.Duration) {
	buf := make([]byte, 1500)
	for {
		n, from, err := pc.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
		if m.Questions[0].Type == dnsmessage.TypeA {
			m.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Class: dnsmessage.ClassINET, TTL: 1},
				Body:   &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}},
			}}
		}
		out, err := m.Pack()
		if err != nil {
			continue
		}
		go func() {
			time.Sleep(d)
			pc.WriteTo(out, from)
		}()
	}
}

func serveConns(ln net.Listener, serve func(net.Conn)) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			serve(c)
		}()
	}
}

func answerLines(c net.Conn, d time.Duration) {
	r := bufio.NewReader(c)
	for {
		if _, err := r.ReadString('\n'); err != nil {
			return
		}
		time.Sleep(d)
		if _, err := io.WriteString(c, "value\n"); err != nil {
			return
		}
	}
}
