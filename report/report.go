// Package report is whylate's answer as data: the JSON contract
// "whylate.report/v1". Fields may be added, never renamed; report.schema.json
// beside this file describes the same shape for other languages.
//
// All *_ns fields are whole nanoseconds; times of the trace are relative to
// its start; shares and confidences are 0..1; what could not be computed is
// null or absent, never a made-up number. A Report is plain data: safe to
// share between goroutines that only read it.
package report

import (
	"slices"
	"time"
)

// Schema is the value of Report.Schema.
const Schema = "whylate.report/v1"

// A Report says why requests were late.
type Report struct {
	Schema   string    `json:"schema"`
	Input    Input     `json:"input"`
	Groups   []Group   `json:"groups"`
	Findings []Finding `json:"findings"`
	// Judged says which rules had something to judge by; nil in reports of versions that did not tell.
	Judged *Judged `json:"judged,omitempty"`
	// Starts is what goroutines did, where no requests were found: what could be asked, what did most first.
	Starts []Start `json:"starts,omitempty"`
	// Verdict says in words what slow requests spent their time on, for the groups with the most latency.
	Verdict []Verdict `json:"verdict,omitempty"`
	Runtime Runtime   `json:"runtime"`
	// Moments are short stretches in which many of the slowest requests of a group begin.
	Moments []Moment `json:"moments,omitempty"`
	// Host is what the kernel knew, if the recording holds samples of it.
	Host *Host `json:"host,omitempty"`
	// WhatIf is what the changes asked for would win, in each group that they meet.
	WhatIf []WhatIf `json:"what_if,omitempty"`
	// Goals are what was asked of latencies, and what would reach it.
	Goals []Goal `json:"goals,omitempty"`
}

// Judged says what came of the rules: a report without findings is clear only as far as they could judge.
type Judged struct {
	Rules int        `json:"rules"`
	Found []RuleCode `json:"found"` // have findings, be they ignored
	Clear []RuleCode `json:"clear"` // had what they need, and found nothing
	// Blind could not judge, by what they lacked.
	Blind []Blind `json:"blind"`
	// Record is the command that would settle all of Blind that a recording can; empty if there is none.
	Record string `json:"record,omitempty"`
	// Text is all of it in one line.
	Text string `json:"text"`
}

// Blind are rules that could not judge for want of the same.
type Blind struct {
	Reason BlindReason `json:"reason"`
	Text   string      `json:"text"`
	Codes  []RuleCode  `json:"codes"`
	Record string      `json:"record"` // the command that would settle these
}

// A Moment is a short stretch of time in which many of a group's slowest requests begin: most often all for one reason.
type Moment struct {
	Group   string `json:"group"` // id
	StartNS int64  `json:"start_ns"`
	EndNS   int64  `json:"end_ns"`   // when the last of them begins
	UntilNS int64  `json:"until_ns"` // when the last of them ended
	// Slow of the Of slowest requests begin in it.
	Slow        int     `json:"slow"`
	Of          int     `json:"of"`
	ShareOfSlow float64 `json:"share_of_slow"`
	// Cause is what most of them spent most of their time on, CauseShare their part.
	Cause      CauseName `json:"cause"`
	CauseShare float64   `json:"cause_share"`
	// With is what happened meanwhile.
	With []MomentEvent `json:"with"`
	Text string        `json:"text"`
}

// A MomentEvent is something of the whole process that happened in a Moment.
type MomentEvent struct {
	Kind       MomentKind `json:"kind"`
	StartNS    int64      `json:"start_ns"`
	DurationNS int64      `json:"duration_ns"`
	Count      int        `json:"count"` // of ranges, or of a herd's goroutines
	Site       *Site      `json:"site"`  // of a herd
	Text       string     `json:"text"`
}

