package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/experiment/load"
	"github.com/whylate/whylate/internal/testing/testprog"
)

const transportDominates = "the answer takes less than the way over the loopback and the client's own wake-ups"

// entries is the corpus, by program.
var entries = []entry{
	{
		name: "etcd-reads", program: "etcd", description: "reads over the JSON gateway, nothing else",
		loads: []loadStream{{kind: "POST /v3/kv/range", rate: 150, targets: etcdTargets("range")}},
		truth: testprog.FieldTruth{Group: `ServeHTTP`, CountWithin: 0.1, SkipReason: transportDominates},
	},
	{
		name: "etcd-reads-neighbours", program: "etcd", description: "the same reads beside processes that use all CPUs", busyMachine: true,
		loads: []loadStream{{kind: "POST /v3/kv/range", rate: 150, targets: etcdTargets("range")}},
		truth: testprog.FieldTruth{Group: `ServeHTTP`, CountWithin: 0.1, SkipReason: transportDominates},
	},
	{
		name: "etcd-puts", program: "etcd", description: "every write waits for the log to be on the disk", fault: "fsync",
		loads: []loadStream{{kind: "POST /v3/kv/put", rate: 100, targets: etcdTargets("put")}},
		truth: testprog.FieldTruth{Group: `kvServer\)\.Put|quotaKVServer\)\.Put`, Cause: `syscall`, Site: `Fdatasync`, OwnSite: `wal\.`, Code: `WL2007|WL2003`, CountWithin: 0.1, SkipReason: transportDominates},
	},
	{
		name: "nats-publish", program: "nats", description: "messages published to a stream on disk, each acknowledged", prepare: createStream,
		loads: []loadStream{{kind: "publish", rate: 200, send: publishNATS()}},
		truth: testprog.FieldTruth{Group: `createClientEx\.func1|readLoop`, CountWithin: 0.15, SkipReason: "a message's way crosses three goroutines that work for all messages: no group is its whole life"},
	},
	{
		name: "nats-publish-neighbours", program: "nats", description: "messages published to a stream on disk, each acknowledged", prepare: createStream, busyMachine: true,
		loads: []loadStream{{kind: "publish", rate: 200, send: publishNATS()}},
		truth: testprog.FieldTruth{Group: `createClientEx\.func1|readLoop`, CountWithin: 0.15, SkipReason: "a message's way crosses three goroutines that work for all messages: no group is its whole life"},
	},
	{
		name: "nats-slow-consumer", program: "nats", description: "a subscriber reads slowly, so the server stalls those who publish to it", fault: "slow consumer", prepare: slowReader, warmup: 4500 * time.Millisecond,
		loads: []loadStream{{kind: "publish and ping", rate: 300, send: publishPing()}},
		truth: testprog.FieldTruth{Group: `createClientEx\.func1|readLoop`, Cause: `sleep`, Site: `stalledWait`, OwnSite: `stalledWait`, SkipReason: "a turn of the read loop may serve several messages, or a part of one"},
	},
	{
		name: "vm-queries", program: "victoriametrics", description: "small instant queries while samples come in", prepare: importSeries(200),
		loads: []loadStream{{kind: "GET /api/v1/query", rate: 120, path: "/api/v1/query?query=field_requests_total%7Bpath%3D%22%2Fp7%22%7D"}, vmIngest, {kind: "scrape", rate: 4, path: "/metrics"}},
		truth: testprog.FieldTruth{Group: `requestHandler|RequestHandler|serveWithListener`, SkipReason: transportDominates},
	},
	{
		name: "vm-queries-neighbours", program: "victoriametrics", description: "small instant queries while samples come in", prepare: importSeries(200), busyMachine: true,
		loads: []loadStream{{kind: "GET /api/v1/query", rate: 120, path: "/api/v1/query?query=field_requests_total%7Bpath%3D%22%2Fp7%22%7D"}, vmIngest},
		truth: testprog.FieldTruth{Group: `requestHandler|RequestHandler|serveWithListener`, SkipReason: transportDominates},
	},
	{
		name: "vm-heavy-query", program: "victoriametrics", description: "queries over thousands of series compute, and wait for each other's CPUs", fault: "heavy query", prepare: importSeries(3000),
		loads: []loadStream{{kind: "GET /api/v1/query_range", rate: 25, path: vmHeavy}},
		truth: testprog.FieldTruth{Group: `requestHandler|RequestHandler|serveWithListener`, Cause: "cpu|sched", Code: "WL1008|WL1002|WL1007|WL1009", CountWithin: 0.1, P50Within: 0.25, SkipReason: "too few for a p99"},
	},
	{
		name: "vm-one-at-a-time", program: "victoriametrics", description: "one query may run at a time (-search.maxConcurrentRequests=1), and the others queue", fault: "concurrency limit", prepare: importSeries(6000), args: []string{"-search.maxConcurrentRequests=1"},
		loads: []loadStream{{kind: "GET /api/v1/query_range", rate: 40, path: vmHeavy}},
		truth: testprog.FieldTruth{Group: `requestHandler|RequestHandler|serveWithListener`, Code: "WL2003", CountWithin: 0.1, P50Within: 0.25, SkipReason: "too few for a p99"},
	},
	{
		name: "coredns-forward", program: "coredns", description: "questions forwarded to a server that answers at once, while Prometheus scrapes", startUpstream: dnsUpstream(0),
		loads: []loadStream{{kind: "DNS question", rate: 200, send: askDNS()}, {kind: "scrape", rate: 10, targets: scrapeCoreDNS}},
		truth: testprog.FieldTruth{Group: `dns\.|ServeDNS|[uU][dD][pP]`, CountWithin: 0.1, SkipReason: transportDominates},
	},
	{
		name: "coredns-forward-neighbours", program: "coredns", description: "questions forwarded to a server that answers at once, while Prometheus scrapes", startUpstream: dnsUpstream(0), busyMachine: true,
		loads: []loadStream{{kind: "DNS question", rate: 200, send: askDNS()}, {kind: "scrape", rate: 10, targets: scrapeCoreDNS}},
		truth: testprog.FieldTruth{Group: `dns\.|ServeDNS|[uU][dD][pP]`, CountWithin: 0.1, SkipReason: transportDominates},
	},
	{
		name: "coredns-slow-upstream", program: "coredns", description: "the server that questions are forwarded to answers after 20 ms", fault: "slow upstream", startUpstream: dnsUpstream(20 * time.Millisecond),
		loads: []loadStream{{kind: "DNS question", rate: 200, send: askDNS()}, {kind: "scrape", rate: 10, targets: scrapeCoreDNS}},
		truth: testprog.FieldTruth{Group: `dns\.|ServeDNS|[uU][dD][pP]`, Cause: "network", Site: `forward\.|dns\.\(\*Conn\)`, OwnSite: "", Code: "WL2005", CountWithin: 0.1, P50Within: 0.1, P99Within: 0.25},
	},
	{
		name: "coredns-erratic", program: "coredns", description: "the plugin erratic sleeps 30 ms before every second answer", fault: "erratic", arguments: corednsArguments("erratic {\n drop 0\n truncate 0\n delay 2 30ms\n }"),
		loads: []loadStream{{kind: "DNS question", rate: 200, send: askDNS()}},
		truth: testprog.FieldTruth{Group: `dns\.|ServeDNS|[uU][dD][pP]`, Cause: "sleep", Site: `erratic\.`, Code: "WL2001", CountWithin: 0.1, P99Within: 0.35, SkipReason: "half of the answers are slow: the median may be either"},
	},
	{
		name: "caddy-proxy", program: "caddy", description: "requests passed on to a server that answers at once", startUpstream: httpUpstream(0, 0), arguments: caddyArguments("reverse_proxy 127.0.0.1:UPSTREAM"),
		loads: []loadStream{{kind: "GET /", rate: 200, path: "/"}},
		truth: testprog.FieldTruth{Group: `caddy`, CountWithin: 0.1, SkipReason: transportDominates},
	},
	{
		name: "caddy-proxy-neighbours", program: "caddy", description: "requests passed on to a server that answers at once", startUpstream: httpUpstream(0, 0), arguments: caddyArguments("reverse_proxy 127.0.0.1:UPSTREAM"), busyMachine: true,
		loads: []loadStream{{kind: "GET /", rate: 200, path: "/"}},
		truth: testprog.FieldTruth{Group: `caddy`, CountWithin: 0.1, SkipReason: transportDominates},
	},
	{
		name: "caddy-slow-upstream", program: "caddy", description: "the server behind it needs 25 ms for every request", fault: "slow upstream", startUpstream: httpUpstream(25*time.Millisecond, 1), arguments: caddyArguments("reverse_proxy 127.0.0.1:UPSTREAM"),
		loads: []loadStream{{kind: "GET /", rate: 120, path: "/"}},
		truth: testprog.FieldTruth{Group: `caddy`, Cause: "network", Site: `http\.\(\*persistConn\)|http\.\(\*Transport\)|reverseproxy`, OwnSite: `reverseproxy\.`, Code: "WL2005", CountWithin: 0.1, P50Within: 0.1, P99Within: 0.25},
	},
	{
		name: "caddy-templates", program: "caddy", description: "a template makes a long list, an element at a time, and sorts it for every request: it computes, and leaves garbage", fault: "template", startUpstream: nil, arguments: caddyTemplates,
		loads: []loadStream{{kind: "GET /", rate: 40, path: "/index.html"}},
		truth: testprog.FieldTruth{Group: `caddy`, Cause: "cpu", Site: `sprig|template`, OwnSite: `templates\.`, Code: "WL1008|WL3001|WL3004|WL1009", CountWithin: 0.15, P50Within: 0.5, SkipReason: "too few for a p99"},
	},
	{
		name: "caddy-gzip", program: "caddy", description: "a large file is compressed for every request", fault: "gzip", arguments: caddyGzip,
		loads: []loadStream{{kind: "GET /", rate: 30, targets: gzipTarget("/large.txt")}},
		truth: testprog.FieldTruth{Group: `caddy`, Cause: "cpu|sched", Site: `flate|gzip|encode`, OwnSite: `encode\.`, Code: "WL1008|WL1007|WL1002|WL1009", CountWithin: 0.15, P50Within: 0.25, SkipReason: "too few for a p99"},
	},
	{
		name: "caddy-quota", program: "caddy", description: "a twenty-fifth of a CPU is what its cgroup gives it", fault: "quota", quota: 0.04, startUpstream: httpUpstream(0, 0), arguments: caddyArguments("reverse_proxy 127.0.0.1:UPSTREAM"),
		loads: []loadStream{{kind: "GET /", rate: 200, path: "/"}},
		truth: testprog.FieldTruth{Group: `caddy`, Cause: "throttle", Code: "WL4001", CountWithin: 0.15, P99Within: 0.25, SkipReason: "requests between two freezes are as short as the way over the loopback"},
	},
	{
		name: "caddy-file", program: "caddy", description: "a small file, served as it is", arguments: caddyFile,
		loads: []loadStream{{kind: "GET /", rate: 200, path: "/small.txt"}},
		truth: testprog.FieldTruth{Group: `caddy|HTTP/. handlers`, SkipReason: transportDominates},
	},
	{
		name: "nats-sync-always", program: "nats", description: "every message is on the disk before it is acknowledged (sync_interval: always)", fault: "sync always", arguments: natsConfig("jetstream {\n store_dir: DATA\n sync_interval: always\n}"), prepare: createStream,
		loads: []loadStream{{kind: "publish", rate: 100, send: publishNATS()}},
		truth: testprog.FieldTruth{Group: `internalLoop`, Cause: "syscall", Site: `server\.\(\*msgBlock\)|filestore|Sync`, OwnSite: `server\.\(\*(msgBlock|fileStore)\)`, Code: "WL2007", SkipReason: "the stream's goroutine takes several messages at once"},
	},
	{
		name: "minio-puts", program: "minio", description: "small objects written to one disk", prepare: makeBucket,
		loads: []loadStream{{kind: "PUT object", rate: 60, send: putObject}},
		truth: testprog.FieldTruth{Group: `PutObject|[hH]andler`, CountWithin: 0.15, P50Within: 0.3, SkipReason: "too few for a p99"},
	},
	{
		name: "controller", program: "controller", description: "a controller that keeps up with the changes", startUpstream: apiServer(100),
		loads: []loadStream{{kind: "reconcile", printsSamples: true}},
		truth: testprog.FieldTruth{Group: `UntilWithContext|main\.\(\*controller\)`, CountWithin: 0.1, SkipReason: transportDominates},
	},
	{
		name: "controller-few-qps", program: "controller", description: "client-go's default limit of 5 requests a second: every reconcile waits for its turn", fault: "few-qps", startUpstream: apiServer(100), seconds: 3, warmup: 4 * time.Second,
		loads: []loadStream{{kind: "reconcile", printsSamples: true}},
		truth: testprog.FieldTruth{Group: `UntilWithContext|main\.\(\*controller\)`, Cause: "sleep", Site: `tokenBucketRateLimiter|rate\.\(\*Limiter\)|flowcontrol|tryThrottle`, OwnSite: `main\.\(\*controller\)\.reconcile`, Code: "WL2001|WL2003", CountWithin: 0.5, P50Within: 0.2, SkipReason: "too few for a p99"},
	},
	{
		name: "controller-slow-check", program: "controller", description: "reconciling sleeps 15 ms for something else, in one worker", fault: "slow-check", startUpstream: apiServer(40), seconds: 2,
		loads: []loadStream{{kind: "reconcile", printsSamples: true}},
		truth: testprog.FieldTruth{Group: `UntilWithContext|main\.\(\*controller\)`, Cause: "sleep", Site: `time\.Sleep|main\.\(\*controller\)\.check`, OwnSite: `main\.\(\*controller\)\.check`, Code: "WL2001", CountWithin: 0.1, P50Within: 0.15, SkipReason: "too few for a p99"},
	},
	{
		name: "tso", program: "tso", description: "transactions of two timestamps, from PD's client", startUpstream: startPD,
		loads: []loadStream{{kind: "transaction", printsSamples: true}},
		truth: testprog.FieldTruth{Group: `transaction`, CountWithin: 0.1, SkipReason: transportDominates},
	},
	{
		name: "tso-tickers", program: "tso", description: "ten thousand goroutines tick beside the client, all at once, once a second", fault: "tickers", startUpstream: startPD, warmup: 3 * time.Second,
		loads: []loadStream{{kind: "transaction", printsSamples: true}},
		truth: testprog.FieldTruth{Group: `transaction`, Cause: "sched.*", Code: "WL1004|WL1001", CountWithin: 0.1, SkipReason: "most transactions meet no herd"},
	},
	{
		name: "prometheus-queries", program: "prometheus", description: "small queries over its own metrics",
		loads: []loadStream{{kind: "GET /api/v1/query", rate: 100, path: "/api/v1/query?query=up"}},
		truth: testprog.FieldTruth{Group: `API|api/v1|web`, SkipReason: transportDominates},
	},
	{
		name: "prometheus-gzip", program: "prometheus", description: "every answer is compressed by a compressor of its own, so the collector works all the time", fault: "gzip", warmup: 4 * time.Second,
		loads: []loadStream{{kind: "GET /api/v1/targets", rate: 150, targets: gzipTarget("/api/v1/targets")}},
		truth: testprog.FieldTruth{Group: `API|api/v1|web`, SkipReason: "what is judged is the cause", Cause: "gc-assist|sched|cpu|gc-wait|stw", Code: "WL3001|WL3002|WL3004"},
	},
	{
		name: "prometheus-one-at-a-time", program: "prometheus", description: "one query, which computes, may run at a time (--query.max-concurrency=1), and the others queue", fault: "concurrency limit", args: []string{"--query.max-concurrency=1"}, warmup: 6 * time.Second,
		loads: []loadStream{{kind: "GET /api/v1/query", closedClients: 4, path: "/api/v1/query?query=sum(max_over_time(rate(prometheus_http_requests_total%5B5s%5D)%5B1s:1ms%5D))"}},
		truth: testprog.FieldTruth{Group: `API|api/v1|web`, Code: "WL2003", CountWithin: 0.15, P50Within: 0.25, SkipReason: "too few for a p99"},
	},
	{
		name: "etcd-watch", program: "etcd", description: "reads beside a hundred streams that watch keys", prepare: watchKeys(100),
		loads: []loadStream{{kind: "POST /v3/kv/range", rate: 80, targets: etcdTargets("range")}},
		truth: testprog.FieldTruth{Group: `kvServer\)\.Range`, CountWithin: 0.1, SkipReason: transportDominates},
	},
	{
		name: "etcd-defragment", program: "etcd", description: "the database is defragmented under load: all that reads or writes waits for it", fault: "defragment", prepare: fillEtcd,
		loads: []loadStream{{kind: "POST /v3/kv/range", rate: 100, targets: etcdTargets("range")}, {kind: "defragment", closedClients: 1, targets: etcdDefragment}},
		truth: testprog.FieldTruth{Group: `kvServer\)\.Range`, Site: `[dD]efrag|fdatasync|Fdatasync|backend`, OwnSite: `[dD]efrag`, Code: `WL2002|WL2007`, CountWithin: 0.1, SkipReason: transportDominates},
	},
}

