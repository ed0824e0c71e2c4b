package report

// LimitKind is what kind of resource a limit is.
type LimitKind string

// Kinds of limits.
const (
	LimitLock  LimitKind = "lock"
	LimitPool  LimitKind = "pool"      // slots of a pool or a semaphore
	LimitStage LimitKind = "goroutine" // goroutines that do one thing after the other for requests
	LimitCPU   LimitKind = "cpu"
	LimitQuota LimitKind = "quota" // a CPU quota of the kernel
)

// A Capacity says at which load each resource of the process saturates, if there are only more of the same
// requests: a resource with m servers, of which each request needs D ns, serves no more than m/D requests.
type Capacity struct {
	LoadPerS float64 `json:"load_per_s"` // requests a second in the recording
	Text     string  `json:"text"`
	// Limits are the resources that can be judged, the one that saturates first at the beginning.
	Limits []Limit `json:"limits"`
	// NotJudged are resources that this recording does not show well enough. Each may be a lower limit.
	NotJudged []NotJudged `json:"not_judged"`
	// Curve has latencies at several loads, up to 95 % of the first limit; empty if there is no limit.
	Curve []CurvePoint `json:"curve"`
	// ClosedClients is how many requests the clients keep in the process at all times, each sending the next request when it has
	// its answer; 0 if they do not.
	ClosedClients int `json:"closed_clients,omitempty"`
	// Goals are the highest loads that keep the limits of latency of the question.
	Goals []CapacityGoal `json:"goals,omitempty"`
	// AskedLoadPerS is the load that the question asks about; 0 if it asks about none. The curve has it if it is below the first limit.
	AskedLoadPerS float64 `json:"asked_load_per_s,omitempty"`
	// Changes are those that the numbers assume.
	Changes []string `json:"changes,omitempty"`
}

// A Limit is a resource and the load at which it saturates.
type Limit struct {
	Kind LimitKind `json:"kind"`
	Site *Site     `json:"site"` // where requests wait for it, or where its goroutine waits for work; null for the CPU
	// Servers is how many requests it serves at once, and DemandNS for how long each request needs it, on average over all
	// requests. Utilisation is the share of it that is in use in the recording.
	Servers     float64 `json:"servers"`
	DemandNS    int64   `json:"demand_ns"`
	Utilisation float64 `json:"utilisation"`
	// SaturatesPerS is the load at which it saturates, between SaturatesLow and SaturatesHigh.
	SaturatesPerS float64 `json:"saturates_per_s"`
	SaturatesLow  float64 `json:"saturates_low"`
	SaturatesHigh float64 `json:"saturates_high"`
	// Basis says by what the demand is known.
	Basis  string       `json:"basis"`
	Groups []LimitShare `json:"groups"`
	// CollectorShare is the garbage collector's share of the demand for CPU.
	CollectorShare float64 `json:"collector_share,omitempty"`
	// Growth is the demand in two recordings; nil with one.
	Growth *Growth `json:"growth,omitempty"`
}

// A LimitShare is a group's share of the demand for a resource.
type LimitShare struct {
	Group string  `json:"group"`
	Name  string  `json:"name"`
	Share float64 `json:"share"`
}

// NotJudged is a resource that may be a limit, but of which the recording does not show enough.
type NotJudged struct {
	Kind   LimitKind `json:"kind,omitempty"`
	Site   *Site     `json:"site,omitempty"`
	Reason string    `json:"reason"`
}

// A CurvePoint has the latencies of all requests together at a load, with their intervals.
type CurvePoint struct {
	LoadPerS float64  `json:"load_per_s"`
	P50NS    int64    `json:"p50_ns"`
	P99NS    int64    `json:"p99_ns"`
	P50      Estimate `json:"p50"`
	P99      Estimate `json:"p99"`
}

// A CapacityGoal is the highest load at which a percentile of latency stays within a limit; 0 if none does.
type CapacityGoal struct {
	Percentile string  `json:"percentile"`
	MostNS     int64   `json:"most_ns"`
	LoadPerS   float64 `json:"load_per_s"`
}

// Growth is how the demand of a request for a resource changes with load, by two recordings.
type Growth struct {
	LoadPerS [2]float64 `json:"load_per_s"`
	DemandNS [2]int64   `json:"demand_ns"`
}