// A Goal is a percentile that a group was to keep.
type Goal struct {
	Group      string `json:"group"` // id
	Name       string `json:"name"`
	Percentile string `json:"percentile"` // p50 or p99
	MostNS     int64  `json:"most_ns"`
	IsNS       *int64 `json:"is_ns"` // null with too few requests to know
	Kept       bool   `json:"kept"`
	// Where it is not kept, Predicted is what the fewest changes that are predicted to reach it would win, if Reached, or
	// else the three that come nearest; null if nothing can be predicted. Changes is their number.
	Reached   bool       `json:"reached"`
	Changes   int        `json:"changes"`
	Predicted *Predicted `json:"predicted"`
}

// A WhatIf is a prediction that was asked for.
type WhatIf struct {
	Group     string    `json:"group"` // id
	Name      string    `json:"name"`
	Requests  int       `json:"requests"`
	Predicted Predicted `json:"predicted"`
	// Note says, for settings such as GOGC, what the trace shows of them and on what the answer rests.
	Note string `json:"note,omitempty"`
}

// A Verdict says what the slow requests of one group spent their time on.
type Verdict struct {
	Group    string   `json:"group"` // id
	Band     BandName `json:"band"`  // the one that speaks for the slow requests, see Group.Tail
	Requests int      `json:"requests"`
	// Causes are those with at least a hundredth of the band's time, the largest first: summed up by cause, and each then
	// divided by place. A wait at one place stands before computing that has more time together, but at many lines that nobody saw.
	Causes []VerdictCause `json:"causes"`
	// Open are requests that had not ended; nil if there are none.
	Open *VerdictOpen `json:"open,omitempty"`
	// Held says that the process did not run for some time, which latencies do not show; "" if it did, as far as that is known.
	Held string `json:"held,omitempty"`
	// Lead and Range begin the sentence: which requests ("The slowest 1% of"), and how late they were ("(9ms to 12ms)").
	Lead  string `json:"lead"`
	Range string `json:"range"`
	// Text is all of it in one sentence.
	Text string `json:"text"`
}

// A VerdictCause is all time of one cause in the band of a Verdict.
type VerdictCause struct {
	Cause CauseName `json:"cause"`
	// Kind is as in Cause; or pipe; of sleep, deadline (a context's, or net/http's), timer (or ticker) or limiter; or no-cpu:
	// waiting for a CPU while goroutines showed as running.
	Kind string `json:"kind,omitempty"`
	// Queue says that requests stood in line for something meanwhile: it was others, ahead of them, who spent their time on the
	// cause. A finding names the same queue. Nil where it is the requests' own time.
	Queue   *Queue  `json:"queue,omitempty"`
	Share   float64 `json:"share"`
	TotalNS int64   `json:"total_ns"`
	EachNS  int64   `json:"each_ns"` // a request, on average
	// Sites are its largest places.
	Sites        []VerdictSite `json:"sites"`
	RanMeanwhile []Share       `json:"ran_meanwhile,omitempty"`
	// Said tells whether it matters enough for the sentence. Words is what the time was spent on, Text the same with places.
	Said  bool   `json:"said"`
	Words string `json:"words"`
	Text  string `json:"text"`
}

// A VerdictSite is the time of a cause at one place.
type VerdictSite struct {
	Site    *Site   `json:"site"`
	Kind    string  `json:"kind,omitempty"`
	Share   float64 `json:"share"` // of the band's time
	TotalNS int64   `json:"total_ns"`
	// Via is the chain of waits by which most of it came, ViaPart the part that did; empty where none did.
	Via     []Via   `json:"via"`
	ViaPart float64 `json:"via_part,omitempty"`
	// In names the request of this process, asked over the network, in which it was; empty where it is the request's own time.
	In string `json:"in,omitempty"`
	// Inferred says that for most of it nothing was seen to run there: the events around short runs name the line.
	Inferred bool `json:"inferred,omitempty"`
}

// VerdictOpen are requests of a group that were still running at the end of the trace.
type VerdictOpen struct {
	Count    int    `json:"count"`
	OldestNS int64  `json:"oldest_ns"`
	Site     *Site  `json:"site"`
	Late     bool   `json:"late"` // they hang: a finding above low says so
	Text     string `json:"text"`
}

