package report

// A CauseName says what a part of a request's latency was spent on. The names are part of the contract.
type CauseName string

// Causes. A cause has a site unless its time cannot be given to a place.
const (
	CauseCPU       CauseName = "cpu"        // running
	CauseSched     CauseName = "sched"      // runnable while all Ps were busy
	CauseSchedWake CauseName = "sched-wake" // runnable while a P was idle: the latency of waking a thread
	CauseSchedPoll CauseName = "sched-poll" // the end of a network wait during which no P polled; an upper bound
	CauseThrottle  CauseName = "throttle"   // held back by a CPU quota
	CauseGCAssist  CauseName = "gc-assist"  // marking or sweeping for the garbage collector, because the goroutine allocated
	CauseGCWait    CauseName = "gc-wait"    // waiting for a phase of the garbage collector
	CauseSTW       CauseName = "stw"        // the world was stopped; Cause.Kind says for what
	CauseSleep     CauseName = "sleep"      // time.Sleep, timers, tickers, deadlines
	CauseNetwork   CauseName = "network"    // the poller: a peer has not answered or not sent yet; also pipes
	CauseSyscall   CauseName = "syscall"    // in the kernel or in cgo
	CauseLock      CauseName = "lock"       // a lock whose release no goroutine of this process explains
	CauseChan      CauseName = "chan"       // a channel operation whose end no goroutine of this process explains
	CauseCPUWait   CauseName = "cpu-wait"   // running, but the thread waited for a CPU; Cause.Kind says what had it; only with the kernel's events
	CauseDisk      CauseName = "disk"       // a page fault that waits for a disk; only with the kernel's events
	CauseQueue     CauseName = "queue"      // waiting for a slot, a server or a stream while others have them; Cause.Behind says what those did
	CauseUnknown   CauseName = "unknown"    // before the trace began, or lost
	// CauseOther sums the rows that a capped list leaves out. A single segment never has it.
	CauseOther CauseName = "other"
)

// Families are words for several causes together. A finding may name one in place of a cause.
const (
	FamilyGC    CauseName = "gc"       // CauseGCAssist, CauseGCWait and CauseSTW
	FamilySched CauseName = CauseSched // CauseSched, CauseSchedWake and CauseSchedPoll
)

// Causes returns the causes that a row can have, CauseOther last.
func Causes() []CauseName {
	return []CauseName{
		CauseCPU, CauseSched, CauseSchedWake, CauseSchedPoll, CauseThrottle, CauseGCAssist, CauseGCWait, CauseSTW, CauseSleep, CauseNetwork,
		CauseSyscall, CauseLock, CauseChan, CauseCPUWait, CauseDisk, CauseQueue, CauseUnknown, CauseOther,
	}
}

// Family returns the causes of a family, or the cause itself for the name of a cause. It is nil for any other name.
func Family(name CauseName) []CauseName {
	switch name {
	case FamilyGC:
		return []CauseName{CauseGCAssist, CauseGCWait, CauseSTW}
	case FamilySched:
		return []CauseName{CauseSched, CauseSchedWake, CauseSchedPoll}
	}
	for _, c := range Causes() {
		if c == name {
			return []CauseName{c}
		}
	}
	return nil
}

// A WaitKind says what a goroutine waited for while another one worked for it.
type WaitKind string

// Arrived is the kind of the time between the arrival of a request's first byte and its poll, if the kernel's events show both.
const Arrived = "arrived"

// Kinds of wait.
const (
	WaitAny       WaitKind = "wait" // of a kind that its stack does not show
	WaitLock      WaitKind = "lock"
	WaitGroup     WaitKind = "waitgroup"
	WaitCond      WaitKind = "cond"
	WaitOnce      WaitKind = "once"
	WaitChan      WaitKind = "chan" // a receive
	WaitChanSend  WaitKind = "chan send"
	WaitSelect    WaitKind = "select"
	WaitCoroutine WaitKind = "coroutine"
	WaitNetwork   WaitKind = "network" // ended by a goroutine: a deadline or a close
	WaitPeer      WaitKind = "peer"    // for the answer of this process itself, over the network
)

// WaitKinds returns all kinds of wait.
func WaitKinds() []WaitKind {
	return []WaitKind{WaitAny, WaitLock, WaitGroup, WaitCond, WaitOnce, WaitChan, WaitChanSend, WaitSelect, WaitCoroutine, WaitNetwork, WaitPeer}
}

// A Kind says how the requests of a group were found.
type Kind string

