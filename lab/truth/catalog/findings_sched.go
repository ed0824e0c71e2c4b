package catalog

// schedulingFindings returns the findings of codes WL1, WL4 and WL5, and the healthy services.
func schedulingFindings() map[string]*Findings {
	fn := func(names ...string) []Site {
		var out []Site
		for _, n := range names {
			out = append(out, Site{Func: packagePath + "." + n})
		}
		return out
	}
	return map[string]*Findings{
		"healthy":           {},
		"healthy-computing": {},
		"healthy-idle":      {},
		"healthy-grpc":      {},
		"healthy-h2":        {},
		"healthy-crowd":     {},
		"cpu-handler":       {First: []string{"WL1008"}, Info: true},
		"cpu-std":           {First: []string{"WL1008"}, Info: true, AlsoAllowed: []string{"WL3001", "WL3002", "WL3004"}, AnyShare: true, Reason: "it allocates: what the collector takes of it is its own cause"},
		"cpu-hogs":          {First: []string{"WL1002"}, Sites: fn("spin", "hog"), AnyShare: true, Reason: "the service cannot see what it waits before the handler begins"},
		"gosched-loops":     {First: []string{"WL1002"}, Sites: fn("spin", "yielder"), AnyShare: true, Reason: "as cpu-hogs"},
		"ticker-herd":       {First: []string{"WL1004"}, Sites: fn("spin", "tickTogether"), AnyShare: true, Reason: "as cpu-hogs"},
		"hub-late": {First: []string{"WL1001"}, AlsoAllowed: []string{"WL1002", "WL2005"}, Sites: fn("(*timestamps).dispatch", "(*timestamps).receive", "(*timestamps).roundTrip"), AnyShare: true,
			Reason: "the handlers' own goroutines wait for a P as well, which is WL1002's part; only what waits behind the two goroutines is the hub's; an answer that a P polls for itself, late, counts as the peer's"},
		"one-proc": {First: []string{"WL1002"}, Sites: fn("(*report).halves", "spin"), AnyShare: true, Reason: "as cpu-hogs; the Ps are taken by the requests themselves"},
		"few-ps":   {First: []string{"WL1006"}, Crowded: []string{"WL1002"}, Sites: fn("(*report).halves", "spin"), AnyShare: true, Reason: "as one-proc; host samples tell that CPUs were free"},
		"many-ps": {First: []string{"WL1005"}, Info: true, AlsoAllowed: []string{"WL1005"}, Sites: []Site{{}}, AnyShare: true,
			Reason: "threads wait for each other in the kernel, which looks like computing: how much of a request that is depends on the machine"},
		"throttled":   {First: []string{"WL4001"}, AlsoAllowed: []string{"WL4002"}, Sites: []Site{{}}, AnyShare: true, Reason: "the service cannot see for how long it stands still"},
		"long-runs":   {First: []string{"WL1007"}, AlsoAllowed: []string{"WL1002"}, Sites: fn("spin", "reindex"), AnyShare: true, Reason: "as cpu-hogs; where the machine holds a thread back the loops look saturating"},
		"load-inside": {First: []string{"WL2001"}, Facts: []string{"WL5005"}},
	}
}
