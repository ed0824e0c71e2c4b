package main

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/whylate/whylate/internal/testing/testprog"
)

// shopProgram is a small program of this repository that uses a library: a service of lab/field/programs/shops, a module with
// its own path, like a user's.
func shopProgram(name, module, version string, configure func(p *program)) program {
	p := program{
		name: name, dir: "lab/field/programs/shops/" + name, module: module, version: version,
		arguments: func(_ string, ports []string) ([]string, error) {
			return []string{"-listen", "127.0.0.1:" + ports[0], "-pprof", "127.0.0.1:" + ports[1]}, nil
		},
		ready: func(ports []string) string { return "http://127.0.0.1:" + ports[1] + "/samples" },
		pprof: func(ports []string) string { return "http://127.0.0.1:" + ports[1] },
	}
	if configure != nil {
		configure(&p)
	}
	return p
}

func withBackend(b backendStarter) func(p *program) { return func(p *program) { p.backend = b } }
func withPeer(p *program)                           { p.peer = true }

func init() {
	programs = append(programs, shops...)
	entries = append(entries, shopEntries...)
}

var shops = []program{
	shopProgram("orders", "github.com/jackc/pgx/v5", "v5.11.0", withBackend(startPostgres)),
	shopProgram("accounts", "github.com/jackc/pgx/v5", "v5.11.0", func(p *program) { p.backend, p.peer = startPostgres, true }),
	shopProgram("catalog", "github.com/redis/go-redis/v9", "v9.22.0", func(p *program) { p.backend, p.peer = startRedis, true }),
	shopProgram("gateway", "google.golang.org/grpc", "v1.85.0", nil),
	shopProgram("gateway-two", "google.golang.org/grpc", "v1.85.0", func(p *program) { p.dir, p.peer = "lab/field/programs/shops/gateway", true }),
	shopProgram("bench", "go.etcd.io/bbolt", "v1.4.3", nil),
	shopProgram("quotes", "golang.org/x/sync", "v0.23.0", nil),
	shopProgram("queue", "net", "go1.26", nil),
	shopProgram("jobs", "github.com/robfig/cron/v3", "v3.0.1", nil),
	shopProgram("checker", "net", "go1.26", withPeer),
	shopProgram("chat", "github.com/gorilla/websocket", "v1.5.3", nil),
	shopProgram("download", "net/http", "go1.26", nil),
	shopProgram("feed", "net/http", "go1.26", nil),
	shopProgram("resolver", "github.com/miekg/dns", "v1.1.72", withPeer),
	shopProgram("stream", "github.com/twmb/franz-go", "v1.22.1", func(p *program) { p.backend, p.peer = startKafka, true }),
	shopProgram("pubsub", "github.com/bsm/sarama-cluster", "v2.1.8+incompatible", func(p *program) {
		p.backend, p.ready = startKafka, func(ports []string) string { return "http://127.0.0.1:" + ports[1] + "/debug/pprof/" }
	}),
	shopProgram("mail", "github.com/nats-io/nats.go", "v1.53.1", nil),
	shopProgram("audit", "go.uber.org/zap", "v1.27.1", nil),
	shopProgram("dashboard", "golang.org/x/sync", "v0.23.0", nil),
	shopProgram("pricing", "golang.org/x/time", "v0.16.0", withPeer),
	shopProgram("relay", "net/http", "go1.26", withPeer),
	shopProgram("flight", "runtime/trace", "go1.26", nil),
	shopProgram("chi", "github.com/go-chi/chi/v5", "v5.4.0", nil),
	shopProgram("gin", "github.com/gin-gonic/gin", "v1.11.0", withPeer),
	shopProgram("echo", "github.com/labstack/echo/v4", "v4.15.4", nil),
	shopProgram("vetting", "google.golang.org/grpc", "v1.85.0", withPeer),
}

// clientArgs starts the program again as its own clients.
func clientArgs(s *server) []string {
	return append([]string{"-load", "127.0.0.1:" + s.ports[0]}, s.extraArgs...)
}