// Input is what was read.
type Input struct {
	Name       string     `json:"name"`
	Bytes      int64      `json:"bytes"`
	Events     int64      `json:"events"`
	Start      *time.Time `json:"start"` // wall clock, RFC 3339; null if the trace does not say
	DurationNS int64      `json:"duration_ns"`
	Go         string     `json:"go"` // "1.26": the trace's header
	GOMAXPROCS int        `json:"gomaxprocs"`
	Truncated  bool       `json:"truncated"`
	// Observer counts requests of the profiler's own endpoints, left out of all groups.
	Observer int `json:"observer,omitempty"`
	// Sampled says that not all requests' paths were walked; nil: all were.
	Sampled *Sampled `json:"sampled,omitempty"`
	// LeftOut is work that was found but is no group, the most frequent first.
	LeftOut []LeftOut `json:"left_out,omitempty"`
	// Reason says why the service itself kept the recording, if it did.
	Reason string `json:"reason,omitempty"`
	// Service says what was recorded and where it ran, with OpenTelemetry's names (k8s.pod.name), if the recording does.
	Service  map[string]string `json:"service,omitempty"`
	Warnings []Warning         `json:"warnings"`
}

// A Sampled says of how many requests the paths were walked. Counts, latencies and the slowest tenth of every group are
// those of all requests; of the others, those that were walked stand for like ones of the same group, with weights.
type Sampled struct {
	Walked int `json:"walked"`
	Of     int `json:"of"`
}

// A Start is what the goroutines did that were started with one function.
type Start struct {
	Site *Site `json:"site"` // the function; the outermost of the service's own, where there is one
	// Inner is the function of the service's own that it called most often, null if none was seen.
	Inner      *Site `json:"inner"`
	Goroutines int   `json:"goroutines"`
	Wakes      int   `json:"wakes"` // waits that ended
	RunningNS  int64 `json:"running_ns"`
}

// A LeftOut is work of one kind that is no group of the report.
type LeftOut struct {
	Kind  Kind          `json:"kind"`
	Name  string        `json:"name"`
	Count int           `json:"count"` // how often it was seen, about
	Why   LeftOutReason `json:"why"`
}

// A Peer says that requests of one group wait for those of another one: of the same process, or of one that was recorded
// at the same time.
type Peer struct {
	// Recording is the name of the other process's recording; "" for the same process.
	Recording string `json:"recording,omitempty"`
	Group     string `json:"group"` // id
	Name      string `json:"name"`
	// Also are further groups that answer such waits: the names; all that is said below is about any of them.
	Also []string `json:"also,omitempty"`
	// Joined says that paths go on in the requests that answer: the report shows what these spent their time on at the requests that wait.
	Joined bool `json:"joined,omitempty"`
	// AsLong says that Held and ByChance count those alone that lasted as long as the wait did, give or take a tenth.
	AsLong bool `json:"as_long,omitempty"`
	// Of Waits for the network, Held have one request of the group in them; if they are moved in time, ByChance of them do.
	Waits    int     `json:"waits"`
	Held     int     `json:"held"`
	ByChance float64 `json:"by_chance"`
	// WaitNS is how long a wait takes, on average, and ServedNS for how long the request in it was served meanwhile.
	WaitNS   int64 `json:"wait_ns"`
	ServedNS int64 `json:"served_ns"`
	// Spent says, of another recording, on what that group's requests spent the most time there, with their share of it.
	Spent      string  `json:"spent,omitempty"`
	Confidence float64 `json:"confidence"`
	// ThereNS is how long a wait had been when the request in it began, for up to UnseenNS of which it may have lain unread at
	// its server; BackNS is how long it went on afterwards, LateNS of which who waited was ready and had no CPU, or nobody
	// looked. Means; those that the clocks of two machines would tell are nil.
	ThereNS  *int64 `json:"there_ns,omitempty"`
	UnseenNS *int64 `json:"unseen_ns,omitempty"`
	BackNS   *int64 `json:"back_ns,omitempty"`
	LateNS   int64  `json:"late_ns,omitempty"`
}

