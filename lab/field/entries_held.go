package main

import (
	"fmt"
	"net/http"

	"github.com/whylate/whylate/internal/experiment/load"
	"github.com/whylate/whylate/internal/testing/testprog"
)

// heldOutShop is a program of lab/field/programs/shops/held.
func heldOutShop(name, module, version string, configure func(p *program)) program {
	p := shopProgram(name, module, version, configure)
	p.dir = "lab/field/programs/shops/held/" + name
	return p
}

func init() {
	programs = append(programs, heldOutShops...)
	entries = append(entries, formerlyHeldOut...)
}

var heldOutShops = []program{
	heldOutShop("till", "github.com/valyala/fasthttp", "v1.77.0", withPeer),
	heldOutShop("ledger", "go.etcd.io/bbolt", "v1.4.3", withPeer),
	heldOutShop("events", "github.com/dgraph-io/badger/v4", "v4.9.6", nil),
	heldOutShop("quoter", "connectrpc.com/connect", "v1.21.1", withPeer),
	heldOutShop("fetcher", "github.com/hashicorp/go-retryablehttp", "v0.7.8", withPeer),
	heldOutShop("memo", "net", "go1.26", nil),
	heldOutShop("export", "encoding/json", "go1.26", nil),
	heldOutShop("crew", "github.com/panjf2000/ants/v2", "v2.12.1", withPeer),
	heldOutShop("register", "modernc.org/sqlite", "v1.61.1", withPeer),
	heldOutShop("screener", "github.com/julienschmidt/httprouter", "v1.3.0", nil),
	heldOutShop("thumbs", "os/exec", "go1.26", withPeer),
	heldOutShop("signup", "net", "go1.26", withPeer),
	heldOutShop("mailroom", "github.com/go-resty/resty/v2", "v2.17.2", withPeer),
	heldOutShop("directory", "github.com/google/btree", "v1.1.3", nil),
	heldOutShop("gate", "github.com/sirupsen/logrus", "v1.10.2", nil),
	heldOutShop("shelf", "github.com/hashicorp/golang-lru/v2", "v2.0.7", nil),
	heldOutShop("archive", "github.com/klauspost/compress", "v1.20.3", withPeer),
	heldOutShop("booking", "github.com/go-redsync/redsync/v4", "v4.18.1", func(p *program) { p.backend, p.peer = startRedis, true }),
	heldOutShop("broker", "github.com/mochi-mqtt/server/v2", "v2.7.9", withPeer),
	heldOutShop("front", "github.com/gofiber/fiber/v3", "v3.1.0", withPeer),
}