const (
	roundTripMeasured  = "what is measured is from when a message is sent until it is back, not how long the service has it"
	tooFewForP99       = "there are too few requests for a p99"
	fastRequestsUnseen = "requests that wait for nothing show no handler in a trace, so a group by handler has the slow ones only"
	clientBuffers      = "the handler is done when the last part is in the client's window, which then still reads for some 50 ms"
)

// shopEntries are recordings of small programs with libraries. An injected wait has a known duration and site.
var shopEntries = []entry{
	{
		name: "sql-pool", program: "orders", fault: "pool", description: "database/sql has two connections for all requests, and each query takes 4 ms",
		loads: []loadStream{{kind: "GET /stock", closedClients: 8, path: "/stock?item=7"}},
		truth: testprog.FieldTruth{Group: `stocked`, Cause: `network`, Site: `pgconn|bgreader|main\.\(\*store\)\.reserve`, OwnSite: `main\.\(\*store\)\.reserve`, Code: "WL2003", CountWithin: 0.1, P50Within: 0.1, SkipReason: tooFewForP99},
	},
	{
		name: "sql-lock", program: "orders", fault: "lock", description: "a mutex is held over a query of 4 ms",
		loads: []loadStream{{kind: "GET /stock", rate: 150, path: "/stock?item=7"}},
		truth: testprog.FieldTruth{Group: `stocked`, Cause: `network`, Site: `pgconn|bgreader|main\.\(\*store\)\.reserve`, OwnSite: `main\.\(\*store\)\.reserve`, Code: "WL2002", CountWithin: 0.1, P50Within: 0.1, SkipReason: tooFewForP99},
	},
	{
		name: "sql-healthy", program: "orders", description: "lists by an index, and connections enough",
		loads: []loadStream{{kind: "GET /orders", rate: 150, path: "/orders?item=7"}},
		truth: testprog.FieldTruth{Group: `list`, CountWithin: 0.1, SkipReason: transportDominates},
	},
	{
		name: "pgxpool-held", program: "accounts", fault: "held", description: "one of four connections is held over the call of a payment service, which takes 20 ms", seconds: 2,
		loads: []loadStream{{kind: "GET /charge", rate: 140, path: "/charge?id=7"}},
		truth: testprog.FieldTruth{Group: `bank`, Cause: `network`, Site: `net/http|main\.\(\*bank\)`, OwnSite: `main\.\(\*bank\)\.(charge|authorize)`, Code: "WL2003", CountWithin: 0.1, P50Within: 0.1, P99Within: 0.15},
	},
	{
		name: "redis-pool", program: "catalog", fault: "pool", description: "one connection for all requests, each of which asks three times a Redis that is 1 ms away",
		loads: []loadStream{{kind: "GET /product", rate: 180, path: "/product?id=7"}},
		truth: testprog.FieldTruth{Group: `catalog`, Cause: `network`, Site: `go-redis|main\.\(\*catalog\)`, OwnSite: `main\.\(\*catalog\)\.product`, Code: "WL2003", CountWithin: 0.1, P50Within: 0.1, SkipReason: tooFewForP99},
	},
	{
		name: "redis-healthy", program: "catalog", description: "three commands of Redis a request",
		loads: []loadStream{{kind: "GET /product", rate: 150, path: "/product?id=7"}},
		truth: testprog.FieldTruth{Group: `catalog`, CountWithin: 0.1, SkipReason: transportDominates},
	},
	{
		name: "redis-healthy-neighbours", program: "catalog", description: "three commands of Redis a request, beside processes that use all CPUs", busyMachine: true,
		loads: []loadStream{{kind: "GET /product", rate: 150, path: "/product?id=7"}},
		truth: testprog.FieldTruth{Group: `catalog`, CountWithin: 0.1, SkipReason: transportDominates},
	},
	{
		name: "grpc-same-process", program: "gateway", fault: "slow", description: "a gateway calls its own gRPC service over loopback, which sleeps for 12 ms",
		loads: []loadStream{{kind: "GET /price", rate: 100, path: "/price?item=7"}},
		truth: testprog.FieldTruth{Group: `gateway`, Cause: `sleep`, Site: `main\.refresh`, OwnSite: `main\.(refresh|\(\*prices\)\.Price)`, Code: "WL2001", CountWithin: 0.1, P50Within: 0.1, SkipReason: tooFewForP99},
	},
	{
		name: "grpc-two-processes", program: "gateway-two", fault: "slow", description: "a gateway calls a gRPC service in another process, which sleeps for 12 ms",
		loads: []loadStream{{kind: "GET /price", rate: 100, path: "/price?item=7"}},
		truth: testprog.FieldTruth{Group: `gateway`, Cause: `network`, Site: `grpc|transport|main\.\(\*gateway\)`, OwnSite: `main\.\(\*gateway\)\.price`, Code: "WL2005", CountWithin: 0.1, P50Within: 0.1, SkipReason: tooFewForP99},
	},
	{
		name: "queue-batch", program: "queue", fault: "batch", description: "consumers of a queue sleep for 50 ms before they write a batch; ten scrapes a second beside", seconds: 2,
		loads: []loadStream{{kind: "turn of a consumer", servesSamples: true}, {kind: "datagrams", childArgs: clientArgs}, {kind: "GET /metrics", rate: 10, path: "/metrics"}},
		truth: testprog.FieldTruth{Group: `consume`, Cause: `sleep`, Site: `main\.linger`, OwnSite: `main\.(linger|\(\*queue\)\.consume)`, Code: "WL2001|WL2004", CountWithin: 0.1, P50Within: 0.05, P99Within: 0.05},
	},
	{
		name: "cron-lock", program: "jobs", fault: "lock", description: "forty jobs begin every second, and each holds a lock for 10 ms asleep", seconds: 2,
		loads: []loadStream{{kind: "run of a job", servesSamples: true}},
		truth: testprog.FieldTruth{Group: `report|cron|main\.main`, Cause: `sleep`, Site: `main\.\(\*mailer\)\.send`, OwnSite: `main\.\(\*mailer\)\.send`, Code: "WL2002", CountWithin: 0.1, P50Within: 0.1, SkipReason: tooFewForP99, AllowedTexts: []string{`WL1009`, `WL1007 main\.\(\*mailer\)\.report`}},
	},
	{
		name: "checker-herd", program: "checker", fault: "herd", description: "3,000 tickers start in the same moment, and each connects to a target", seconds: 3, warmup: 7 * time.Second,
		loads: []loadStream{{kind: "check", servesSamples: true}},
		truth: testprog.FieldTruth{Group: `watch|check`, Cause: `sched|sched-poll`, OwnSite: `main\.\(\*target\)\.(check|watch)`, Code: "WL1004", CountWithin: 0.1, P50Within: 0.15, P99Within: 0.15, AllowedTexts: []string{`WL3001 main\.\(\*target\)\.check`}},
	},
	{
		name: "checker-healthy", program: "checker", description: "3,000 tickers start at different moments; main sleeps", warmup: 7 * time.Second,
		loads: []loadStream{{kind: "check", servesSamples: true}},
		truth: testprog.FieldTruth{Group: `watch|check`, CountWithin: 0.1, SkipReason: transportDominates},
	},
	{
		name: "websocket-broadcast", program: "chat", fault: "slow", description: "a room is locked while a message is written to everybody, and one member reads slowly", warmup: 5 * time.Second,
		loads: []loadStream{{kind: "message, until it is back", childArgs: clientArgs}},
		truth: testprog.FieldTruth{Group: `room|ServeHTTP`, Cause: `network`, Site: `websocket|main\.\(\*room\)\.broadcast`, OwnSite: `main\.\(\*room\)\.broadcast`, Code: "WL2002|WL2006", CountWithin: 0.1, SkipReason: roundTripMeasured},
	},
	{
		name: "websocket-healthy", program: "chat", description: "a room with a slow member whose messages wait in a channel of its own",
		loads: []loadStream{{kind: "message, until it is back", childArgs: clientArgs}},
		truth: testprog.FieldTruth{Group: `room|ServeHTTP`, CountWithin: 0.1, SkipReason: roundTripMeasured},
	},
	{
		name: "http2-window", program: "download", fault: "window", description: "clients that share a connection read slowly, so that the server waits for the window of flow control",
		loads: []loadStream{{kind: "download", childArgs: clientArgs}},
		truth: testprog.FieldTruth{Group: `download`, Cause: `network`, Site: `http2|main\.download`, OwnSite: `main\.download`, Code: "WL2006", CountWithin: 0.1, SkipReason: clientBuffers},
	},
	{
		name: "sse-healthy", program: "feed", description: "thirty streams of server-sent events, each idle nearly always; two health probes a second", seconds: 2,
		loads: []loadStream{{kind: "event, until a listener has it", childArgs: clientArgs}, {kind: "GET /healthz", rate: 2, path: "/healthz"}},
		truth: testprog.FieldTruth{SkipReason: "a stream is not a request; what matters is that nothing is said to be late"},
	},
	{
		name: "dns-lock", program: "resolver", fault: "lock", description: "the cache is locked while an upstream server is asked, which takes 15 ms; ten scrapes a second beside",
		loads: []loadStream{{kind: "question", childArgs: clientArgs}, {kind: "GET /metrics", rate: 10, path: "/metrics"}},
		truth: testprog.FieldTruth{Group: `dns|DNS`, Cause: `network`, Site: `miekg|main\.upstream`, OwnSite: `main\.(upstream|\(\*resolver\)\.lookup)`, Code: "WL2002", CountWithin: 0.1, P99Within: 0.2},
	},
	{
		name: "dns-upstream", program: "resolver", fault: "upstream", description: "one question in 25 is passed on to an upstream server, which takes 15 ms; ten scrapes a second beside",
		loads: []loadStream{{kind: "question", childArgs: clientArgs}, {kind: "GET /metrics", rate: 10, path: "/metrics"}},
		truth: testprog.FieldTruth{Group: `dns|DNS`, Cause: `network`, Site: `miekg|main\.upstream`, OwnSite: `main\.(upstream|\(\*resolver\)\.lookup)`, Code: "WL2005", CountWithin: 0.1, P99Within: 0.2},
	},
	{
		name: "grpc-retry", program: "vetting", fault: "backoff", description: "one call of three fails, and gRPC's own retry pauses for some 60 ms before it tries again", seconds: 1,
		loads: []loadStream{{kind: "GET /order", rate: 30, path: "/order"}},
		truth: testprog.FieldTruth{Group: `order`, Cause: `sleep`, Site: `grpc`, OwnSite: `main\.\(\*desk\)`, Code: "WL2001", RequiredText: `retryPolicy`, Loud: true, CountWithin: 0.1, SkipReason: tooFewForP99},
	},
	{
		name: "dns-healthy", program: "resolver", description: "one question in 25 is passed on to an upstream server, which answers at once; ten scrapes a second beside",
		loads: []loadStream{{kind: "question", childArgs: clientArgs}, {kind: "GET /metrics", rate: 10, path: "/metrics"}},
		truth: testprog.FieldTruth{Group: `dns|DNS`, CountWithin: 0.1, SkipReason: transportDominates},
	},
	{
		name: "kafka-commit", program: "stream", fault: "commit", description: "a consumer commits after every message and waits for that", seconds: 2,
		loads: []loadStream{{kind: "message handled", servesSamples: true}, {kind: "messages", childArgs: clientArgs}},
		truth: testprog.FieldTruth{Group: `handle|consume`, Cause: `network`, OwnSite: `main\.(handle|consume)`, Code: "WL2005", CountWithin: 0.1, P50Within: 0.2, SkipReason: tooFewForP99, AllowedTexts: []string{`WL2005 .*broker\.go`}, ForbiddenText: `(at|from) main\.consume|PollRecords|PollFetches`},
	},
	{
		name: "kafka-dwell", program: "pubsub", fault: "dwell", description: "sarama-cluster sleeps 100 ms and 200 ms before it reads the first message", seconds: 2,
		loads: []loadStream{{kind: "GET /sub", closedClients: 4, send: newGroup}},
		truth: testprog.FieldTruth{Group: `main\.sub`, Cause: `sleep`, Site: `release|fetchOffsets`, OwnSite: `main\.sub`, Code: "WL2001", CountWithin: 0.1, P50Within: 0.1, SkipReason: tooFewForP99, AllowedTexts: []string{`WL2005 .*sarama`}},
	},
	{
		name: "nats-serial", program: "mail", fault: "serial", description: "one subscription handles all messages one after the other, 4 ms each, with NATS in the same process",
		loads: []loadStream{{kind: "letter, until it is delivered", childArgs: clientArgs}},
		truth: testprog.FieldTruth{Group: `main\.(handle|deliver)|waitForMsgs`, Cause: `sleep`, Site: `main\.deliver`, OwnSite: `main\.(deliver|handle)`, CountWithin: 0.1, SkipReason: roundTripMeasured},
	},
	{
		name: "zap-pipe", program: "audit", fault: "zap", description: "zap writes its log under a lock to a pipe that is read slowly",
		loads: []loadStream{{kind: "GET /order", closedClients: 8, path: "/order"}},
		truth: testprog.FieldTruth{Group: `handler|main`, Cause: `network`, Site: `zap|os\.|main\.`, OwnSite: `main\.`, Code: "WL2002", CountWithin: 0.1, P50Within: 0.15, P99Within: 0.15},
	},
	{
		name: "slog-pipe", program: "audit", fault: "slog", description: "log/slog writes its log under a lock to a pipe that is read slowly",
		loads: []loadStream{{kind: "GET /order", closedClients: 8, path: "/order"}},
		truth: testprog.FieldTruth{Group: `handler|main`, Cause: `network`, Site: `slog|os\.|main\.`, OwnSite: `main\.`, Code: "WL2002", CountWithin: 0.1, P50Within: 0.15, P99Within: 0.15},
	},
	{
		name: "singleflight-expiry", program: "dashboard", fault: "expiry", description: "a summary expires every 200 ms, and everybody waits 60 ms while it is made",
		loads: []loadStream{{kind: "GET /dashboard", rate: 150, path: "/dashboard"}},
		truth: testprog.FieldTruth{Group: `dashboard`, Cause: `sleep`, Site: `main\.warehouse`, OwnSite: `main\.(warehouse|\(\*dashboard\)\.current)`, Code: "WL2001|WL2002", SkipReason: fastRequestsUnseen},
	},
	{
		name: "rate-limit", program: "pricing", fault: "limit", description: "a limiter of 160 calls a second, at 150 requests a second that come at random", seconds: 2,
		loads: []loadStream{{kind: "GET /price", rate: 150, path: "/price?item=7"}},
		truth: testprog.FieldTruth{Group: `pricing`, Cause: `sleep`, Site: `rate\.|main\.\(\*pricing\)`, OwnSite: `main\.\(\*pricing\)\.price`, Code: "WL2001|WL2003", CountWithin: 0.1, P50Within: 0.15, P99Within: 0.15},
	},
	{
		name: "transport-conns", program: "relay", fault: "conns", description: "http.Transport may have one connection to a service that takes 5 ms", seconds: 2,
		loads: []loadStream{{kind: "GET /page", rate: 130, path: "/page"}},
		truth: testprog.FieldTruth{Group: `relay`, Cause: `network`, Site: `net/http|main\.\(\*relay\)`, OwnSite: `main\.\(\*relay\)`, Code: "WL2003", CountWithin: 0.1, P50Within: 0.15, P99Within: 0.15},
	},
	{
		name: "flight-report", program: "flight", fault: "report", description: "a report holds the lock that requests need for 120 ms asleep; a flight recorder's snapshot of one that was slow", warmup: 4 * time.Second,
		loads: []loadStream{{kind: "GET /order", servesSamples: true}, {kind: "orders", rate: 25, path: "/order"}},
		truth: testprog.FieldTruth{Group: `order`, Cause: `sleep`, Site: `main\.office`, OwnSite: `main\.(office|\(\*shop\)\.(order|report))`, Code: "WL2002", SkipReason: fastRequestsUnseen},
	},
	{
		name: "flight-healthy", program: "flight", description: "a flight recorder's snapshot of a service whose report holds no lock", warmup: 4 * time.Second,
		loads: []loadStream{{kind: "GET /order", servesSamples: true}, {kind: "orders", rate: 25, path: "/order"}},
		truth: testprog.FieldTruth{Group: `order|HTTP/. handlers`, SkipReason: fastRequestsUnseen},
	},
	{
		name: "chi-lock", program: "chi", fault: "lock", description: "a price list is locked for 3 ms while an order is saved; one handler behind middleware switches by path",
		loads: []loadStream{{kind: "GET /price", rate: 150, path: "/price?item=7"}, {kind: "GET /order", rate: 60, path: "/order?item=7"}},
		truth: testprog.FieldTruth{Group: `price`, Cause: `sleep`, Site: `main\.save`, OwnSite: `main\.(save|\(\*shop\)\.(price|order))`, Code: "WL2002", SkipReason: fastRequestsUnseen},
	},
	{
		name: "gin-serial", program: "gin", fault: "serial", description: "a service is asked five times, one after the other, 4 ms each",
		loads: []loadStream{{kind: "GET /basket", rate: 60, path: "/basket"}},
		truth: testprog.FieldTruth{Group: `basket`, Cause: `network`, Site: `net/http|main\.stock`, OwnSite: `main\.(stock|basket)`, Code: "WL2005", CountWithin: 0.1, P50Within: 0.1, SkipReason: tooFewForP99},
	},
	{
		name: "echo-quality", program: "echo", fault: "quality", description: "a picture is compressed better than needed, which takes most of a request's time; the machine was busy beside it",
		loads: []loadStream{{kind: "GET /thumbnail", rate: 80, path: "/thumbnail"}},
		truth: testprog.FieldTruth{Group: `thumbnail`, Cause: `cpu`, Site: `flate|png|zlib|main\.`, OwnSite: `main\.(thumbnail|picture)`, Code: "WL1008|WL1009", CountWithin: 0.1, P50Within: 0.2, SkipReason: tooFewForP99},
	},
	{
		name: "bench-put", program: "bench", benchmark: "Put", description: "a benchmark whose iterations wait for the disk", fault: "sync",
		loads: []loadStream{{kind: "iteration"}},
		truth: testprog.FieldTruth{Group: `BenchmarkPut|main\.put|bench\.put`, Cause: `syscall`, Site: `dat?async`, OwnSite: `bench\.(put|BenchmarkPut)`, Code: "WL2007", CountWithin: 0.1, P50Within: 0.15, P99Within: 0.2},
	},
	{
		name: "quota-pool", program: "quotes", fault: "slots", description: "a semaphore of eight places on a quota of half a CPU uses the quota up before half of the period is over", quota: 0.5, seconds: 2,
		loads: []loadStream{{kind: "GET /quote", rate: 100, path: "/quote"}},
		truth: testprog.FieldTruth{Group: `quote|HTTP/. handlers`, Cause: `throttle`, Code: "WL4001", SkipReason: fastRequestsUnseen},
	},
}

var groups atomic.Int64

// newGroup is a request of a subscriber that was not there before.
func newGroup(ctx context.Context, s *server) error {
	return sendHTTP(ctx, http.DefaultClient, "GET", fmt.Sprintf("http://127.0.0.1:%s/sub?group=reader%d", s.ports[0], groups.Add(1)), "")
}
