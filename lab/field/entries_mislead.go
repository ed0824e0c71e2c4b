package main

import (
	"time"

	"github.com/whylate/whylate/internal/testing/testprog"
)

// misleadingProgram is a program of lab/field/programs/shops/mislead: a small service whose times fit a wrong answer.
func misleadingProgram(name string, configure func(p *program)) program {
	p := shopProgram(name, "net/http", "go1.26", configure)
	p.dir = "lab/field/programs/shops/mislead/" + name
	return p
}

func init() {
	programs = append(programs,
		misleadingProgram("storefront", withPeer), misleadingProgram("indexer", withPeer), misleadingProgram("intake", withPeer), misleadingProgram("drainer", nil), misleadingProgram("news", withPeer), misleadingProgram("lobby", nil),
		misleadingProgram("teller", withPeer), misleadingProgram("press", nil), misleadingProgram("hasher", func(p *program) { p.cgo = true }), misleadingProgram("gatekeep", nil),
		misleadingProgram("flagwait", withPeer), misleadingProgram("vault", withPeer), misleadingProgram("frames", nil), misleadingProgram("courier", withPeer), misleadingProgram("tape", nil), misleadingProgram("kitchen", withPeer))
	entries = append(entries, append(misleadingEntries, tickerEntries...)...)
	heldOutEntries = append(heldOutEntries, heldOutMisleading...)
}

// samePeerText matches a report that takes a peer for this process.
const samePeerText = `this process's own|over the network for`

// misleadingEntries were held out while others wrote the rules for them, and have been part of the corpus since.
var misleadingEntries = []entry{
	{
		name: "long-poll", program: "news", description: "readers wait for news, which come every 250 to 650 ms, or for 900 ms, or until they hang up", seconds: 3,
		loads: []loadStream{{kind: "GET /read", closedClients: 18, path: "/read"}},
		truth: testprog.FieldTruth{},
	},
	{
		name: "consumer-idle", program: "intake", description: "a consumer asks a broker for the next messages, which come every 40 ms, and handles each in less than a millisecond", seconds: 2,
		loads: []loadStream{{kind: "message handled", servesSamples: true}},
		truth: testprog.FieldTruth{ForbiddenText: `(spent|wait).*(take|loop).*(main\.go)?.*peer's answer`, SkipReason: roundTripMeasured},
	},
	{
		name: "long-poll-lines", program: "lobby", description: "twenty clients of a protocol of lines wait for what somebody says, or for 700 ms", seconds: 3,
		loads: []loadStream{{kind: "say", childArgs: clientArgs}},
		truth: testprog.FieldTruth{},
	},
	{
		name: "hang-peer", program: "vault", fault: "peer", description: "five requests wait for a process that never answers, for the whole trace", seconds: 2,
		loads: []loadStream{{kind: "GET /time", rate: 30, path: "/time"}, {kind: "GET /open", closedClients: 5, path: "/open"}},
		truth: testprog.FieldTruth{Code: "WL2009", Finding: `wire|net\.|bufio|main\.\(\*vault\)\.open`, Loud: true},
	},
	{
		name: "c-computes", program: "hasher", fault: "c", description: "each request computes for some milliseconds in C", seconds: 2,
		loads: []loadStream{{kind: "GET /digest", rate: 30, path: "/digest"}},
		truth: testprog.FieldTruth{Group: `digest`, Cause: `syscall|cpu`, OwnSite: `main\.(digest|_Cfunc_stir)`, Code: "WL2007|WL1008", RequiredText: `\bC\b( code)?`, ForbiddenText: `in the kernel`, CountWithin: 0.1, P50Within: 0.15, SkipReason: tooFewForP99},
	},
}

// tickerEntries are of kinds that ten new programs showed: batch-interval and workers-healthy are the two variants of one
// program.
var tickerEntries = []entry{
	{
		name: "long-poll-ticker", program: "tape", description: "readers wait for news, their client or 2 s; a ticker brings some every 325 ms", seconds: 2,
		loads: []loadStream{{kind: "GET /next", rate: 20, path: "/next"}},
		truth: testprog.FieldTruth{},
	},
	{
		name: "sse-ticker", program: "tape", description: "streams of server-sent events, whose parts a ticker brings every 65 ms through a hub", seconds: 2,
		loads: []loadStream{{kind: "GET /follow", rate: 15, path: "/follow"}},
		truth: testprog.FieldTruth{},
	},
	{
		name: "cooks-few", program: "kitchen", fault: "few", description: "two workers take from a list under a sync.Cond and ask another service by HTTP, which takes 9 ms", seconds: 1,
		loads: []loadStream{{kind: "GET /order", rate: 190, path: "/order"}},
		truth: testprog.FieldTruth{Group: `main\.`, Cause: `network`, Site: `net/http|main\.\(\*kitchen\)`, OwnSite: `main\.\(\*kitchen\)\.heat`, Code: "WL2003", RequiredText: `[qQ]ueue`, AllowedTexts: []string{`WL2005 .*heat`}, CountWithin: 0.1, P50Within: 0.15, SkipReason: tooFewForP99},
	},
}