// A Warning is something that weakens the report.
type Warning struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// A Site is a place in source code.
type Site struct {
	Func string `json:"func"`
	File string `json:"file"`
	Line int    `json:"line"`
	// Does says what a well-known line of the standard library is for: "reading the request".
	Does string `json:"does,omitempty"`
	// Module and Version are those of a dependency, where they are known.
	Module  string `json:"module,omitempty"`
	Version string `json:"version,omitempty"`
	// CalledFrom is, for code of others, the innermost line of the service's own that led there: by calls, else by
	// the waits of the request, the last of them first, else the one for which a library started the request's goroutine.
	// It is nil if there is none.
	CalledFrom *Caller `json:"called_from,omitempty"`
}

// A Caller is a line of the service's own code, which its authors can change.
type Caller struct {
	Func string `json:"func"`
	File string `json:"file"`
	Line int    `json:"line"`
	// Calls is the function that the line calls on the way to the site, where it was called and not waited for.
	Calls string `json:"calls,omitempty"`
}

// SampleNS is the CPU time that one CPU sample stands for, in ns: runtime/pprof takes 100 a second of it.
const SampleNS = 10e6

// A Group is requests of one kind.
type Group struct {
	ID        string  `json:"id"`
	Name      string  `json:"name"`
	Named     bool    `json:"named"`
	Kind      Kind    `json:"kind"`
	Role      Role    `json:"role,omitempty"` // what it is to the process; groups are listed by it, then by time
	Entry     *Site   `json:"entry"`
	Count     int     `json:"count"`
	Streaming bool    `json:"streaming"`
	Open      Open    `json:"open"`
	LatencyNS Latency `json:"latency_ns"`
	// Histogram holds [upper bound in ns, count] of every bucket in use.
	Histogram [][2]int64 `json:"histogram"`
	// HistogramCauses holds, for each cause, the ns of it in every bucket of Histogram, in the same order.
	HistogramCauses map[CauseName][]int64 `json:"histogram_causes,omitempty"`
	// Blocks summarise stretches of at least 250 ms, for intervals over time.
	Blocks []Block `json:"blocks"`
	// Peer is the group of this process that answers what requests of this one wait for over the network; nil if none does,
	// or too little tells.
	Peer *Peer `json:"peer,omitempty"`
	// Of is what marked requests are of: http, grpc, job, message.
	Of string `json:"of,omitempty"`
	// Statuses counts how marked requests came out: "2xx", "DeadlineExceeded".
	Statuses map[string]int `json:"statuses,omitempty"`
	// BeforeNS is how long before their marks requests reached the process: their headers were read, and they waited for a
	// P. It is no part of LatencyNS.
	BeforeNS     *Quantiles `json:"before_ns,omitempty"`
	ReadyToRunNS Quantiles  `json:"ready_to_run_ns"`
	PollGapNS    Quantiles  `json:"poll_gap_ns"`
	Bands        []Band     `json:"bands"`
	Slowest      []Request  `json:"slowest"`
	// Typical is a request near the median, for comparison; of a sample that does not depend on latency.
	Typical      *Request `json:"typical,omitempty"`
	TotalNS      int64    `json:"total_ns"`
	CutAtStart   int      `json:"cut_at_start,omitempty"` // requests that had begun before the trace
	UnresolvedNS int64    `json:"unresolved_ns,omitempty"`
}

// Open are requests that were still running at the end of the trace.
type Open struct {
	Count    int   `json:"count"`
	OldestNS int64 `json:"oldest_ns"`
	Site     *Site `json:"site"` // where the oldest one was
	// Waits are the places at which they stood, those at which the most time was stood first.
	Waits []OpenWait `json:"waits,omitempty"`
}

// An OpenWait is what requests that had not ended were at.
type OpenWait struct {
	Cause CauseName `json:"cause"`
	Site  *Site     `json:"site"`
	Via   []Via     `json:"via"`
	// Kind and Call are as in Cause.
	Kind     string `json:"kind,omitempty"`
	Call     string `json:"call,omitempty"`
	Count    int    `json:"count"`
	OldestNS int64  `json:"oldest_ns"`
	// StuckNS is for how long they had been in this very wait, the longest first, at most twenty of them.
	StuckNS []int64 `json:"stuck_ns"`
	AgesNS  []int64 `json:"ages_ns"` // how old they were, likewise
}