func etcdTargets(verb string) func(s *server) []load.Target {
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	return func(s *server) []load.Target {
		var list []load.Target
		for i := range 50 {
			body := `{"key":"` + b64(fmt.Sprintf("key-%04d", i)) + `"}`
			if verb == "put" {
				body = strings.TrimSuffix(body, "}") + `,"value":"` + b64(strings.Repeat("v", 256)) + `"}`
			}
			list = append(list, load.Target{Name: verb, Method: "POST", URL: "http://127.0.0.1:" + s.ports[0] + "/v3/kv/" + verb, Body: []byte(body)})
		}
		return list
	}
}

var vmIngest = loadStream{kind: "ingest", rate: 20, targets: func(s *server) []load.Target {
	var b strings.Builder
	for i := range 100 {
		fmt.Fprintf(&b, "field_ingested{path=\"/p%d\"} %d\n", i, i)
	}
	return []load.Target{{Name: "ingest", Method: "POST", URL: "http://127.0.0.1:" + s.ports[0] + "/api/v1/import/prometheus", Body: []byte(b.String())}}
}}

const vmHeavy = "/api/v1/query_range?query=sum(rate(field_requests_total%5B2m%5D))by(instance)&step=15s&nocache=1"

func scrapeCoreDNS(s *server) []load.Target {
	return []load.Target{{Name: "scrape", URL: "http://127.0.0.1:" + s.ports[2] + "/metrics"}}
}

