package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/whylate/whylate/internal/experiment/freeport"
	"github.com/whylate/whylate/internal/experiment/load"
)

// This file has the peers of recorded programs: servers behind them, and clients for protocols that internal/experiment/load
// does not implement. All of them run in this process.

// httpUpstream starts an HTTP server at the fourth port. Every slowEvery-th answer takes the delay.
func httpUpstream(delay time.Duration, slowEvery int) func(ctx context.Context, ports []string) error {
	n := 0
	var mu sync.Mutex
	return serveHTTP(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		n++
		slow := slowEvery > 0 && n%slowEvery == 0
		mu.Unlock()
		if slow {
			time.Sleep(delay)
		}
		io.WriteString(w, strings.Repeat("x", 1000))
	})
}

func serveHTTP(h http.HandlerFunc) func(ctx context.Context, ports []string) error {
	return func(ctx context.Context, ports []string) error {
		l, err := net.Listen("tcp", "127.0.0.1:"+ports[3])
		if err != nil {
			return err
		}
		s := &http.Server{Handler: h}
		go s.Serve(l)
		context.AfterFunc(ctx, func() { s.Close() })
		return nil
	}
}

// dnsUpstream answers every question over UDP at the fourth port after a delay.
func dnsUpstream(delay time.Duration) func(ctx context.Context, ports []string) error {
	return func(ctx context.Context, ports []string) error {
		c, err := net.ListenPacket("udp", "127.0.0.1:"+ports[3])
		if err != nil {
			return err
		}
		context.AfterFunc(ctx, func() { c.Close() })
		go func() {
			for b := make([]byte, 1500); ; {
				n, from, err := c.ReadFrom(b)
				if err != nil {
					return
				}
				answer, err := dnsAnswer(b[:n])
				if err != nil {
					continue
				}
				time.AfterFunc(delay, func() { c.WriteTo(answer, from) })
			}
		}()
		return nil
	}
}

func dnsAnswer(question []byte) ([]byte, error) {
	var p dnsmessage.Parser
	h, err := p.Start(question)
	if err != nil {
		return nil, err
	}
	q, err := p.Question()
	if err != nil {
		return nil, err
	}
	h.Response, h.RCode = true, dnsmessage.RCodeSuccess
	m := dnsmessage.Message{Header: h, Questions: []dnsmessage.Question{q}, Answers: []dnsmessage.Resource{{
		Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 1}, Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}}}}
	return m.Pack()
}

