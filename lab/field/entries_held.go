package main

import (
	"net/http"

	"github.com/whylate/whylate/internal/experiment/load"
	"github.com/whylate/whylate/internal/testing/testprog"
)

// heldShop is a shop of lab/field/programs/shops/held.
func heldShop(name, module, version string, more func(p *program)) program {
	p := shop(name, module, version, more)
	p.dir = "shops/held/" + name
	return p
}

func init() {
	programs = append(programs, heldShops...)
	entries = append(entries, fromHeld...)
}

var heldShops = []program{
	heldShop("till", "github.com/valyala/fasthttp", "v1.77.0", withPeer),
	heldShop("ledger", "go.etcd.io/bbolt", "v1.4.3", withPeer),
	heldShop("events", "github.com/dgraph-io/badger/v4", "v4.9.6", nil),
	heldShop("quoter", "connectrpc.com/connect", "v1.21.1", withPeer),
	heldShop("fetcher", "github.com/hashicorp/go-retryablehttp", "v0.7.8", withPeer),
	heldShop("memo", "net", "go1.26", nil),
	heldShop("export", "encoding/json", "go1.26", nil),
	heldShop("crew", "github.com/panjf2000/ants/v2", "v2.12.1", withPeer),
}

// fromHeld were held out until a rule was mended by them.
var fromHeld = []entry{
	{
		name: "fasthttp-lock", program: "till", fault: "lock", about: "a mutex is held while a bank is asked, which takes 6 ms", seconds: 2,
		loads: []stream{{kind: "GET /pay", rate: 110, get: "/pay"}},
		truth: testprog.FieldTruth{Group: `fasthttp|till`, Cause: `network`, Site: `fasthttp|main\.\(\*till\)`, Own: `main\.\(\*till\)\.(ask|pay|handle)`, Code: "WL2002", CountWithin: 0.1, P50Within: 0.15, WhyNot: few},
	},
	{
		name: "cache-sweep", program: "memo", fault: "sweep", about: "a cache that speaks a text protocol is locked for 15 ms every 60 ms, while what is old is written to somewhere", seconds: 2,
		loads: []stream{{kind: "command", child: clients}},
		truth: testprog.FieldTruth{Group: `memo|main`, Cause: `sleep`, Site: `main\.(spill|\(\*memo\)\.sweep)`, Own: `main\.(spill|\(\*memo\)\.(sweep|get|set))`, Code: "WL2002", CountWithin: 0.1, P99Within: 0.15},
	},
	{
		name: "ants-few", program: "crew", fault: "few", about: "a pool of ants has two workers for all requests, each of which asks another service, which takes 8 ms",
		loads: []stream{{kind: "GET /work", rate: 180, get: "/work"}},
		truth: testprog.FieldTruth{Group: `crew`, Cause: `network`, Site: `net/http|ants|main\.\(\*crew\)`, Own: `main\.\(\*crew\)\.(work|ServeHTTP)`, Code: "WL2003", CountWithin: 0.1, P50Within: 0.15, P99Within: 0.15},
	},
}

// heldEntries are held out: programs around libraries that the corpus does not have. Their truths were written before any
// answer was looked at, and stay as they are; no rule is made, tuned or tested with their recordings, which are not kept. A
// program that a rule was made for moves to the corpus, and another takes its place.
var heldEntries = []entry{
	{
		name: "fasthttp-healthy", program: "till", about: "a bank is asked, which answers at once",
		loads: []stream{{kind: "GET /pay", rate: 150, get: "/pay"}},
		truth: testprog.FieldTruth{Group: `fasthttp|till`, CountWithin: 0.1, WhyNot: loopback},
	},
	{
		name: "bbolt-held", program: "ledger", fault: "held", about: "bbolt's one read-write transaction is held while another service is asked, which takes 7 ms", seconds: 2,
		loads: []stream{{kind: "GET /order/7", rate: 95, get: "/order/7"}},
		truth: testprog.FieldTruth{Group: `ledger`, Cause: `network`, Site: `net/http|main\.\(\*ledger\)`, Own: `main\.\(\*ledger\)\.(number|book|order)`, Code: "WL2002", CountWithin: 0.1, P50Within: 0.1, WhyNot: few},
	},
	{
		name: "badger-sync", program: "events", fault: "sync", about: "every write of badger waits for the disk (SyncWrites)", seconds: 2,
		loads: []stream{{kind: "GET /event", rate: 60, get: "/event"}},
		truth: testprog.FieldTruth{Group: `events`, Cause: `syscall`, Site: `[sS]ync`, Own: `main\.\(\*events\)`, Code: "WL2007", CountWithin: 0.1, WhyNot: loopback},
	},
	{
		name: "badger-healthy", program: "events", about: "a write and a read of badger a request, none of which waits for the disk",
		loads: []stream{{kind: "GET /event", rate: 120, get: "/event"}},
		truth: testprog.FieldTruth{Group: `events`, CountWithin: 0.1, WhyNot: loopback},
	},
	{
		name: "connect-limit", program: "quoter", fault: "limit", about: "an errgroup with a limit of one asks another service six times, one after the other, 3 ms each", seconds: 2,
		loads: []stream{{kind: "POST Quote", rate: 60, targets: func(s *server) []load.Target {
			return []load.Target{{URL: "http://127.0.0.1:" + s.ports[0] + "/shop.v1.Quotes/Quote", Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(`"basket"`)}}
		}}},
		truth: testprog.FieldTruth{Group: `quote`, Cause: `network`, Site: `net/http|main\.\(\*quoter\)`, Own: `main\.\(\*quoter\)\.(price|quote)`, Code: "WL2003|WL2005", CountWithin: 0.1, P50Within: 0.1, WhyNot: few},
	},
	{
		name: "retry-unavailable", program: "fetcher", fault: "unavailable", about: "another service answers two of three requests with 503, and go-retryablehttp waits 20 ms and 40 ms before it asks again", seconds: 2,
		loads: []stream{{kind: "GET /stock", rate: 80, get: "/stock"}},
		truth: testprog.FieldTruth{Group: `fetcher`, Cause: `sleep`, Site: `retryablehttp|main\.\(\*fetcher\)`, Own: `main\.\(\*fetcher\)\.(fetch|ServeHTTP)`, Code: "WL2001", CountWithin: 0.1, P50Within: 0.1, WhyNot: few},
	},
	{
		name: "json-gogc", program: "export", fault: "gogc", about: "long lists in JSON, of a service that holds much, with GOGC=10: the collector runs nearly always", env: []string{"GOGC=10"}, seconds: 2,
		loads: []stream{{kind: "GET /list", rate: 50, get: "/list"}},
		truth: testprog.FieldTruth{Group: `list`, Code: "WL3001|WL3002|WL3004", CountWithin: 0.1, P50Within: 0.2, WhyNot: few},
	},
}