func gzipTarget(path string) func(s *server) []load.Target {
	return func(s *server) []load.Target {
		list := targetOf(path)(s)
		list[0].Header = http.Header{"Accept-Encoding": {"gzip"}}
		return list
	}
}

// caddyTemplates configures a page that is rendered for each request.
func caddyTemplates(data string, p []string) ([]string, error) {
	page := `{{$l := list}}{{range $i := until 200}}{{$l = append $l (printf "%d" (mul $i 7919))}}{{end}}{{$l | sortAlpha | join ","}}`
	if err := os.WriteFile(filepath.Join(data, "index.html"), []byte(page), 0o666); err != nil {
		return nil, err
	}
	return caddyArguments("root * DATA\ntemplates\nfile_server")(data, p)
}

func caddyFile(data string, p []string) ([]string, error) {
	if err := os.WriteFile(filepath.Join(data, "small.txt"), []byte(strings.Repeat("small ", 100)), 0o666); err != nil {
		return nil, err
	}
	return caddyArguments("root * DATA\nfile_server")(data, p)
}

func caddyGzip(data string, p []string) ([]string, error) {
	var b strings.Builder
	for i := range 6_000 {
		fmt.Fprintf(&b, "line %d of a large file, %x\n", i, i*i)
	}
	if err := os.WriteFile(filepath.Join(data, "large.txt"), []byte(b.String()), 0o666); err != nil {
		return nil, err
	}
	return caddyArguments("root * DATA\nencode {\n gzip 9\n}\nfile_server")(data, p)
}