// TotalNS is for how long the requests whose StuckNS is known had stood there, all together.
func (w *OpenWait) TotalNS() (ns int64) {
	for _, one := range w.StuckNS {
		ns += one
	}
	return ns
}

// Latency are the percentiles of a group's latency; one without enough
// requests to be known is null.
type Latency struct {
	Mean *int64 `json:"mean"`
	P50  *int64 `json:"p50"`
	P90  *int64 `json:"p90"`
	P99  *int64 `json:"p99"`
	P999 *int64 `json:"p999"`
	Max  *int64 `json:"max"`
}

// Quantiles are three points of a distribution.
type Quantiles struct {
	P50 *int64 `json:"p50"`
	P99 *int64 `json:"p99"`
	Max *int64 `json:"max"`
}

// A Block summarises the requests that ended in one stretch of the trace.
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

// A Cause is what a part of a band's time was spent on.
type Cause struct {
	Cause    CauseName `json:"cause"`
	Site     *Site     `json:"site"`
	SiteFrom string    `json:"site_from,omitempty"`
	Via      []Via     `json:"via"`
	// Routes lists the chains of waits where there are several; Via is the first.
	Routes       []Route `json:"routes,omitempty"`
	RanMeanwhile []Share `json:"ran_meanwhile,omitempty"`
	TotalNS      int64   `json:"total_ns"`
	Share        float64 `json:"share"`
	// ShareError says, where only some of the band's requests were followed, how far Share may be off: 95 times of a hundred
	// by no more, as far as the sample tells, to 0.0001. It is 0 where all were.
	ShareError float64 `json:"share_error,omitempty"`
	Requests   int     `json:"requests"`
	// Samples is how many CPU samples fell into it, of running time: each stands for 10 ms of a CPU. The rest of TotalNS is
	// taken to be like them, or the thread had no CPU.
	Samples int `json:"samples,omitempty"`
	// Kind tells stops of the world apart (cause stw) and directions of network waits; C says of a system call that it is none, but a
	// call of C code.
	Kind string `json:"kind,omitempty"`
	// Call is the standard library's function that a wait or a system call was in, where one tells what it is for:
	// time.Sleep, os.(*File).Sync.
	Call string `json:"call,omitempty"`
}

// InC is the Kind of a system call that is none, but a call of C code: a trace shows both alike but for their stacks.
const InC = "C"

// A Route is one of several chains of waits that led to a cause.
type Route struct {
	Via     []Via `json:"via"`
	TotalNS int64 `json:"total_ns"`
}

// A Via is one wait on the way from the request to the goroutine that spent
// the time.
type Via struct {
	Wait WaitKind `json:"wait"`
	Site *Site    `json:"site"`
	Call string   `json:"call,omitempty"` // see Cause.Call
}

// A Share is a site's part of something, 0..1.
type Share struct {
	Site  *Site   `json:"site"`
	Share float64 `json:"share"`
}

// A Request is one slow request in full.
type Request struct {
	ID        string `json:"id"`
	StartNS   int64  `json:"start_ns"`
	LatencyNS int64  `json:"latency_ns"`
	Goroutine uint64 `json:"goroutine"`
	// Status is how a marked request came out. The ids are those of a tracing system, in hexadecimal digits: of the
	// request's own span, and of the span of who asked. A Datadog id is decimal.
	Status        string    `json:"status,omitempty"`
	TraceID       string    `json:"trace_id,omitempty"`
	SpanID        string    `json:"span_id,omitempty"`
	ParentSpanID  string    `json:"parent_span_id,omitempty"`
	DatadogSpanID string    `json:"datadog_span_id,omitempty"`
	Segments      []Segment `json:"segments"`
	Wakes         []Wake    `json:"wakes,omitempty"`
	Lanes         []Lane    `json:"lanes,omitempty"`
}