// formerlyHeldOut were held out until a rule was fixed with their help.
var formerlyHeldOut = []entry{
	{
		name: "fasthttp-lock", program: "till", fault: "lock", description: "a mutex is held while a bank is asked, which takes 6 ms", seconds: 2,
		loads: []loadStream{{kind: "GET /pay", rate: 110, path: "/pay"}},
		truth: testprog.FieldTruth{Group: `fasthttp|till`, Cause: `network`, Site: `fasthttp|main\.\(\*till\)`, OwnSite: `main\.\(\*till\)\.(ask|pay|handle)`, Code: "WL2002", CountWithin: 0.1, P50Within: 0.15, SkipReason: tooFewForP99},
	},
	{
		name: "connect-parallel", program: "quoter", description: "another service is asked six times at once, and takes 20 ms for each",
		loads: []loadStream{{kind: "POST Quote", rate: 25, targets: func(s *server) []load.Target {
			return []load.Target{{URL: "http://127.0.0.1:" + s.ports[0] + "/shop.v1.Quotes/Quote", Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(`"far"`)}}
		}}},
		truth: testprog.FieldTruth{Group: `quote`, ForbiddenText: `in parallel; or`, CountWithin: 0.1, SkipReason: tooFewForP99},
	},
	{
		name: "fasthttp-calls", program: "till", fault: "calls", description: "a bank is called eighteen times by net/rpc for each request, one call after the other",
		loads: []loadStream{{kind: "GET /pay", rate: 25, path: "/pay"}},
		truth: testprog.FieldTruth{Group: `till`, Cause: `network`, Site: `net/rpc|main\.\(\*till\)`, OwnSite: `main\.\(\*till\)\.booked`, Code: "WL2005", RequiredText: `one after the other`, CountWithin: 0.1, SkipReason: tooFewForP99},
	},
	{
		name: "fasthttp-places", program: "till", fault: "places", description: "two connections to a bank, which takes 6 ms, for all requests",
		loads: []loadStream{{kind: "GET /pay", rate: 200, path: "/pay"}},
		truth: testprog.FieldTruth{Group: `till`, Cause: `network`, Site: `fasthttp|main\.\(\*till\)`, OwnSite: `main\.\(\*till\)\.ask`, Code: "WL2003", CountWithin: 0.1, SkipReason: tooFewForP99},
	},
	{
		name: "cache-sweep", program: "memo", fault: "sweep", description: "a cache that speaks a text protocol is locked for 15 ms every 60 ms, while what is old is written to somewhere", seconds: 2,
		loads: []loadStream{{kind: "command", childArgs: clientArgs}},
		truth: testprog.FieldTruth{Group: `memo|main`, Cause: `sleep`, Site: `main\.(spill|\(\*memo\)\.sweep)`, OwnSite: `main\.(spill|\(\*memo\)\.(sweep|get|set))`, Code: "WL2002", CountWithin: 0.1, P99Within: 0.15},
	},
	{
		name: "ants-few", program: "crew", fault: "few", description: "a pool of ants has two workers for all requests, each of which asks another service, which takes 8 ms",
		loads: []loadStream{{kind: "GET /work", rate: 180, path: "/work"}},
		truth: testprog.FieldTruth{Group: `crew`, Cause: `network`, Site: `net/http|ants|main\.\(\*crew\)`, OwnSite: `main\.\(\*crew\)\.(work|ServeHTTP)`, Code: "WL2003", CountWithin: 0.1, P50Within: 0.15, P99Within: 0.15},
	},
	{
		name: "zstd-pack", program: "archive", fault: "pack", description: "three goroutines compress by zstd beside the requests, on two CPUs", seconds: 2,
		loads: []loadStream{{kind: "GET /document", rate: 60, path: "/document?id=7"}},
		truth: testprog.FieldTruth{Group: `archive`, Cause: `sched|sched-poll`, OwnSite: `main\.\(\*archive\)|main\.pack`, Code: "WL1002|WL1007", CountWithin: 0.1, P50Within: 0.15, SkipReason: tooFewForP99},
	},
}

// comment is the path of a request to the screener.
const comment = "/screen/a_very_nice_comment_about_cheap_things_that_i_bought_here_last_week_and_like"

// seats are requests for forty seats.
func seats(s *server) (all []load.Target) {
	for i := range 40 {
		all = append(all, targetOf(fmt.Sprintf("/book?seat=%d", i))(s)...)
	}
	return all
}

