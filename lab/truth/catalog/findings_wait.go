package catalog

// waitingFindings returns the findings of codes WL2 and WL3. If a service's fault is in a library, the service's line that
// calls the library is right as well.
func waitingFindings() map[string]*Findings {
	all := map[string]*Findings{}
	for code, names := range map[string][]string{
		"WL2001": {"actor-select", "batch-timer", "deadline", "errgroup", "grpc-unary", "grpc-workers", "h2-sleep", "hedge", "jobs", "own-protocol", "rpc-calls", "middleware", "nested", "open-loop",
			"poll-loop", "polled-flag", "pubsub", "queue-worker", "retry", "routes", "singleflight", "tasks", "timeout-handler", "two-listeners", "waitgroup"},
		"WL2002": {"fsync-lock", "h2-lock", "lock-chain", "lock-network", "mutex-cpu", "once", "rwmutex-reader", "rwmutex-writer"},
		"WL2003": {"back-pressure", "connection-pool", "errgroup-limit", "max-conns", "pipeline", "rate-limiter", "semaphore", "single-worker", "weighted", "worker-pool"},
		"WL2004": {"ticker-flush"},
		"WL2005": {"dial", "dns", "fan-out", "grpc-client", "h2-client", "hub", "n-plus-one", "reverse-proxy", "slow-database", "two-queries"},
		"WL2006": {"slow-reader", "slow-sender"},
		"WL2007": {"cond-broadcast", "cond-child", "exec-child", "fsync", "slow-pipe"},
		"WL3001": {"gc-churn"},
		"WL3002": {"gc-workers"},
		"WL3003": {"stw-memstats", "stw-stacks"},
		"WL3004": {"debug-logs", "gc-assist"},
		"WL3005": {"gc-forced", "gc-forced-beside"},
	} {
		for _, name := range names {
			all[name] = &Findings{First: []string{code}}
		}
	}
	for _, name := range []string{"debug-logs", "gc-churn", "gc-assist"} {
		all[name].Sites = []Site{{Func: packagePath + ".debugf"}, {Func: packagePath + ".(*target).String"}, {Func: packagePath + ".churn"}, {Func: packagePath + ".list"}}
	}
	all["healthy-rpc"] = &Findings{}
	// A client of a stream receives each part at once and does not wait for the whole: the pace of a stream is no fault.
	for _, name := range []string{"sse", "grpc-stream"} {
		all[name] = &Findings{First: []string{"WL2001"}, Info: true}
	}
	// Handlers that compute take Ps from each other as well. Requests that show no handler only wait behind mark workers.
	all["debug-logs"].AlsoAllowed = []string{"WL1002"}
	all["gc-churn"].AlsoAllowed = []string{"WL1002", "WL3002"}
	all["gc-assist"].AlsoAllowed = []string{"WL1002"}
	all["gc-workers"].AlsoAllowed = []string{"WL1002"}
	all["gc-workers"].Sites = []Site{{Func: packagePath + ".(*bystander).refresh"}} // it produces the garbage
	all["gc-forced-beside"].AlsoAllowed = []string{"WL1002"}                        // forced collections sweep as well
	all["gc-forced-beside"].Sites = []Site{{Func: packagePath + ".(*trimmed).trim"}}
	all["gc-forced-beside"].AnyShare = true
	all["gc-forced-beside"].Reason = "the truth's cause is the computing, of which the collector takes a part"
	return all
}