// Kinds of group.
const (
	KindMark      Kind = "mark" // marked by the service itself: service/mark
	KindTask      Kind = "task"
	KindRegion    Kind = "region"
	KindHTTP1     Kind = "http1"
	KindHTTP2     Kind = "http2"
	KindGRPC      Kind = "grpc"
	KindWebSocket Kind = "websocket" // messages, each until the next one is waited for
	KindGoroutine Kind = "goroutine"
	KindLoop      Kind = "loop"
	KindFunc      Kind = "func"
	KindRun       Kind = "run" // a whole program, or a benchmark, whose parts nothing waits for
)

type kindFacts struct {
	kind     Kind
	noun     string
	protocol string
	isCall   bool
}

// kinds is the table of kinds: the noun for one request, the protocol of the client, and whether the protocol has one message and one
// answer for each request.
var kinds = [...]kindFacts{
	{KindMark, "request", "", false},
	{KindTask, "request", "", false},
	{KindRegion, "request", "", false},
	{KindHTTP1, "request", "HTTP/1", true},
	{KindHTTP2, "request", "HTTP/2", true},
	{KindGRPC, "request", "gRPC", true},
	{KindWebSocket, "message", "WebSocket", false},
	{KindGoroutine, "job", "", false},
	{KindLoop, "iteration", "", false},
	{KindFunc, "call", "", false},
	{KindRun, "run", "", false},
}

// Kinds returns all kinds of group.
func Kinds() []Kind {
	var out []Kind
	for i := range kinds {
		out = append(out, kinds[i].kind)
	}
	return out
}

// facts returns the row of a kind. An unknown kind gets a row with the noun "request".
func (k Kind) facts() kindFacts {
	for i := range kinds {
		if kinds[i].kind == k {
			return kinds[i]
		}
	}
	return kindFacts{kind: k, noun: "request"}
}

// RequestNoun is the noun for one request of this kind: request, message, job, iteration, call or run.
func (k Kind) RequestNoun() string { return k.facts().noun }

// Protocol names the protocol by which others ask for requests of this kind. It is empty where the kind names none.
func (k Kind) Protocol() string { return k.facts().protocol }

// IsCall reports whether a protocol has one message that asks for each request of this kind, and one answer to it.
func (k Kind) IsCall() bool { return k.facts().isCall }

// IsWork reports whether requests of this kind are work of the process, for which a client waits only if one asks for it.
func (k Kind) IsWork() bool { return k == KindGoroutine || k == KindLoop }

// A Role is what a group is to the process.
type Role string

// Roles.
const (
	RoleRequests   Role = ""           // clients wait for them
	RoleBackground Role = "background" // work of the process itself, not for clients
	RoleMonitoring Role = "monitoring" // what watches the process: its metrics, health checks
)

// Roles returns all roles, in the order in which groups are listed.
func Roles() []Role { return []Role{RoleRequests, RoleBackground, RoleMonitoring} }

// A LeftOutReason says why work is no group of the report.
type LeftOutReason string

// Reasons.
const (
	LeftOutServing LeftOutReason = "serving" // it is done for requests that are groups, and part of them
	LeftOutPart    LeftOutReason = "part"    // nothing waits for it alone: it is part of the program's run
	LeftOutLibrary LeftOutReason = "library" // the machinery of a library: no line of the service's own code was seen in it
)

// LeftOutReasons returns all reasons.
func LeftOutReasons() []LeftOutReason {
	return []LeftOutReason{LeftOutServing, LeftOutPart, LeftOutLibrary}
}

// A BandName names the requests of a group between two percentiles of its latency, or its outliers.
type BandName string

// Bands, by latency.
const (
	BandAll  BandName = "all"
	Band5090 BandName = "p50-90"
	Band9099 BandName = "p90-99"
	Band99   BandName = "p99-max"
	// BandOutliers exists only if some requests, often only a few, were far slower than usual. Its requests are also in one of the
	// other bands.
	BandOutliers BandName = "outliers"
)

// BandNames returns all bands in the order of Group.Bands.
func BandNames() []BandName { return []BandName{BandAll, Band5090, Band9099, Band99, BandOutliers} }

// A MomentKind names something of the whole process that holds up requests together.
type MomentKind string

// Kinds of events in a Moment.
const (
	MomentGC     MomentKind = "gc"
	MomentSTW    MomentKind = "stw"
	MomentFreeze MomentKind = "freeze"
	MomentHerd   MomentKind = "herd"
)

