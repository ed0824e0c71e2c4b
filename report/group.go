package report

import "slices"

// SampleNS is the CPU time between two CPU samples: runtime/pprof takes 100 per second of CPU time.
const SampleNS = 10e6

// A Group is requests of one kind.
type Group struct {
	ID      string `json:"id"`
	Service string `json:"service,omitempty"` // of several that were recorded together
	Name    string `json:"name"`
	Named   bool   `json:"named"`
	Kind    Kind   `json:"kind"`
	// Unit is the noun for one of these requests, if it is not Kind.RequestNoun: request, for iterations and jobs next to which
	// requests of known protocols have hardly any time.
	Unit      string  `json:"unit,omitempty"`
	Role      Role    `json:"role,omitempty"` // groups are sorted by it, then by time
	Entry     *Site   `json:"entry"`
	Count     int     `json:"count"`
	Streaming bool    `json:"streaming"`
	Open      Open    `json:"open"`
	LatencyNS Latency `json:"latency_ns"`
	// Histogram holds [upper bound in ns, count] for each bucket that is not empty.
	Histogram [][2]int64 `json:"histogram"`
	// HistogramCauses holds the ns of each cause in the buckets of Histogram, in the same order.
	HistogramCauses map[CauseName][]int64 `json:"histogram_causes,omitempty"`
	// Blocks summarise intervals of at least 250 ms, from which confidence intervals are computed.
	Blocks []Block `json:"blocks"`
	// Peer is the group that answers these requests' waits for the network; nil if none does, or the evidence is too weak.
	Peer *Peer `json:"peer,omitempty"`
	// WorkKind is what kind of work marked requests are: http, grpc, job, message.
	WorkKind string `json:"of,omitempty"`
	// Statuses counts the statuses of marked requests: "2xx", "DeadlineExceeded".
	Statuses map[string]int `json:"statuses,omitempty"`
	// BeforeNS is the time between a request's arrival at the process and its mark: reading its headers, and waiting for a
	// P. It is not part of LatencyNS.
	BeforeNS *Quantiles `json:"before_ns,omitempty"`
	// Backlog is the queue in which messages wait until one of the group's goroutines reads them, where LatencyNS begins; nil if there is none.
	Backlog *Backlog `json:"backlog,omitempty"`
	// Saturated describes consumers that always have a next message, nil if they do not. Then it is not known for how long messages
	// wait before they are taken, where LatencyNS begins.
	Saturated    *Saturated `json:"saturated,omitempty"`
	ReadyToRunNS Quantiles  `json:"ready_to_run_ns"`
	PollGapNS    Quantiles  `json:"poll_gap_ns"`
	Bands        []Band     `json:"bands"`
	Slowest      []Request  `json:"slowest"`
	// Typical is a request near the median, for comparison. It is chosen from a sample that does not depend on latency.
	Typical      *Request `json:"typical,omitempty"`
	TotalNS      int64    `json:"total_ns"`
	CutAtStart   int      `json:"cut_at_start,omitempty"` // requests that began before the trace
	UnresolvedNS int64    `json:"unresolved_ns,omitempty"`
	// Iterations divides the time of a run; nil if the number of its iterations is not known.
	Iterations *Iterations `json:"iterations,omitempty"`
}

// A Backlog describes the queue of messages for the goroutines of a loop. Arrivals are estimated if no event shows them.
type Backlog struct {
	// Site is the line that receives a message, or the function that a library calls with it.
	Site *Site `json:"site"`
	// From is the function that receives messages from clients and passes them on; "" if the goroutines or a library's one read them.
	From     string `json:"from,omitempty"`
	Messages int    `json:"messages"`
	Queued   int    `json:"queued"` // messages that found all goroutines at work
	// Consumers is how many goroutines handle messages, Load how many of them are at work on average. With Sufficient ones, 5 % of
	// messages that arrive at random with this load wait.
	Consumers  int     `json:"consumers"`
	Load       float64 `json:"load"`
	Sufficient int     `json:"sufficient"`
	// BusyShare is the share of the trace in which all of them are at work.
	BusyShare  float64 `json:"busy_share"`
	HandlingNS int64   `json:"handling_ns"` // mean
	WaitNS     Latency `json:"wait_ns"`
	// TotalNS is from the arrival of a message until it is done: what its sender waits for, apart from the network.
	TotalNS Latency     `json:"total_ns"`
	Slow    BacklogBand `json:"slow"`
}