// A Segment is a stretch of a request's critical path with one cause.
type Segment struct {
	StartNS    int64     `json:"start_ns"`
	DurationNS int64     `json:"duration_ns"`
	Goroutine  uint64    `json:"goroutine"`
	Cause      CauseName `json:"cause"`
	Site       *Site     `json:"site"`
	Via        []Via     `json:"via"`
	Kind       string    `json:"kind,omitempty"`
	// Joined is set where short neighbours were made one, because there were too many. Cause is then CauseOther unless
	// all are of one cause, and Goroutine the one with most of the time.
	Joined *Joined `json:"joined,omitempty"`
}

// Joined says of what a joined segment was made.
type Joined struct {
	Count  int                 `json:"count"`
	Causes map[CauseName]int64 `json:"causes"` // ns by cause; they add up to the segment's duration
}

// A Wake is an edge of a slow request's path: From made To runnable.
type Wake struct {
	TimeNS int64  `json:"time_ns"`
	From   uint64 `json:"from"` // 0: a timer, the poller, or nobody known
	To     uint64 `json:"to"`
	Site   *Site  `json:"site"` // where From was
}

// A Lane is a goroutine that takes part in a slow request.
type Lane struct {
	Goroutine uint64     `json:"goroutine"`
	Name      string     `json:"name"` // its start function
	Spans     []LaneSpan `json:"spans"`
}

// A LaneSpan is one state of a lane's goroutine.
type LaneSpan struct {
	StartNS    int64  `json:"start_ns"`
	DurationNS int64  `json:"duration_ns"`
	State      string `json:"state"`
	Reason     string `json:"reason,omitempty"`
	Site       *Site  `json:"site"`
}

// A Finding is a rule's verdict.
type Finding struct {
	ID         string     `json:"id"`
	Code       RuleCode   `json:"code"`
	Severity   Severity   `json:"severity"`
	Title      string     `json:"title"`
	Cause      CauseName  `json:"cause"` // or a family, or empty
	Site       *Site      `json:"site"`
	Group      string     `json:"group"`
	Share      float64    `json:"share"`
	Confidence float64    `json:"confidence"`
	Evidence   []Evidence `json:"evidence"`
	Fix        string     `json:"fix"`
	Predicted  *Predicted `json:"predicted"`
	Ignored    string     `json:"ignored,omitempty"` // the reason given for ignoring it
	// AskedBy are groups of the same process whose requests wait for this group's over the network, and so meet the fault, too.
	AskedBy []AskedBy `json:"asked_by,omitempty"`
	// Decided is what gave it its severity; nil for facts, which are info whatever they cost.
	Decided *Decided `json:"decided,omitempty"`
	// Queue is what requests stand in line for, where that is the fault.
	Queue *Queue `json:"queue,omitempty"`
}

// A Queue is a line in which requests stand until others ahead of them are done.
type Queue struct {
	For string `json:"for"` // "a Mutex", "a connection of a database/sql pool"
	// At are the waits in line, of a path that leads through several the first.
	At []Via `json:"at"`
	// OwnNS is, of what lies behind such a wait, for how long a request's own turn takes, on average: 0 where that is no part of the wait.
	OwnNS int64 `json:"own_ns,omitempty"`
}

// Has reports whether a wait is one in the line, wherever the dependency that waits was called from.
func (q *Queue) Has(v *Via) bool {
	return slices.ContainsFunc(q.At, func(at Via) bool {
		return v.Wait == at.Wait && v.Call == at.Call && v.Site.LineKey() == at.Site.LineKey()
	})
}

// An AskedBy is a group whose requests wait for those of a finding's group, and what these lose to the fault.
type AskedBy struct {
	Group     string     `json:"group"` // id
	Name      string     `json:"name"`
	Share     float64    `json:"share"`   // of their time
	EachNS    int64      `json:"each_ns"` // of each, on average
	Predicted *Predicted `json:"predicted"`
}

// Decided are the numbers that decided a severity: what the fix would win of some requests, and the least of it for the
// severity.
type Decided struct {
	By         DecidedBy `json:"by"`
	Share      float64   `json:"share"` // of their time
	LeastShare float64   `json:"least_share"`
	NS         int64     `json:"ns"` // of each, on average
	LeastNS    int64     `json:"least_ns"`
}