// MomentKinds returns all of them.
func MomentKinds() []MomentKind {
	return []MomentKind{MomentGC, MomentSTW, MomentFreeze, MomentHerd}
}

// A Severity says how much fixing a finding would win.
type Severity string

// Severities of findings.
const (
	SeverityHigh   Severity = "high"
	SeverityMedium Severity = "medium"
	SeverityLow    Severity = "low"
	SeverityInfo   Severity = "info" // no fault, or a fact that weakens the report
)

// Severities returns all severities, worst first.
func Severities() []Severity {
	return []Severity{SeverityHigh, SeverityMedium, SeverityLow, SeverityInfo}
}

// IsMajor reports whether the severity is high or medium. A finding of it answers why requests are slow.
func (s Severity) IsMajor() bool { return s == SeverityHigh || s == SeverityMedium }

// A ThrottleVerdict says whose CPU quota held the process back.
type ThrottleVerdict string

// Verdicts about throttling.
const (
	ThrottleOwn      ThrottleVerdict = "own"      // the quota of the process's own group
	ThrottleAncestor ThrottleVerdict = "ancestor" // the quota of a group above it
	ThrottleNone     ThrottleVerdict = "none"     // measured, and zero
	ThrottleUnknown  ThrottleVerdict = "unknown"  // it cannot be measured here
)

// ThrottleVerdicts returns all verdicts about throttling.
func ThrottleVerdicts() []ThrottleVerdict {
	return []ThrottleVerdict{ThrottleOwn, ThrottleAncestor, ThrottleNone, ThrottleUnknown}
}

// HeldBack reports whether a quota held the process back.
func (v ThrottleVerdict) HeldBack() bool { return v == ThrottleOwn || v == ThrottleAncestor }

// A ChangeKind says what a Change changes, and the unit of its value.
type ChangeKind string

// Kinds of changes.
const (
	ChangeTime       ChangeKind = "time"       // ns: each wait or computation at the site takes at most this; 0: there are none
	ChangeShare      ChangeKind = "share"      // 0 to 1: each takes this share of its length
	ChangeSlots      ChangeKind = "slots"      // number of slots of the pool for which requests wait at the site
	ChangeUnlock     ChangeKind = "unlock"     // what the site does is no longer done while a lock or slot is held
	ChangeCalls      ChangeKind = "calls"      // number of calls from the site that each request makes
	ChangeParallel   ChangeKind = "parallel"   // a request's calls from the site run at the same time
	ChangeReuse      ChangeKind = "reuse"      // no connection is opened at the site, so no name looked up and no handshake made
	ChangeGOGC       ChangeKind = "GOGC"       // percent; off is a negative number
	ChangeGOMEMLIMIT ChangeKind = "GOMEMLIMIT" // bytes
	ChangeGOMAXPROCS ChangeKind = "GOMAXPROCS" // number of Ps
	ChangeQuota      ChangeKind = "quota"      // CPUs
)

// ChangeKinds returns all kinds of changes.
func ChangeKinds() []ChangeKind {
	return []ChangeKind{
		ChangeTime, ChangeShare, ChangeSlots, ChangeUnlock, ChangeCalls, ChangeParallel, ChangeReuse,
		ChangeGOGC, ChangeGOMEMLIMIT, ChangeGOMAXPROCS, ChangeQuota,
	}
}

// DecidedBy says which requests decided a severity.
type DecidedBy string

// Requests that decide.
const (
	DecidedByAll    DecidedBy = "all"    // all of the group
	DecidedBySlow   DecidedBy = "slow"   // those of Group.Tail
	DecidedByBeside DecidedBy = "beside" // outliers where Group.Tail is by percentiles, and the other way round
)

// DecidedBys returns all of them.
func DecidedBys() []DecidedBy { return []DecidedBy{DecidedByAll, DecidedBySlow, DecidedByBeside} }

// A BlindReason says what a recording lacks for rules to judge, or that they failed.
type BlindReason string

// What recordings may lack.
const (
	BlindRequests    BlindReason = "requests"     // no request ended
	BlindTime        BlindReason = "time"         // it is too short
	BlindCPUSamples  BlindReason = "cpu-samples"  // it has no or too few CPU samples
	BlindHostSamples BlindReason = "host-samples" // no samples of the kernel's counters
	BlindOutside     BlindReason = "outside"      // it was made from outside the process and does not show Ps and garbage collection
	BlindError       BlindReason = "error"        // it lacks nothing: a rule failed, which is an error of whylate
)

