package report

// A Verdict says what the slow requests of one group spent their time on.
type Verdict struct {
	Group    string   `json:"group"` // id
	Band     BandName `json:"band"`  // see Group.Tail
	Requests int      `json:"requests"`
	// Causes are those with at least 1 % of the band's time, the largest first, each divided by place. A wait at one place comes
	// before running time that is larger in sum, but spread over many lines that no CPU sample shows.
	Causes []VerdictCause `json:"causes"`
	// Open are the requests still running at the end of the trace; nil if there are none.
	Open *VerdictOpen `json:"open,omitempty"`
	// Held says that the process was stopped for some time, which latencies do not show; "" if no stop is known.
	Held string `json:"held,omitempty"`
	// Remark says that the first finding is not about the largest cause, and about how much it is; "" if it is.
	Remark string `json:"remark,omitempty"`
	// Lead and Range begin the sentence: which requests ("The slowest 1% of"), and their latency ("(9ms to 12ms)").
	Lead  string `json:"lead"`
	Range string `json:"range"`
	// Text is the whole sentence.
	Text string `json:"text"`
}

// A VerdictCause is the time of one cause in the band of a Verdict.
type VerdictCause struct {
	Cause CauseName `json:"cause"`
	// Service and WayTo are as in Cause.
	Service string `json:"service,omitempty"`
	WayTo   string `json:"way_to,omitempty"`
	// Kind is as in Cause, or no-cpu (goroutines show as running, but their threads have no CPU), or one kind of network: pipe,
	// name-server or connect (the first finding's change is that connections stay open), or one of syscall: child-process, disk-sync,
	// directory-read or file-write, or one of sleep: deadline (a context's, or net/http's), timer (or ticker), limiter, database-lock,
	// batch-due, shared-lock or no-continue.
	Kind string `json:"kind,omitempty"`
	// Queue is set if requests were queued and requests ahead of them spent the time on the cause. A finding names the same queue. It
	// is nil if the requests spent the time themselves.
	Queue *Queue `json:"queue,omitempty"`
	// AheadWork is, for cause queue, what those ahead spend most of that time on.
	AheadWork *VerdictWork `json:"behind,omitempty"`
	Share     float64      `json:"share"`
	TotalNS   int64        `json:"total_ns"`
	EachNS    int64        `json:"each_ns"` // per request, on average
	// Sites are its largest places.
	Sites        []VerdictSite `json:"sites"`
	RanMeanwhile []Share       `json:"ran_meanwhile,omitempty"`
	// Processes are, for cause cpu-wait, the processes that had the CPU, the largest share first.
	Processes []ProcessShare `json:"processes,omitempty"`
	// PeerStates are as in Cause, with shares of this cause's time.
	PeerStates []PeerState `json:"peer_states,omitempty"`
	// Observed is as in Cause.
	Observed bool `json:"observed,omitempty"`
	// InSentence reports whether the sentence contains this cause. Words says what the time was spent on, Text the same with places.
	InSentence bool   `json:"said"`
	Words      string `json:"words"`
	Text       string `json:"text"`
}

// A ProcessShare is a process's share of a time. Process is its name with its number; several processes of one name are one.
type ProcessShare struct {
	Process string  `json:"process"`
	Share   float64 `json:"share"`
}

// VerdictWork is the work of those ahead in a queue with the largest part of the time.
type VerdictWork struct {
	Cause   CauseName     `json:"cause"`
	Kind    string        `json:"kind,omitempty"` // as in VerdictCause
	TotalNS int64         `json:"total_ns"`
	Sites   []VerdictSite `json:"sites"`
}

// A VerdictSite is the time of a cause at one place.
type VerdictSite struct {
	Site    *Site   `json:"site"`
	Kind    string  `json:"kind,omitempty"`
	Share   float64 `json:"share"` // of the band's time
	TotalNS int64   `json:"total_ns"`
	// Via is the chain of waits that led to most of it, and ViaPart its share; empty if none did.
	Via     []Via   `json:"via"`
	ViaPart float64 `json:"via_part,omitempty"`
	// In names the request of this process, called over the network, that spent the time; empty if it is the request's own.
	In string `json:"in,omitempty"`
	// Inferred reports that CPU samples do not show most of it: the events around short runs name the line.
	Inferred bool `json:"inferred,omitempty"`
}

// VerdictOpen are requests of a group that were still running at the end of the trace.
type VerdictOpen struct {
	Count    int    `json:"count"`
	OldestNS int64  `json:"oldest_ns"`
	Site     *Site  `json:"site"`
	Late     bool   `json:"late"` // they hang, and a finding above low says so
	Text     string `json:"text"`
}