// A BacklogBand describes the messages with the longest TotalNS, as Group.Tail does for requests. Its times are means.
type BacklogBand struct {
	Band       BandName `json:"band"`
	FromNS     int64    `json:"from_ns"`
	ToNS       int64    `json:"to_ns"`
	Count      int      `json:"count"`
	WaitNS     int64    `json:"wait_ns"`
	HandlingNS int64    `json:"handling_ns"`
}

// Saturated describes goroutines that always have a next message: their number and the time for one message limit the throughput.
type Saturated struct {
	// Site is the line that takes a message, or the function that a library calls with it; nil if each message has a goroutine.
	Site *Site `json:"site"`
	// From is the start function of the goroutines that pass messages on; "" if there are none. BlockedShare is the share of the time
	// in which each of them waits until its message is taken, 0 if they do not wait.
	From         string  `json:"from,omitempty"`
	BlockedShare float64 `json:"blocked_share,omitempty"`
	Consumers    int     `json:"consumers"`
	PerSecond    float64 `json:"per_second"` // messages that they handle, and can at most
	EachNS       int64   `json:"each_ns"`    // mean time of a goroutine for one message, AskNS included
	// AskNS is the mean time in which a goroutine asks a library for the next message; 0 if it does not ask for each.
	AskNS    int64 `json:"ask_ns,omitempty"`
	Inferred bool  `json:"inferred,omitempty"` // in earlier reports: no event shows that the goroutines handle the messages of From
}

// SenderLatency returns the latency of a group's requests for those who send them: with the time before they are read, if that is known. It points
// into g.
func (g *Group) SenderLatency() *Latency {
	if g.Backlog != nil {
		return &g.Backlog.TotalNS
	}
	return &g.LatencyNS
}

// Iterations are those of a benchmark or a loop. A trace does not show where they begin: their number is given.
type Iterations struct {
	Count  int   `json:"count"`
	EachNS int64 `json:"each_ns"` // as the benchmark printed it, else the length of the run divided by Count
}

// Open are requests that were still running at the end of the trace.
type Open struct {
	Count    int   `json:"count"`
	OldestNS int64 `json:"oldest_ns"`
	Site     *Site `json:"site"` // where the oldest one was
	// Waits are the places at which they wait, by the total time of all requests.
	Waits []OpenWait `json:"waits,omitempty"`
}

// An OpenWait is a place at which requests wait at the end of the trace.
type OpenWait struct {
	Cause CauseName `json:"cause"`
	Site  *Site     `json:"site"`
	Via   []Via     `json:"via"`
	// Kind and Call are as in Cause.
	Kind     string `json:"kind,omitempty"`
	Call     string `json:"call,omitempty"`
	Count    int    `json:"count"`
	OldestNS int64  `json:"oldest_ns"`
	// StuckNS is how long each has been in this wait, the longest first, at most twenty.
	StuckNS []int64 `json:"stuck_ns"`
	AgesNS  []int64 `json:"ages_ns"` // how long ago each began, the longest first, at most twenty
}

// TotalNS is the sum of StuckNS, which has only the longest: of more than twenty requests it is less than their total.
func (w *OpenWait) TotalNS() (ns int64) {
	for _, one := range w.StuckNS {
		ns += one
	}
	return ns
}

// Latency holds the percentiles of a group's latency. One for which there are too few requests is null.
type Latency struct {
	Mean *int64 `json:"mean"`
	P50  *int64 `json:"p50"`
	P90  *int64 `json:"p90"`
	P99  *int64 `json:"p99"`
	P999 *int64 `json:"p999"`
	Max  *int64 `json:"max"`
}

// A Server is all requests that a process served by one protocol, in all groups: the latency that its clients see.
type Server struct {
	Kind      Kind    `json:"kind"`
	Count     int     `json:"count"`
	LatencyNS Latency `json:"latency_ns"`
}

// Quantiles holds three points of a distribution.
type Quantiles struct {
	P50 *int64 `json:"p50"`
	P99 *int64 `json:"p99"`
	Max *int64 `json:"max"`
}

