package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// measurement is what a load's clients saw: each worker sends its next request when the last is answered, so the
// latencies are those of a fixed number of patient clients, not of an arrival rate.
type measurement struct {
	samples []sample
	err     error
}

type sample struct {
	kind    string
	end     time.Time
	latency time.Duration
}

// kind is what was measured of one kind of request.
type kind struct {
	Count int           `json:"count"`
	P50   time.Duration `json:"p50_ns"`
	P99   time.Duration `json:"p99_ns"`
	Max   time.Duration `json:"max_ns"`
}

// during adds up the requests that were answered in a stretch of time.
func (m measurement) during(from, to time.Time) map[string]kind {
	latencies := map[string][]time.Duration{}
	for _, s := range m.samples {
		if s.end.After(from) && s.end.Before(to) {
			latencies[s.kind] = append(latencies[s.kind], s.latency)
		}
	}
	kinds := map[string]kind{}
	for name, l := range latencies {
		slices.Sort(l)
		rank := func(q float64) time.Duration { return l[min(int(q*float64(len(l))), len(l)-1)] } // nearest rank
		kinds[name] = kind{len(l), rank(0.5), rank(0.99), rank(1)}
	}
	return kinds
}

// drive runs workers until the context ends. Each step is one request; it returns its kind. The first error ends all.
func drive(ctx context.Context, workers int, begun chan<- struct{}, worker func(ctx context.Context, id int) (step func() (string, error), stop func(), err error)) measurement {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var total measurement
	var mu sync.Mutex
	var wg sync.WaitGroup
	var once sync.Once
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if total.err == nil && ctx.Err() == nil {
			total.err = err
			cancel()
		}
	}
	for id := range workers {
		wg.Go(func() {
			step, stop, err := worker(ctx, id)
			if err != nil {
				fail(err)
				return
			}
			defer stop()
			var own []sample
			for ctx.Err() == nil {
				began := time.Now()
				kind, err := step()
				if err != nil {
					fail(err)
					break
				}
				end := time.Now()
				own = append(own, sample{kind, end, end.Sub(began)})
				once.Do(func() { close(begun) })
			}
			mu.Lock()
			defer mu.Unlock()
			total.samples = append(total.samples, own...)
		})
	}
	wg.Wait()
	return total
}

// do sends an HTTP request and reads its answer to the end.
func do(ctx context.Context, c *http.Client, method, url, body string) error {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.200s", url, resp.Status, b)
	}
	return err
}

func client(workers int) *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers}}
}

// loadEtcd puts and reads keys over the JSON gateway: three reads to a write.
func loadEtcd(ctx context.Context, s *server, workers int, begun chan<- struct{}) measurement {
	return etcd(ctx, s, workers, begun, 4)
}

// loadEtcdReads only reads.
func loadEtcdReads(ctx context.Context, s *server, workers int, begun chan<- struct{}) measurement {
	return etcd(ctx, s, workers, begun, 0)
}

// etcd makes one request in putEvery a put, none if that is 0.
func etcd(ctx context.Context, s *server, workers int, begun chan<- struct{}, putEvery int) measurement {
	c := client(workers)
	base := "http://127.0.0.1:" + s.ports[0]
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	value := b64(strings.Repeat("v", 256))
	return drive(ctx, workers, begun, func(ctx context.Context, id int) (func() (string, error), func(), error) {
		return func() (string, error) {
			key := b64(fmt.Sprintf("key-%04d", rand.IntN(1000)))
			if putEvery > 0 && rand.IntN(putEvery) == 0 {
				return "put", do(ctx, c, "POST", base+"/v3/kv/put", `{"key":"`+key+`","value":"`+value+`"}`)
			}
			return "range", do(ctx, c, "POST", base+"/v3/kv/range", `{"key":"`+key+`"}`)
		}, func() {}, nil
	})
}

// loadPrometheus asks for the last minutes of its own metrics: two range queries to a look at the targets. Like nearly
// every HTTP client it accepts gzip.
func loadPrometheus(ctx context.Context, s *server, workers int, begun chan<- struct{}) measurement {
	return prometheus(ctx, s, workers, begun, client(workers))
}

// loadPrometheusPlain does not accept gzip.
func loadPrometheusPlain(ctx context.Context, s *server, workers int, begun chan<- struct{}) measurement {
	return prometheus(ctx, s, workers, begun, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers, DisableCompression: true}})
}

func prometheus(ctx context.Context, s *server, workers int, begun chan<- struct{}, c *http.Client) measurement {
	base := "http://127.0.0.1:" + s.ports[0]
	return drive(ctx, workers, begun, func(ctx context.Context, id int) (func() (string, error), func(), error) {
		return func() (string, error) {
			if rand.IntN(3) == 0 {
				return "targets", do(ctx, c, "GET", base+"/api/v1/targets", "")
			}
			now := time.Now().Unix()
			q := url.Values{"query": {`histogram_quantile(0.99, sum by (le, handler) (rate(prometheus_http_request_duration_seconds_bucket[30s])))`},
				"start": {strconv.FormatInt(now-300, 10)}, "end": {strconv.FormatInt(now, 10)}, "step": {"1"}}
			return "query_range", do(ctx, c, "GET", base+"/api/v1/query_range?"+q.Encode(), "")
		}, func() {}, nil
	})
}

// loadNATS publishes to a JetStream stream and waits for the acknowledgement of each message, over the text protocol
// (docs.nats.io, "NATS Protocol").
func loadNATS(ctx context.Context, s *server, workers int, begun chan<- struct{}) measurement {
	addr := "127.0.0.1:" + s.ports[0]
	setup, err := dialNATS(ctx, addr, "setup")
	if err == nil {
		defer setup.close()
		var answer string
		answer, err = setup.request("$JS.API.STREAM.CREATE.FIELD", `{"name":"FIELD","subjects":["field.>"],"storage":"file","max_bytes":268435456}`)
		if err == nil && strings.Contains(answer, `"error"`) {
			err = fmt.Errorf("creating a stream: %s", answer)
		}
	}
	if err != nil {
		return measurement{err: err}
	}
	payload := strings.Repeat("p", 512)
	return drive(ctx, workers, begun, func(ctx context.Context, id int) (func() (string, error), func(), error) {
		c, err := dialNATS(ctx, addr, strconv.Itoa(id))
		if err != nil {
			return nil, nil, err
		}
		return func() (string, error) {
			answer, err := c.request("field."+strconv.Itoa(id), payload)
			if err == nil && !strings.Contains(answer, `"seq"`) {
				err = fmt.Errorf("no acknowledgement: %s", answer)
			}
			return "publish", err
		}, c.close, nil
	})
}

// natsClient is one connection with one request at a time.
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