// BlindReasons returns all reasons, in the order of reports.
func BlindReasons() []BlindReason {
	return []BlindReason{BlindRequests, BlindTime, BlindCPUSamples, BlindHostSamples, BlindOutside, BlindError}
}

// A NetworkVerdict says whether the network lost segments.
type NetworkVerdict string

// Verdicts about the network.
const (
	NetworkLost    NetworkVerdict = "lost"    // segments were sent again while slow requests waited for the network
	NetworkCleared NetworkVerdict = "cleared" // nothing was lost: the other side, or this process, let requests wait
	NetworkUnknown NetworkVerdict = "unknown"
)

// NetworkVerdicts returns all verdicts about the network.
func NetworkVerdicts() []NetworkVerdict {
	return []NetworkVerdict{NetworkLost, NetworkCleared, NetworkUnknown}
}

// A RuleCode names the rule that made a finding: WL, a digit for the family, three for the rule. `whylate rules CODE`
// explains it.
type RuleCode string

// Rules.
const (
	RuleHubLate            RuleCode = "WL1001"
	RulePsTaken            RuleCode = "WL1002"
	RuleSlowWakeup         RuleCode = "WL1003"
	RuleHerd               RuleCode = "WL1004"
	RuleTooManyPs          RuleCode = "WL1005"
	RuleTooFewPs           RuleCode = "WL1006"
	RuleLongRuns           RuleCode = "WL1007"
	RuleComputes           RuleCode = "WL1008"
	RuleBusyMachine        RuleCode = "WL1009"
	RuleSleep              RuleCode = "WL2001"
	RuleLockConvoy         RuleCode = "WL2002"
	RulePoolTooSmall       RuleCode = "WL2003"
	RuleFlushInterval      RuleCode = "WL2004"
	RuleSlowPeer           RuleCode = "WL2005"
	RuleSlowClient         RuleCode = "WL2006"
	RuleBlockingSyscall    RuleCode = "WL2007"
	RuleRetransmissions    RuleCode = "WL2008"
	RuleHung               RuleCode = "WL2009"
	RuleMarkAssist         RuleCode = "WL3001"
	RuleGCTakesPs          RuleCode = "WL3002"
	RuleStoppedWorld       RuleCode = "WL3003"
	RuleGCTooFrequent      RuleCode = "WL3004"
	RuleForcedGC           RuleCode = "WL3005"
	RuleThrottled          RuleCode = "WL4001"
	RuleGOMAXPROCSAndLimit RuleCode = "WL4002"
	RuleStopped            RuleCode = "WL4003"
	RuleFewRequests        RuleCode = "WL5001"
	RuleTruncated          RuleCode = "WL5002"
	RuleBiasedNames        RuleCode = "WL5003"
	RuleTraceOverhead      RuleCode = "WL5004"
	RuleLoadInProcess      RuleCode = "WL5005"
	RulePollGaps           RuleCode = "WL5006"
	RuleClock              RuleCode = "WL5007"
	RuleLostEvents         RuleCode = "WL5008"
	RuleShortWindow        RuleCode = "WL5009"
	RuleOneSlowPeriod      RuleCode = "WL5010"
	RuleThreadsOffCPU      RuleCode = "WL5011"
)

// OfMachine reports whether a finding of the rule is a fault of the shared machine, not of the service. If there are other findings,
// it is shown without advice, and Foremost returns another one.
func (c RuleCode) OfMachine() bool { return c == RuleBusyMachine }

// RuleCodes returns the codes of all rules.
func RuleCodes() []RuleCode {
	return []RuleCode{
		RuleHubLate, RulePsTaken, RuleSlowWakeup, RuleHerd, RuleTooManyPs, RuleTooFewPs,
		RuleLongRuns, RuleComputes, RuleBusyMachine, RuleSleep, RuleLockConvoy, RulePoolTooSmall, RuleFlushInterval,
		RuleSlowPeer, RuleSlowClient, RuleBlockingSyscall, RuleRetransmissions, RuleHung, RuleMarkAssist, RuleGCTakesPs,
		RuleStoppedWorld, RuleGCTooFrequent, RuleForcedGC, RuleThrottled, RuleGOMAXPROCSAndLimit, RuleStopped, RuleFewRequests,
		RuleTruncated, RuleBiasedNames, RuleTraceOverhead, RuleLoadInProcess, RulePollGaps, RuleClock,
		RuleLostEvents, RuleShortWindow, RuleOneSlowPeriod, RuleThreadsOffCPU,
	}
}