// A Block summarises the requests that ended in one interval of the trace.
type Block struct {
	StartNS    int64               `json:"start_ns"`
	DurationNS int64               `json:"duration_ns"`
	Count      int                 `json:"count"`
	TotalNS    int64               `json:"total_ns"`
	Histogram  [][2]int64          `json:"histogram"`
	Causes     map[CauseName]int64 `json:"causes"` // ns by cause
}

// A Band is the requests of a group with a latency in [FromNS, ToNS).
type Band struct {
	Band   BandName `json:"band"`
	FromNS int64    `json:"from_ns"`
	ToNS   int64    `json:"to_ns"`
	Count  int      `json:"count"`
	Causes []Cause  `json:"causes"`
}

// A Cause is time of a band with the same cause, place and chain of waits.
type Cause struct {
	// Service is the service that spent the time, if it is not the group's: its recording shows the details.
	Service  string    `json:"service,omitempty"`
	Cause    CauseName `json:"cause"`
	Site     *Site     `json:"site"`
	SiteFrom string    `json:"site_from,omitempty"`
	Via      []Via     `json:"via"`
	// Routes lists the chains of waits if there are several. Via is the first.
	Routes       []Route `json:"routes,omitempty"`
	RanMeanwhile []Share `json:"ran_meanwhile,omitempty"`
	TotalNS      int64   `json:"total_ns"`
	Share        float64 `json:"share"`
	// ShareError is half the 95 % confidence interval of Share, rounded up to 0.0001. It is 0 if all requests of the band were
	// followed, and all parts of a run.
	ShareError float64 `json:"share_error,omitempty"`
	Requests   int     `json:"requests"`
	// Samples counts the CPU samples in running time. Each represents 10 ms of a CPU. The rest of TotalNS is assumed to be
	// similar, or the thread had no CPU.
	Samples int `json:"samples,omitempty"`
	// Kind is the kind of a stop of the world (cause stw), the direction of a network wait, InC for a system call, or what requests
	// queue for: "a connection of a database/sql pool".
	Kind string `json:"kind,omitempty"`
	// Call is the standard library's function that explains a wait or a system call: time.Sleep, os.(*File).Sync.
	Call string `json:"call,omitempty"`
	// Observed reports that the kernel's events show the cause: nothing about it is inferred from the trace or from samples.
	Observed bool `json:"observed,omitempty"`
	// WayTo is the service to or from which the call was on its way, if that service's recording shows when it served it.
	WayTo string `json:"way_to,omitempty"`
	// PeerStates divide, for a wait for the network, the time for which the kernel's events show what the process at the other end of
	// the connection did, the largest first.
	PeerStates []PeerState `json:"peer_states,omitempty"`
	// AheadWork is, for cause queue, the work of those ahead that Via leads to; each of Routes has its own.
	AheadWork *Work `json:"behind,omitempty"`
}

// Work is what those ahead in a queue spend their time on. The fields have the meaning of those of Cause.
type Work struct {
	Cause    CauseName `json:"cause"`
	Kind     string    `json:"kind,omitempty"`
	Site     *Site     `json:"site"`
	SiteFrom string    `json:"site_from,omitempty"`
	Call     string    `json:"call,omitempty"`
}

// Works returns the rows that the routes of a cause would be if its time had the cause of its work: for cause queue one row for each
// kind of work of those ahead, for other causes the row itself.
func (c *Cause) Works() []Cause {
	if c.Cause != CauseQueue {
		return []Cause{*c}
	}
	var rows []Cause
	for _, r := range c.AllRoutes() {
		if r.AheadWork == nil {
			r.AheadWork = &Work{Cause: CauseUnknown}
		}
		i := slices.IndexFunc(rows, func(row Cause) bool { return row.isWork(r.AheadWork) })
		if i < 0 {
			i = len(rows)
			rows = append(rows, Cause{Cause: r.AheadWork.Cause, Kind: r.AheadWork.Kind, Site: r.AheadWork.Site, SiteFrom: r.AheadWork.SiteFrom, Call: r.AheadWork.Call, Via: r.Via, Requests: c.Requests, RanMeanwhile: c.RanMeanwhile})
		}
		row := &rows[i]
		row.Routes = append(row.Routes, r)
		row.TotalNS += r.TotalNS
		if c.TotalNS > 0 {
			row.Share += c.Share * float64(r.TotalNS) / float64(c.TotalNS)
		}
	}
	return rows
}