// natsConfig returns arguments with a configuration file for nats-server; DATA in it is replaced by its data directory.
func natsConfig(text string) func(data string, p []string) ([]string, error) {
	return func(data string, p []string) ([]string, error) {
		config := filepath.Join(data, "nats.conf")
		text := strings.ReplaceAll(text, "DATA", strconv.Quote(data))
		return []string{"-c", config, "-a", "127.0.0.1", "-p", p[0], "-m", p[1], "--profile", p[2]}, os.WriteFile(config, []byte(text), 0o666)
	}
}

// watchKeys opens streams over the JSON gateway, one on each connection.
func watchKeys(n int) func(ctx context.Context, s *server) error {
	return func(ctx context.Context, s *server) error {
		for i := range n {
			c, err := net.Dial("tcp", "127.0.0.1:"+s.ports[0])
			if err != nil {
				return err
			}
			context.AfterFunc(ctx, func() { c.Close() })
			body := fmt.Sprintf(`{"create_request":{"key":"%s"}}`, base64.StdEncoding.EncodeToString([]byte(fmt.Sprintf("key-%04d", i))))
			fmt.Fprintf(c, "POST /v3/watch HTTP/1.1\r\nHost: etcd\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			go io.Copy(io.Discard, c)
		}
		return nil
	}
}

// fillEtcd writes 60 large values, so that a defragmentation takes a while.
func fillEtcd(ctx context.Context, s *server) error {
	value := base64.StdEncoding.EncodeToString(make([]byte, 500_000))
	for i := range 60 {
		key := base64.StdEncoding.EncodeToString([]byte(fmt.Sprintf("large-%d", i)))
		if err := sendHTTP(ctx, http.DefaultClient, "POST", "http://127.0.0.1:"+s.ports[0]+"/v3/kv/put", `{"key":"`+key+`","value":"`+value+`"}`); err != nil {
			return err
		}
	}
	return nil
}

func etcdDefragment(s *server) []load.Target {
	return []load.Target{{Name: "defragment", Method: "POST", URL: "http://127.0.0.1:" + s.ports[0] + "/v3/maintenance/defragment", Body: []byte("{}")}}
}