// askDNS asks the server at the first port for a new name each time.
func askDNS() func(ctx context.Context, s *server) error {
	idle := make(chan net.Conn, 100)
	return func(ctx context.Context, s *server) error {
		var c net.Conn
		select {
		case c = <-idle:
		default:
			var err error
			if c, err = net.Dial("udp", "127.0.0.1:"+s.ports[0]); err != nil {
				return err
			}
		}
		id := uint16(rand.IntN(1 << 16))
		m := dnsmessage.Message{Header: dnsmessage.Header{ID: id, RecursionDesired: true}, Questions: []dnsmessage.Question{{
			Name: dnsmessage.MustNewName(fmt.Sprintf("n%d.field.test.", rand.Int())), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
		question, err := m.Pack()
		if err != nil {
			return err
		}
		c.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err = c.Write(question); err == nil {
			b := make([]byte, 1500)
			var n int
			if n, err = c.Read(b); err == nil && m.Unpack(b[:n]) == nil && (m.ID != id || m.RCode != dnsmessage.RCodeSuccess) {
				err = errors.New("the answer is " + m.RCode.String())
			}
		}
		if err != nil {
			c.Close()
			return err
		}
		select {
		case idle <- c:
		default:
			c.Close()
		}
		return nil
	}
}

// publishNATS publishes to a JetStream stream and waits for the acknowledgement.
func publishNATS() func(ctx context.Context, s *server) error {
	idle := make(chan *natsClient, 100)
	var n int
	var mu sync.Mutex
	payload := strings.Repeat("p", 512)
	return func(ctx context.Context, s *server) error {
		var c *natsClient
		select {
		case c = <-idle:
		default:
			mu.Lock()
			n++
			id := n
			mu.Unlock()
			var err error
			if c, err = dialNATS(context.WithoutCancel(ctx), "127.0.0.1:"+s.ports[0], "c"+strconv.Itoa(id)); err != nil {
				return err
			}
		}
		answer, err := c.request("field.x", payload)
		if err == nil && !strings.Contains(answer, `"seq"`) {
			err = fmt.Errorf("no acknowledgement: %s", answer)
		}
		if err != nil {
			c.close()
			return err
		}
		idle <- c
		return nil
	}
}

func createStream(ctx context.Context, s *server) error {
	c, err := dialNATS(ctx, "127.0.0.1:"+s.ports[0], "setup")
	if err != nil {
		return err
	}
	defer c.close()
	answer, err := c.request("$JS.API.STREAM.CREATE.FIELD", `{"name":"FIELD","subjects":["field.>"],"storage":"file","max_bytes":268435456}`)
	if err == nil && strings.Contains(answer, `"error"`) {
		err = errors.New(answer)
	}
	return err
}

// slowReader subscribes to the published messages and reads them slowly.
func slowReader(ctx context.Context, s *server) error {
	conn, err := net.Dial("tcp", "127.0.0.1:"+s.ports[0])
	if err != nil {
		return err
	}
	conn.(*net.TCPConn).SetReadBuffer(64 << 10)
	context.AfterFunc(ctx, func() { conn.Close() })
	if _, err := io.WriteString(conn, "CONNECT {\"verbose\":false}\r\nSUB slow 1\r\n"); err != nil {
		return err
	}
	go func() {
		for b := make([]byte, 64<<10); ; time.Sleep(200 * time.Millisecond) {
			if _, err := io.ReadFull(conn, b); err != nil {
				return
			}
		}
	}()
	return nil
}

// publishPing publishes a large message that the slow reader also gets, and waits for the answer to a ping, which the server
// sends after it has read the message.
func publishPing() func(ctx context.Context, s *server) error {
	idle := make(chan *natsClient, 100)
	payload := strings.Repeat("p", 32<<10)
	return func(ctx context.Context, s *server) error {
		var c *natsClient
		select {
		case c = <-idle:
		default:
			var err error
			if c, err = dialNATS(context.WithoutCancel(ctx), "127.0.0.1:"+s.ports[0], "ping"); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintf(c.conn, "PUB slow %d\r\n%s\r\nPING\r\n", len(payload), payload); err != nil {
			return err
		}
		for {
			line, err := c.r.ReadString('\n')
			if err != nil {
				return err
			}
			switch {
			case strings.HasPrefix(line, "PONG"):
				idle <- c
				return nil
			case strings.HasPrefix(line, "PING"):
				io.WriteString(c.conn, "PONG\r\n")
			case strings.HasPrefix(line, "-ERR"):
				return errors.New(line)
			}
		}
	}
}

// apiServer implements the part of a Kubernetes API server that an informer and an update of config maps need. It changes
// config maps at a rate.
func apiServer(changes float64) func(ctx context.Context, ports []string) error {
	type object = map[string]any
	var mu sync.Mutex
	version := 1000
	objects := make([]object, 200)
	for i := range objects {
		objects[i] = object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": fmt.Sprintf("m%d", i), "namespace": "default", "resourceVersion": "1"},
			"data": object{"spec": "0", "status": "0"}}
	}
	var watchers []chan []byte
	send := func(o object) { // with mu held
		version++
		o["metadata"].(object)["resourceVersion"] = strconv.Itoa(version)
		b, _ := json.Marshal(object{"type": "MODIFIED", "object": o})
		for _, w := range watchers {
			select {
			case w <- append(b, '\n'):
			default:
			}
		}
	}
	return func(ctx context.Context, ports []string) error {
		go func() {
			due := time.Now()
			for n := 1; ctx.Err() == nil; n++ {
				due = due.Add(time.Duration(rand.ExpFloat64() / changes * float64(time.Second)))
				time.Sleep(time.Until(due))
				mu.Lock()
				o := objects[n%len(objects)]
				o["data"].(object)["spec"] = strconv.Itoa(n)
				send(o)
				mu.Unlock()
			}
		}()
		return serveHTTP(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			switch {
			case r.Method == http.MethodPut:
				var o object
				if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
					http.Error(w, err.Error(), 400)
					return
				}
				i, _ := strconv.Atoi(strings.TrimPrefix(o["metadata"].(object)["name"].(string), "m"))
				mu.Lock()
				objects[i]["data"].(object)["status"] = o["data"].(object)["status"]
				send(objects[i])
				b, _ := json.Marshal(objects[i])
				mu.Unlock()
				w.Write(b)
			case r.URL.Query().Has("watch"):
				events := make(chan []byte, 1000)
				mu.Lock()
				watchers = append(watchers, events)
				mu.Unlock()
				w.(http.Flusher).Flush()
				for {
					select {
					case <-r.Context().Done():
						return
					case b := <-events:
						w.Write(b)
						w.(http.Flusher).Flush()
					}
				}
			default:
				mu.Lock()
				b, _ := json.Marshal(object{"apiVersion": "v1", "kind": "ConfigMapList", "metadata": object{"resourceVersion": strconv.Itoa(version)}, "items": objects})
				mu.Unlock()
				w.Write(b)
			}
		})(ctx, ports)
	}
}

// startPD starts PD with the fourth port for clients.
func startPD(ctx context.Context, ports []string) error {
	p, _ := programNamed("pd")
	binary, err := p.build(ctx)
	if err != nil {
		return err
	}
	peerPort, err := freeport.Find(1)
	if err != nil {
		return err
	}
	pdPorts := []string{ports[3], peerPort[0]}
	dir, err := tempDir(ctx)
	if err != nil {
		return err
	}
	args, err := p.arguments(dir, pdPorts)
	if err != nil {
		return err
	}
	s, err := p.startWithPorts(ctx, binary, dir, pdPorts, args, nil, nil)
	if err != nil {
		return err
	}
	peers.Add(1)
	context.AfterFunc(ctx, func() {
		defer peers.Done()
		s.stop()
	})
	return nil
}

// peers counts processes to wait for at the end.
var peers sync.WaitGroup

// importSeries imports series to VictoriaMetrics, with a value every 15 s of the last quarter of an hour.
func importSeries(series int) func(ctx context.Context, s *server) error {
	return func(ctx context.Context, s *server) error {
		var b bytes.Buffer
		nowMS := time.Now().UnixMilli()
		for i := range series {
			for age := int64(900); age >= 0; age -= 15 {
				fmt.Fprintf(&b, "field_requests_total{instance=\"i%d\",path=\"/p%d\"} %d %d\n", i%50, i, 1000-age+int64(i), nowMS-age*1000)
			}
		}
		if err := sendHTTP(ctx, http.DefaultClient, "POST", "http://127.0.0.1:"+s.ports[0]+"/api/v1/import/prometheus", b.String()); err != nil && !strings.Contains(err.Error(), "204") {
			return err
		}
		for range 100 { // until queries find the series; an early query could cache an empty answer
			time.Sleep(3 * time.Second)
			resp, err := http.Get("http://127.0.0.1:" + s.ports[0] + "/api/v1/query?query=count(field_requests_total)&nocache=1")
			if err != nil {
				return err
			}
			b, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || strings.Contains(string(b), `"`+strconv.Itoa(series)+`"`) {
				return err
			}
		}
		return errors.New("queries do not find the imported series")
	}
}

func targetOf(path string) func(s *server) []load.Target {
	return func(s *server) []load.Target {
		return []load.Target{{Name: path, URL: "http://127.0.0.1:" + s.ports[0] + path}}
	}
}