// heldOutMisleading are held out like heldOutEntries: their truths were written before any answer was known.
var heldOutMisleading = []entry{
	{
		name: "page-two-routes", program: "storefront", fault: "both", description: "a page asks for two routes at once, and each asks a store in another process, which takes 17 ms", seconds: 2,
		loads: []loadStream{{kind: "page", childArgs: clientArgs}},
		truth: testprog.FieldTruth{Group: `quote`, Cause: `network`, Site: `wire|bufio|net\.|main\.\(\*storefront\)`, OwnSite: `wire\.|main\.\(\*storefront\)\.quote`, Code: "WL2005", AllowedTexts: []string{`WL2005 .*(currency|wire)`}, ForbiddenText: samePeerText, MinP50: 0, SkipReason: roundTripMeasured},
	},
	{
		name: "page-self-call", program: "storefront", fault: "self", description: "the quote asks the process's own rates over the network, which sleep for 14 ms", seconds: 2,
		loads: []loadStream{{kind: "GET /quote", childArgs: clientArgs}},
		truth: testprog.FieldTruth{Group: `quote`, Cause: `sleep`, Site: `main\.\(\*storefront\)\.currency`, OwnSite: `main\.\(\*storefront\)\.currency`, Code: "WL2001", CountWithin: 0.1, P50Within: 0.15, SkipReason: tooFewForP99},
	},
	{
		name: "call-beside", program: "indexer", fault: "slow", description: "a search asks a catalogue by UDP, 19 ms, while a goroutine that it does not wait for asks the process's own /warm, 16 ms", seconds: 2,
		loads: []loadStream{{kind: "GET /search", rate: 35, path: "/search?q=a"}},
		truth: testprog.FieldTruth{Group: `main\.search`, Cause: `network`, Site: `net\.|main\.search`, OwnSite: `main\.search`, Code: "WL2005", AllowedTexts: []string{`WL2001 main\.warm`}, ForbiddenText: samePeerText, MinP50: 0, CountWithin: 0.1, P50Within: 0.15, SkipReason: tooFewForP99},
	},
	{
		name: "paced-worker", program: "drainer", description: "a worker keeps a pace, and nobody waits for it", seconds: 2,
		loads: []loadStream{{kind: "GET /job", rate: 50, path: "/job"}},
		truth: testprog.FieldTruth{SkipReason: transportDominates},
	},
	{
		name: "resting-worker", program: "drainer", fault: "sleep", description: "the one worker rests for 7 ms after each job, and requests wait for their job", seconds: 2,
		loads: []loadStream{{kind: "GET /job", rate: 110, path: "/job"}},
		truth: testprog.FieldTruth{Group: `enqueue`, Cause: `sleep`, Site: `main\.\(\*drainer\)\.rest`, OwnSite: `main\.\(\*drainer\)\.rest`, Code: "WL2001|WL2003", CountWithin: 0.1, P50Within: 0.2, P99Within: 0.2},
	},
	{
		name: "batch-interval", program: "news", fault: "batch", description: "what writers hand in is kept every 35 ms, all together", seconds: 2,
		loads: []loadStream{{kind: "GET /write", rate: 110, path: "/write"}},
		truth: testprog.FieldTruth{Group: `write`, Cause: `sleep`, Site: `main\.\(\*news\)\.flush`, OwnSite: `main\.\(\*news\)\.flush`, Code: "WL2004|WL2001", CountWithin: 0.1, P50Within: 0.15, P99Within: 0.2},
	},
	{
		name: "stopped", program: "teller", fault: "stopped", description: "the process is stopped by a signal for 130 ms each 600 ms, three or four times", seconds: 3, stopFor: 130 * time.Millisecond, stopEvery: 470 * time.Millisecond,
		loads: []loadStream{{kind: "GET /balance", rate: 80, path: "/balance"}},
		truth: testprog.FieldTruth{Code: `WL4\d+`, RequiredText: `stopped|did not run|not running|stood still`, Loud: true},
	},
	{
		name: "idle-bursts", program: "teller", description: "nothing comes for some 460 ms, then twelve requests at once, whose answers take a millisecond", seconds: 3,
		loads: []loadStream{{kind: "burst", childArgs: clientArgs}},
		truth: testprog.FieldTruth{ForbiddenText: `process (was )?stopped|did not run`},
	},
	{
		name: "quota-workers", program: "press", fault: "quota", description: "a quota of 0.3 CPUs is used up by four workers that compute", seconds: 3, quota: 0.3,
		loads: []loadStream{{kind: "GET /", closedClients: 6, path: "/"}},
		truth: testprog.FieldTruth{Group: `show`, Cause: `throttle`, Code: "WL4001", AllowedTexts: []string{`WL4002`, `WL1002 main\.(ink|work)`}, CountWithin: 0.15, P50Within: 0.25, SkipReason: tooFewForP99},
	},
	{
		name: "workers-healthy", program: "press", description: "four workers compute for a few milliseconds each, on less than a quarter of the CPUs", seconds: 3,
		loads: []loadStream{{kind: "GET /", rate: 35, path: "/"}},
		truth: testprog.FieldTruth{AllowedTexts: []string{`WL1009`}},
	},
	{
		name: "rate-ticker", program: "gatekeep", fault: "limit", description: "visitors wait for a ticket, of which a ticker makes ninety a second, as the owner wants", seconds: 2,
		loads: []loadStream{{kind: "GET /enter", closedClients: 16, path: "/enter"}},
		truth: testprog.FieldTruth{Group: `enter`, Cause: `sleep`, Site: `main\.\(\*gate\)`, OwnSite: `main\.\(\*gate\)`, Code: "WL2001|WL2003|WL2004", ForbiddenText: `more goroutines|as soon as nobody`, CountWithin: 0.1, P50Within: 0.15, SkipReason: tooFewForP99},
	},
	{
		name: "polled-flag", program: "flagwait", fault: "slow", description: "a request looks every 2 ms whether an answer of another process has come, which takes 50 ms", seconds: 2,
		loads: []loadStream{{kind: "GET /scan", rate: 30, path: "/scan"}},
		truth: testprog.FieldTruth{Group: `scan`, Cause: `sleep|network`, Site: `wire|net\.|bufio|main\.\(\*scanner\)`, OwnSite: `wire\.|main\.\(\*scanner\)`, Code: "WL2001|WL2005", MinP50: 45 * time.Millisecond, CountWithin: 0.1, P50Within: 0.15, SkipReason: tooFewForP99},
	},
	{
		name: "hang-leak", program: "vault", fault: "leak", description: "one request in twenty waits on a channel at one line and is never answered", seconds: 3,
		loads: []loadStream{{kind: "GET /open", rate: 60, path: "/open"}},
		truth: testprog.FieldTruth{Code: "WL2009", Finding: `main\.\(\*vault\)\.turn`, Loud: true},
	},
	{
		name: "hang-lock", program: "vault", fault: "mutex", description: "a goroutine holds a lock, and is stuck on a channel that nobody reads: all requests hang", seconds: 3,
		loads: []loadStream{{kind: "GET /time", rate: 30, path: "/time"}, {kind: "GET /open", rate: 20, path: "/open"}},
		truth: testprog.FieldTruth{Code: "WL2009", Finding: `main\.\(\*vault\)\.(open|audit)`, RequiredText: `main\.\(\*vault\)\.audit`, Loud: true},
	},
	{
		name: "frames", program: "frames", fault: "slow", description: "a protocol of its own: a goroutine for each frame, which sleeps for 9 ms", seconds: 2,
		loads: []loadStream{{kind: "frame", childArgs: clientArgs}},
		truth: testprog.FieldTruth{Group: `session`, Cause: `sleep`, Site: `main\.lookup`, OwnSite: `main\.lookup`, Code: "WL2001", CountWithin: 0.1, P50Within: 0.15, SkipReason: tooFewForP99},
	},
	{
		name: "few-connections", program: "courier", fault: "few", description: "three connections to a process that takes 9 ms for each letter: requests queue for a connection", seconds: 2,
		loads: []loadStream{{kind: "GET /letter", closedClients: 20, path: "/letter"}},
		truth: testprog.FieldTruth{Group: `main`, Cause: `network|chan`, Site: `wire|bufio|net\.|main\.\(\*courier\)`, OwnSite: `wire\.|main\.\(\*courier\)`, Code: "WL2003", RequiredText: `[qQ]ueue`, CountWithin: 0.1, P50Within: 0.15, P99Within: 0.2},
	},
}
