package finding

import (
	"strings"

	"github.com/whylate/whylate/report"
)

// A library is a well-known pool or client, and advice in the terms of its options, because a user cannot change its
// lines. An empty advice means that the rule's own advice applies. Names and defaults follow from the sources of the
// versions given.
type library struct {
	prefixes    []string // of functions
	name        string
	poolAdvice  string // how to enlarge its pool
	peerAdvice  string // how to shorten waits for its peer
	pauseAdvice string // which options set its intended pauses
}

// A stdPool is a pool of the standard library, with advice for its user.
type stdPool struct {
	slotName, sizeAdvice string
	neverOpens           bool   // requests wait there only for a slot, and never open a connection
	reuseAdvice          string // how to keep connections open
	unusedAdvice         string // what to check if slots are held without use
	leakAdvice           string // what to check if no slot is released
}

// stdPools are keyed by the function in which a request waits for a slot.
var stdPools = map[string]stdPool{
	"database/sql.(*DB).conn": {
		slotName: "a connection of a database/sql pool", sizeAdvice: "raise SetMaxOpenConns (and SetMaxIdleConns with it)", neverOpens: true,
		reuseAdvice:  "raise SetMaxIdleConns (2 unless set)",
		unusedAdvice: "if the limit is higher already (DB.Stats), connections are held without being used: close each Rows, Tx and Conn",
		leakAdvice:   "find what keeps the pool's connections: rows that are not closed, transactions that are not ended, queries without a deadline; give each query the request's context",
	},
	"net/http.(*Transport).getConn": {slotName: "a connection of an http.Transport", sizeAdvice: "raise MaxConnsPerHost (and MaxIdleConnsPerHost with it)", reuseAdvice: httpReuseAdvice},
}

const httpReuseAdvice = "read answers to their end, and raise MaxIdleConnsPerHost (2 unless set)"

// isStdPool reports whether a call waits for a slot of a pool of the standard library.
func isStdPool(call string) bool { return stdPools[call].slotName != "" }

// libraries are searched in order: a library comes before those that it uses.
var libraries = []library{
	{ // v5.11
		prefixes: []string{"github.com/jackc/pgx/v5", "github.com/jackc/pgx/v4"},
		name:     "pgx", poolAdvice: "raise MaxConns of pgxpool's Config (pool_max_conns in its URL; the number of CPUs, or 4, unless set)",
		peerAdvice: "send several statements at once (SendBatch), ask for less, or check how the server runs it (EXPLAIN ANALYZE)",
	},
	{ // v9.22
		prefixes: []string{"github.com/redis/go-redis", "github.com/go-redis/redis"},
		name:     "go-redis", poolAdvice: "raise PoolSize of redis.Options (10 for each P unless set)",
		peerAdvice: "send several commands at once (Pipelined, MGet), or check what the server is slow at (SLOWLOG)",
	},
	{ // of Go 1.22 to 1.26
		prefixes: []string{"database/sql."},
		name:     "database/sql", poolAdvice: "raise SetMaxOpenConns (and SetMaxIdleConns with it)",
		peerAdvice: "ask for several things in one statement, or check how the server runs it (EXPLAIN)",
	},
	{ // v1.45
		prefixes: []string{"github.com/IBM/sarama", "github.com/Shopify/sarama"},
		name:     "sarama", peerAdvice: "allow more requests at once (Net.MaxOpenRequests) and batch more (Producer.Flush), or check what the broker waits for (Producer.RequiredAcks; Consumer.MaxWaitTime, 500 ms unless set)",
		pauseAdvice: "check its Config: Producer.Flush.Frequency, Consumer.MaxWaitTime (500 ms unless set), and the back-offs Producer.Retry, Metadata.Retry, Consumer.Retry (100 ms, 250 ms, 2 s unless set), which mean that something fails",
	},
	{ // v1.22
		prefixes: []string{"github.com/twmb/franz-go"},
		name:     "franz-go", peerAdvice: "allow more requests at once (MaxProduceRequestsInflightPerBroker), or check what the broker waits for (RequiredAcks; FetchMaxWait, 5 s unless set)",
		pauseAdvice: "check its options: ProducerLinger (10 ms unless set), FetchMaxWait (5 s), and RetryBackoffFn, whose waits mean that something fails",
	},
	{ // v1.85
		prefixes: []string{"google.golang.org/grpc"},
		name:     "gRPC", poolAdvice: "calls of one ClientConn share one connection, and the server limits how many of them run (MaxConcurrentStreams): use several ClientConns, or raise that limit",
		peerAdvice:  "ask for several things in one call, or in parallel, and limit its time (a deadline in its context); the server takes the time: record it there as well",
		pauseAdvice: "check what it waits for: a second try of a call that failed (retryPolicy of its service config has the back-off; find out why it fails), a connection that cannot be opened (WithConnectParams has its back-off), or a keepalive",
	},
	{
		prefixes: []string{"net/http.(*Client).", "net/http.(*Transport).", "net/http.(*persistConn)."},
		name:     "net/http", poolAdvice: "raise MaxConnsPerHost of the Transport (and MaxIdleConnsPerHost with it; 2 unless set)",
	},
}

// libraryAt returns the library that contains a site or that its caller called; nil if none is known.
func libraryAt(sites ...*report.Site) *library {
	for i := range libraries {
		for _, p := range libraries[i].prefixes {
			for _, s := range sites {
				if s != nil && (strings.HasPrefix(s.Func, p) || s.CalledFrom != nil && strings.HasPrefix(s.CalledFrom.Calls, p)) {
					return &libraries[i]
				}
			}
		}
	}
	return nil
}

// libraryOfRoute returns the library in which a route waits; nil if none is known.
func libraryOfRoute(p *causeRoute) *library {
	sites := []*report.Site{p.Site}
	for i := range p.via {
		sites = append(sites, p.via[i].Site)
	}
	return libraryAt(sites...)
}