// Evidence is one fact behind a finding.
type Evidence struct {
	Text  string  `json:"text"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// Predicted is what a change would win.
type Predicted struct {
	Change string `json:"change"`
	// Says is the change in words, "with one question instead of 10", where Change alone does not tell it.
	Says  string   `json:"says,omitempty"`
	P50NS Estimate `json:"p50_ns"`
	P99NS Estimate `json:"p99_ns"`
	// MaxNS is for the slowest request: where a few are far slower than the others, no percentile moves with them.
	MaxNS *Estimate `json:"max_ns,omitempty"`
	// The percentiles as they were, null where too few requests were seen; the 99th is then that of the requests there were.
	WasP50NS *int64 `json:"was_p50_ns,omitempty"`
	WasP99NS *int64 `json:"was_p99_ns,omitempty"`
	WasMaxNS *int64 `json:"was_max_ns,omitempty"`
	// Check compares it with requests of the same trace; nil if too few do. It has no part in the estimates.
	Check *Check `json:"check,omitempty"`
}

// A Check compares the median that is predicted of a group with natural variation: with those of its requests that met
// about as much of the cause as the change would leave, or else none. Time on all goroutines that a request's end depended
// on counts. It is evidence and no proof, because those requests may be of another kind. Numbers of requests are by the
// sample that the prediction is made from.
type Check struct {
	Requests  int    `json:"requests"` // that met from AtLeastNS to AtMostNS of it
	Sampled   int    `json:"sampled"`  // of them in the sample
	AtLeastNS int64  `json:"at_least_ns"`
	AtMostNS  int64  `json:"at_most_ns"`
	MetNS     int64  `json:"met_ns"`           // what the middle one of them met
	P50NS     int64  `json:"p50_ns"`           // their latency
	P99NS     *int64 `json:"p99_ns,omitempty"` // nil with fewer than a hundred
	// Affected is how many requests of the group the change would make faster by more than a tenth, LeftNS what it would
	// leave of the cause to the middle one of all, and PredictedNS the group's median.
	Affected    int      `json:"affected"`
	LeftNS      int64    `json:"left_ns"`
	PredictedNS Estimate `json:"predicted_ns"`
	// Gone says that too few requests met about as much as the change leaves, so that those that met next to none are
	// compared instead: Affected, LeftNS and PredictedNS are then with the cause gone.
	Gone bool `json:"gone,omitempty"`
	// Agrees says whether P50NS is within PredictedNS, a tenth of it or a fiftieth of what is won aside. False is said only
	// if chance does not explain the difference.
	Agrees bool `json:"agrees"`
}

// An Estimate is a prediction with its range.
type Estimate struct {
	Est  int64 `json:"est"`
	Low  int64 `json:"low"`
	High int64 `json:"high"`
}

// Runtime is how the Go runtime and the kernel behaved meanwhile.
type Runtime struct {
	GC       GC       `json:"gc"`
	Sched    Sched    `json:"sched"`
	Throttle Throttle `json:"throttle"`
	STW      []STW    `json:"stw"`
	// Stops are intervals in which no thread of the process might run, whatever it had to do; nil if there were none, as far as that
	// is known.
	Stops  *Stops  `json:"stops,omitempty"`
	Series *Series `json:"series,omitempty"`
}

// Stops are intervals in which a process did not run because something held all of it.
type Stops struct {
	// By is stopped (a signal), traced (a debugger) or frozen (the freezer of its cgroup), as the kernel said meanwhile; "" where only
	// the trace suggests it: arrivals stopped, and as many as were missing came at once.
	By      string `json:"by,omitempty"`
	How     string `json:"how"`
	TotalNS int64  `json:"total_ns"`
	// During is how many requests were under way, After how many had come meanwhile: for the trace these began when the process
	// went on, so that their latency does not show it. Of Requests.
	During     int     `json:"during"`
	After      int     `json:"after"`
	Requests   int     `json:"requests"`
	Confidence float64 `json:"confidence"`
	// Intervals holds [start, length] of at most 500.
	Count     int        `json:"count"`
	Intervals [][2]int64 `json:"intervals"`
}

// Series is how the runtime behaved over the time of the trace. Points and
// stretches are thinned out in long traces: the largest of neighbours stays.
type Series struct {
	HeapBytes  [][2]int64 `json:"heap_bytes"` // [time in ns, bytes]
	GoalBytes  [][2]int64 `json:"goal_bytes"`
	GOMAXPROCS [][2]int64 `json:"gomaxprocs"` // [time in ns, its value from then on]
	GC         [][2]int64 `json:"gc"`         // [start, length] of mark phases
	STW        [][2]int64 `json:"stw"`        // [start, length] of stops of the world
	// PsIdle holds [time, parts per million]: of a stretch that begins then and is StepNS long, the share in which at
	// least one P stood idle.
	PsIdle [][2]int64 `json:"ps_idle"`
	// Running, Runnable and Syscall hold [time, thousandths]: of a stretch that begins then and is StepNS long, the mean
	// number of goroutines that were running, ready to run, or in a system call.
	Running  [][2]int64 `json:"running,omitempty"`
	Runnable [][2]int64 `json:"runnable,omitempty"`
	Syscall  [][2]int64 `json:"syscall,omitempty"`
	// Freezes holds [start, length] of stretches in which the kernel held the process back.
	Freezes [][2]int64 `json:"freezes,omitempty"`
	StepNS  int64      `json:"step_ns"`
}

// GC is how garbage collection behaved.
type GC struct {
	Cycles       int   `json:"cycles"`
	MarkNS       int64 `json:"mark_ns"` // wall time with a mark phase under way
	HeapMaxBytes int64 `json:"heap_max_bytes"`
	GoalMaxBytes int64 `json:"goal_max_bytes"`
}

// STW sums the stops of the world of one kind.
type STW struct {
	Kind    string `json:"kind"`
	Count   int    `json:"count"`
	TotalNS int64  `json:"total_ns"`
	MaxNS   int64  `json:"max_ns"`
}

// Sched is how the scheduler behaved.
type Sched struct {
	Goroutines int     `json:"goroutines"` // seen in the trace
	PsIdle     float64 `json:"ps_idle"`    // share of time in which at least one P stood idle
	// WithoutCPU is for which part of the time in which goroutines showed as running CPU samples saw none of them on a CPU, where that
	// is the larger part and no host samples tell it better.
	WithoutCPU float64 `json:"without_cpu,omitempty"`
}

// WithoutCPU returns for which part of the time in which goroutines showed as running their threads had no CPU, for whatever reason
// but a quota that is known: by host samples, else by CPU samples. It is 0 where nothing is known.
func (r *Report) WithoutCPU() float64 {
	if r.Host == nil {
		return r.Runtime.Sched.WithoutCPU
	}
	without, _ := r.Host.Lost.WithoutCPU()
	return without
}

// Throttle says whether the kernel held the process back.
type Throttle struct {
	Verdict    ThrottleVerdict `json:"verdict"`
	How        string          `json:"how"`
	PeriodNS   int64           `json:"period_ns"`
	LostWallNS int64           `json:"lost_wall_ns"` // covered by freezes
	LostCPUNS  int64           `json:"lost_cpu_ns"`  // freezes times the CPUs they held: what compares with throttled time
	Confidence float64         `json:"confidence"`
	// Freezes are counted in a trace that shows them; R (Rayleigh's, 0..1) is how closely the ends of the N silences looked
	// at follow the period, and CPUs how many CPUs a freeze held at most.
	Freezes int     `json:"freezes,omitempty"`
	R       float64 `json:"r,omitempty"`
	N       int     `json:"n,omitempty"`
	CPUs    int     `json:"cpus,omitempty"`
	// Suspect counts stretches that may have been freezes where that is not sure: a quota cannot be excluded then.
	Suspect int `json:"suspect,omitempty"`
}