// isWork reports whether a row has the cause, kind, site and call of a work.
func (c *Cause) isWork(w *Work) bool {
	return c.Cause == w.Cause && c.Kind == w.Kind && c.SiteFrom == w.SiteFrom && c.Call == w.Call && c.Site.Equal(w.Site)
}

// InC is the Kind of a call of C code. A trace shows it as a system call; only the stack differs.
const InC = "C"

// A Route is one of several chains of waits that led to a cause.
type Route struct {
	Via       []Via `json:"via"`
	TotalNS   int64 `json:"total_ns"`
	AheadWork *Work `json:"behind,omitempty"` // see Cause.AheadWork
}

// A Via is one wait on the way from the request to the goroutine that spent the time.
type Via struct {
	Wait WaitKind `json:"wait"`
	Site *Site    `json:"site"`
	Call string   `json:"call,omitempty"` // see Cause.Call
	// Service is, for a wait for another service whose recording is known, that service. The next waits are its own.
	Service string `json:"service,omitempty"`
}

// A Share is a site's share of something, 0..1.
type Share struct {
	Site  *Site   `json:"site"`
	Share float64 `json:"share"`
}

// A Peer is a group whose requests answer what another group waits for, in the same process or in one that was recorded at
// the same time.
type Peer struct {
	// Recording is the name of the other process's recording; "" for the same process.
	Recording string `json:"recording,omitempty"`
	Group     string `json:"group"` // id
	Name      string `json:"name"`
	// MoreNames names further groups that answer these waits. The fields below count them as well.
	MoreNames []string `json:"also,omitempty"`
	// Joined reports whether paths continue into the requests that answer, so that causes show what these spent their time on.
	Joined bool `json:"joined,omitempty"`
	// AsLong reports whether Held and ByChance count only requests that lasted as long as the wait, within 10 %.
	AsLong bool `json:"as_long,omitempty"`
	// Of Waits for the network, Held contain one request of the group. If the waits are moved in time, ByChance of them do.
	Waits    int     `json:"waits"`
	Held     int     `json:"held"`
	ByChance float64 `json:"by_chance"`
	// WaitNS is the mean length of a wait, and ServedNS how much of it the request in it took.
	WaitNS   int64 `json:"wait_ns"`
	ServedNS int64 `json:"served_ns"`
	// Spent says, if the group is in another recording, what its requests spent the most time on, with the share.
	Spent      string  `json:"spent,omitempty"`
	Confidence float64 `json:"confidence"`
	// ThereNS is the mean time from the beginning of a wait to that of the request in it; for up to UnseenNS of it the request
	// may have been unread at its server. BackNS is the mean time from the request's end to that of the wait; for LateNS of it
	// the data was there, but the goroutine had no P or no P polled. Those that need one clock are nil for two machines.
	ThereNS  *int64 `json:"there_ns,omitempty"`
	UnseenNS *int64 `json:"unseen_ns,omitempty"`
	BackNS   *int64 `json:"back_ns,omitempty"`
	LateNS   int64  `json:"late_ns,omitempty"`
}

// A Moment is a short interval in which many of a group's slowest requests begin, usually for one reason.
type Moment struct {
	Group   string `json:"group"` // id
	StartNS int64  `json:"start_ns"`
	EndNS   int64  `json:"end_ns"`   // when the last of them begins
	UntilNS int64  `json:"until_ns"` // when the last of them ended
	// Slow of the group's Of slowest requests begin in it.
	Slow            int     `json:"slow"`
	SlowestRequests int     `json:"of"`
	ShareOfSlow     float64 `json:"share_of_slow"`
	// Cause is what most of them spent most of their time on, CauseShare the share of these requests.
	Cause      CauseName `json:"cause"`
	CauseShare float64   `json:"cause_share"`
	// With is what the process did in it.
	With []MomentEvent `json:"with"`
	Text string        `json:"text"`
}

// A MomentEvent is an event of the whole process in a Moment.
type MomentEvent struct {
	Kind       MomentKind `json:"kind"`
	StartNS    int64      `json:"start_ns"`
	DurationNS int64      `json:"duration_ns"`
	Count      int        `json:"count"` // of ranges, or of a herd's goroutines
	Site       *Site      `json:"site"`  // of a herd
	Text       string     `json:"text"`
}
