package main

// Programs and modules of the stories.
const (
	pdClient   = "github.com/tikv/pd/client@v0.0.0-20260609141937-b01426f6b08b"
	cluster    = "github.com/bsm/sarama-cluster@v2.1.8"
	franz      = "github.com/twmb/franz-go@v1.22.2"
	netModule  = "net@go1.26"
	goHTTP     = "net/http@go1.26"
	tsoClient  = "stories/tso/client"
	pubsubMain = "stories/pubsub/service"
	checker    = "stories/healthcheck/checker"
	quotes     = "stories/pool/service"
	orders     = "stories/container/service"
)

// armEntries are the stored arms of the stories. A part is as long as its events need and the size allows: a transaction takes
// milliseconds; the market is updated every eight seconds, and the part has the update; ten thousand targets are checked every
// three seconds, and the part has a quiet second and the start of a burst, or the end of one. Two arms are left out for their
// size: the tickers alone, which tso-tickers shows, and the client with its own CPUs.
var armEntries = []armEntry{
	{"pubsub", "before", pubsubMain, cluster, "sarama-cluster sleeps 100 ms and 200 ms before it reads the first message from a real Kafka", "waits", 4, 2},
	{"pubsub", "after", pubsubMain, cluster, "both sleeps are 5 ms and 10 ms; what is left are round trips with Kafka", "round trips", 4, 2},
	{"pubsub", "modern", pubsubMain, franz, "one long-lived member of the group, by franz-go", "", 0, 4},

	{"tso", "quiet", tsoClient, pdClient, "transactions of two timestamps from a real PD", "", 1, 1},
	{"tso", "loops", tsoClient, pdClient, "eight goroutines compute beside the client", "loops", 1, 2},
	{"tso", "two loops", tsoClient, pdClient, "two goroutines compute beside the client, 20 ms at a time without a call", "tight loops", 1, 1},
	{"tso", "two loops, no preemption", tsoClient, pdClient, "two goroutines compute beside the client, 20 ms at a time, and nothing interrupts them, as in Go 1.9", "tight loops", 1, 1},
	{"tso", "before", tsoClient, pdClient, "eight goroutines compute and ten thousand tick beside the client", "loops and tickers", 1, 1},
	{"tso", "after", tsoClient, pdClient, "what computes and ticks is bounded by service/pool, and one timer starts it", "", 1, 1},
	{"tso", "lost segments", tsoClient, pdClient, "the network between the client and PD loses segments", "lost segments", 1, 1},

	{"pool", "before", quotes, goHTTP, "a semaphore sized by the host's CPUs lets the computations of an update take all Ps and the quota", "slots", 4, 2},
	{"pool", "after", quotes, goHTTP, "service/pool has as many places as the quota has CPUs", "", 4, 2},

	{"container", "before, 200/s", orders, goHTTP, "GOMAXPROCS is the host's, far beyond the quota, and there is little to do", "", 0, 3},
	{"container", "before, loaded", orders, goHTTP, "GOMAXPROCS is the host's, far beyond the quota", "procs", 3, 1},
	{"container", "after, 200/s", orders, goHTTP, "GOMAXPROCS is the quota's, and there is little to do", "", 0, 3},
	{"container", "after, loaded", orders, goHTTP, "GOMAXPROCS is the quota's: one P, in use for most of the time", "saturated", 1, 1},

	{"healthcheck", "1 target", checker, netModule, "one target is checked every three seconds", "", 0, 4},
	{"healthcheck", "100 targets", checker, netModule, "a hundred checks begin at once every three seconds", "burst", 0, 9},
	{"healthcheck", "1,000 targets", checker, netModule, "a thousand checks begin at once every three seconds", "burst", 0, 2},
	{"healthcheck", "before", checker, netModule, "ten thousand checks begin at once; messages are formatted for nobody, metrics make garbage, more Ps than CPUs", "burst and garbage", 0, 2},
	{"healthcheck", "two processes", checker, netModule, "as before, in two processes with half of the targets and of the quota each", "burst and garbage", 0, 2},
	{"healthcheck", "no debug messages", checker, netModule, "ten thousand checks begin at once; metrics make garbage, more Ps than CPUs", "burst and garbage", 5, 2},
	{"healthcheck", "counters as metrics", checker, netModule, "ten thousand checks begin at once; more Ps than CPUs", "burst", 0, 2},
	{"healthcheck", "GOGC 500", checker, netModule, "ten thousand checks begin at once; more Ps than CPUs; GOGC=500", "burst", 0, 2},
	{"healthcheck", "Ps by the quota", checker, netModule, "ten thousand checks begin at once; as many Ps as the quota has CPUs; GOGC=500", "burst", 0, 2},
	{"healthcheck", "after", checker, netModule, "ten thousand checks, spread over the three seconds", "", 0, 1},
}

// armAllowedTexts match true claims of major findings about an arm that its story does not expect.
var armAllowedTexts = map[string][]string{
	"pubsub: after":                    {`WL2001 .*(fetchOffsets|release)`},
	"tso: before":                      {`WL1002 main\.spin`},
	"tso: loops":                       {`WL1002 main\.spin`},
	"tso: two loops":                   {`WL1002 main\.spin`},
	"tso: two loops, no preemption":    {`WL1002 main\.spin`},
	"healthcheck: counters as metrics": {`WL2007 main\.\(\*registry\)\.checked`},
	"healthcheck: Ps by the quota":     {`WL1002 main\.\(\*checker\)\.check`},
}