// heldOutEntries are held out: programs with libraries that the corpus does not have. Their truths were written before any
// answer was known and stay unchanged. No rule is written, tuned or tested with their recordings, which are not stored. A
// program that a rule was written for moves to the corpus, and another takes its place.
var heldOutEntries = []entry{
	{
		name: "fasthttp-healthy", program: "till", description: "a bank is asked, which answers at once",
		loads: []loadStream{{kind: "GET /pay", rate: 150, path: "/pay"}},
		truth: testprog.FieldTruth{Group: `fasthttp|till`, CountWithin: 0.1, SkipReason: transportDominates},
	},
	{
		name: "bbolt-held", program: "ledger", fault: "held", description: "bbolt's one read-write transaction is held while another service is asked, which takes 7 ms", seconds: 2,
		loads: []loadStream{{kind: "GET /order/7", rate: 95, path: "/order/7"}},
		truth: testprog.FieldTruth{Group: `ledger`, Cause: `network`, Site: `net/http|main\.\(\*ledger\)`, OwnSite: `main\.\(\*ledger\)\.(number|book|order)`, Code: "WL2002", CountWithin: 0.1, P50Within: 0.1, SkipReason: tooFewForP99},
	},
	{
		name: "badger-sync", program: "events", fault: "sync", description: "every write of badger waits for the disk (SyncWrites)", seconds: 2,
		loads: []loadStream{{kind: "GET /event", rate: 60, path: "/event"}},
		truth: testprog.FieldTruth{Group: `events`, Cause: `syscall`, Site: `[sS]ync`, OwnSite: `main\.\(\*events\)`, Code: "WL2007", CountWithin: 0.1, SkipReason: transportDominates},
	},
	{
		name: "badger-healthy", program: "events", description: "a write and a read of badger a request, none of which waits for the disk",
		loads: []loadStream{{kind: "GET /event", rate: 120, path: "/event"}},
		truth: testprog.FieldTruth{Group: `events`, CountWithin: 0.1, SkipReason: transportDominates},
	},
	{
		name: "connect-limit", program: "quoter", fault: "limit", description: "an errgroup with a limit of one asks another service six times, one after the other, 3 ms each", seconds: 2,
		loads: []loadStream{{kind: "POST Quote", rate: 60, targets: func(s *server) []load.Target {
			return []load.Target{{URL: "http://127.0.0.1:" + s.ports[0] + "/shop.v1.Quotes/Quote", Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(`"basket"`)}}
		}}},
		truth: testprog.FieldTruth{Group: `quote`, Cause: `network`, Site: `net/http|main\.\(\*quoter\)`, OwnSite: `main\.\(\*quoter\)\.(price|quote)`, Code: "WL2003|WL2005", CountWithin: 0.1, P50Within: 0.1, SkipReason: tooFewForP99},
	},
	{
		name: "retry-unavailable", program: "fetcher", fault: "unavailable", description: "another service answers two of three requests with 503, and go-retryablehttp waits 20 ms and 40 ms before it asks again", seconds: 2,
		loads: []loadStream{{kind: "GET /stock", rate: 80, path: "/stock"}},
		truth: testprog.FieldTruth{Group: `fetcher`, Cause: `sleep`, Site: `retryablehttp|main\.\(\*fetcher\)`, OwnSite: `main\.\(\*fetcher\)\.(fetch|ServeHTTP)`, Code: "WL2001", CountWithin: 0.1, P50Within: 0.1, SkipReason: tooFewForP99},
	},
	{
		name: "json-gogc", program: "export", fault: "gogc", description: "long lists in JSON, of a service that holds much, with GOGC=10: the collector runs nearly always", env: []string{"GOGC=10"}, seconds: 2,
		loads: []loadStream{{kind: "GET /list", rate: 50, path: "/list"}},
		truth: testprog.FieldTruth{Group: `list`, Code: "WL3001|WL3002|WL3004", CountWithin: 0.1, P50Within: 0.2, SkipReason: tooFewForP99},
	},
	{
		name: "sqlite-held", program: "register", fault: "held", description: "SQLite has one connection, whose transaction is open while another service is asked, which takes 6 ms", seconds: 2,
		loads: []loadStream{{kind: "GET /sell", rate: 100, path: "/sell?item=pen"}},
		truth: testprog.FieldTruth{Group: `register`, Cause: `network`, Site: `net/http|main\.\(\*register\)`, OwnSite: `main\.\(\*register\)\.(tax|sell)`, Code: "WL2003", CountWithin: 0.1, P50Within: 0.15, P99Within: 0.15},
	},
	{
		name: "regexp-compile", program: "screener", fault: "compile", description: "60 regular expressions are compiled anew for each request", seconds: 2,
		loads: []loadStream{{kind: "GET /screen", rate: 40, path: comment}},
		truth: testprog.FieldTruth{Group: `screen`, Cause: `cpu`, Site: `regexp|main\.\(\*screener\)`, OwnSite: `main\.\(\*screener\)\.(bad|screen)`, Code: "WL1008", CountWithin: 0.1, P50Within: 0.15, SkipReason: tooFewForP99},
	},
	{
		name: "httprouter-healthy", program: "screener", description: "60 regular expressions are matched, which were compiled once", seconds: 2,
		loads: []loadStream{{kind: "GET /screen", rate: 40, path: comment}},
		truth: testprog.FieldTruth{SkipReason: fastRequestsUnseen},
	},
	{
		name: "exec-child", program: "thumbs", fault: "exec", description: "a program is started for each request, and takes 10 ms", seconds: 2,
		loads: []loadStream{{kind: "GET /thumb", rate: 60, path: "/thumb?picture=a"}},
		// The handler waits for the child in the kernel; another goroutine reads the child's output from a pipe.
		truth: testprog.FieldTruth{Group: `thumbs`, Cause: `syscall`, Site: `os/exec|os\.|syscall|main\.\(\*thumbs\)`, OwnSite: `main\.\(\*thumbs\)\.(shrink|ServeHTTP)`, Code: "WL2007", CountWithin: 0.1, P50Within: 0.15, SkipReason: tooFewForP99},
	},
	{
		name: "resolver-slow", program: "signup", fault: "slow", description: "who takes mail for a name is asked of a DNS server for each request, which takes 9 ms", seconds: 2,
		loads: []loadStream{{kind: "GET /signup", rate: 120, path: "/signup?mail=a@b.example"}},
		truth: testprog.FieldTruth{Group: `signup`, Cause: `network`, Site: `net\.|main\.\(\*signup\)`, OwnSite: `main\.\(\*signup\)\.(check|ServeHTTP)`, Code: "WL2005", CountWithin: 0.1, P50Within: 0.1, SkipReason: tooFewForP99},
	},
	{
		name: "workers-few", program: "mailroom", fault: "few", description: "two workers take all requests from a channel, and ask another service for each, which takes 8 ms", seconds: 2,
		loads: []loadStream{{kind: "GET /letter", rate: 180, path: "/letter?to=a"}},
		truth: testprog.FieldTruth{Group: `mailroom`, Cause: `network`, Site: `net/http|resty|main\.\(\*mailroom\)`, OwnSite: `main\.\(\*mailroom\)\.(send|work|ServeHTTP)`, Code: "WL2003", CountWithin: 0.1, P50Within: 0.15, P99Within: 0.15},
	},
	{
		name: "btree-reload", program: "directory", fault: "reload", description: "readers of a tree are locked out while it is built anew, for some 20 ms every 120 ms", seconds: 2,
		loads: []loadStream{{kind: "GET /find", rate: 150, path: "/find?name=person+77"}},
		truth: testprog.FieldTruth{Group: `find`, Cause: `cpu`, Site: `btree|main\.`, OwnSite: `main\.(build|\(\*directory\)\.reload)`, Code: "WL2002", P99Within: 0.15, SkipReason: fastRequestsUnseen},
	},
	{
		name: "logrus-sync", program: "gate", fault: "sync", description: "logrus writes four lines for each request to a file that is opened with O_SYNC, under the logger's lock", seconds: 2,
		loads: []loadStream{{kind: "GET /enter", rate: 150, path: "/enter?who=a"}},
		truth: testprog.FieldTruth{Group: `gate`, Cause: `syscall`, Site: `logrus|os\.|syscall|main\.\(\*gate\)`, OwnSite: `main\.\(\*gate\)\.ServeHTTP`, Code: "WL2007|WL2002", CountWithin: 0.1, SkipReason: transportDominates},
	},
	{
		name: "memlimit-cache", program: "shelf", fault: "memlimit", description: "a cache that is full holds nearly as much as GOMEMLIMIT allows: the collector runs nearly always", env: []string{"GOMEMLIMIT=83MiB"}, seconds: 2,
		loads: []loadStream{{kind: "GET /books", rate: 50, path: "/books"}},
		truth: testprog.FieldTruth{Group: `books10`, Cause: `gc-assist|gc-wait|stw|sched.*|cpu`, Code: "WL3001|WL3002|WL3004", CountWithin: 0.1, P50Within: 0.2, SkipReason: tooFewForP99},
	},
	{
		name: "redsync-one", program: "booking", fault: "one", description: "one lock in Redis for all requests, tried again after 15 ms, is held while another service is asked, which takes 5 ms", seconds: 2,
		loads: []loadStream{{kind: "GET /book", rate: 50, targets: seats}},
		truth: testprog.FieldTruth{Group: `booking`, Cause: `sleep`, Site: `redsync|main\.\(\*booking\)`, OwnSite: `main\.\(\*booking\)\.(book|ServeHTTP)`, Code: "WL2001|WL2002|WL2003", CountWithin: 0.1, SkipReason: tooFewForP99},
	},
	{
		name: "mqtt-ask", program: "broker", fault: "ask", description: "a broker of MQTT asks another service for each message, which takes 6 ms, whether it may be sent", seconds: 2,
		loads: []loadStream{{kind: "publish", childArgs: clientArgs}},
		truth: testprog.FieldTruth{Group: `mqtt|main|guard`, Cause: `network`, Site: `net/http|main\.\(\*guard\)`, OwnSite: `main\.\(\*guard\)\.(ask|OnACLCheck)`, Code: "WL2005", CountWithin: 0.1, P50Within: 0.15, SkipReason: tooFewForP99},
	},
	{
		name: "mqtt-healthy", program: "broker", description: "a broker of MQTT has its map say whether a message may be sent", seconds: 2,
		loads: []loadStream{{kind: "publish", childArgs: clientArgs}},
		truth: testprog.FieldTruth{SkipReason: transportDominates},
	},
	{
		name: "fiber-healthy", program: "front", description: "another service is asked behind fiber, which answers at once", seconds: 2,
		loads: []loadStream{{kind: "GET /basket", rate: 120, path: "/basket/me"}},
		truth: testprog.FieldTruth{Group: `front|fiber|basket|fasthttp`, CountWithin: 0.1, SkipReason: transportDominates},
	},
}
