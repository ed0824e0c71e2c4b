package report

// A Goal is a limit that was requested for a percentile of a group's latency.
type Goal struct {
	Group      string `json:"group"` // id
	Name       string `json:"name"`
	Percentile string `json:"percentile"` // p50 or p99
	MostNS     int64  `json:"most_ns"`
	IsNS       *int64 `json:"is_ns"` // null if there are too few requests
	Kept       bool   `json:"kept"`
	// If the goal is missed, Predicted is what the fewest changes win that reach it (Reached), else the three that come
	// nearest; null if nothing can be predicted. Changes is their number.
	Reached   bool       `json:"reached"`
	Changes   int        `json:"changes"`
	Predicted *Predicted `json:"predicted"`
}

// A WhatIf is a prediction that was requested.
type WhatIf struct {
	Group     string    `json:"group"` // id
	Name      string    `json:"name"`
	Requests  int       `json:"requests"`
	Predicted Predicted `json:"predicted"`
	// Note says, for settings such as GOGC, what the trace shows of them, and what the prediction is based on.
	Note string `json:"note,omitempty"`
}

// Predicted is the latency that a group would have after a change.
type Predicted struct {
	Change string `json:"change"`
	// ChangeText is the change in words, "with one call instead of 10", if Change alone does not say it.
	ChangeText string `json:"says,omitempty"`
	// FromArrival says that latencies are from the arrival of messages, see Group.Backlog.
	FromArrival bool     `json:"from_arrival,omitempty"`
	P50NS       Estimate `json:"p50_ns"`
	P99NS       Estimate `json:"p99_ns"`
	// MaxNS is for the slowest request: a few very slow ones move no percentile.
	MaxNS *Estimate `json:"max_ns,omitempty"`
	// The percentiles without the change, null if there are too few requests. P99NS is then predicted for the few there are.
	WasP50NS *int64 `json:"was_p50_ns,omitempty"`
	WasP99NS *int64 `json:"was_p99_ns,omitempty"`
	WasMaxNS *int64 `json:"was_max_ns,omitempty"`
	// P90NS is predicted for messages only: one that takes long itself makes those behind it late, which the 99th percentile may hide.
	P90NS    *Estimate `json:"p90_ns,omitempty"`
	WasP90NS *int64    `json:"was_p90_ns,omitempty"`
	// Check compares the prediction with requests of the same trace; nil if too few are comparable. The estimates do not use it.
	Check *Check `json:"check,omitempty"`
}

// A Check compares a predicted median with natural variation: with the group's requests that met about as much of the cause
// as the change would leave, or else none of it. Time on all goroutines on which a request's end depends counts. It is
// evidence, not proof: those requests may differ in other ways. Requests are counted by the sample used for the prediction.
type Check struct {
	Requests  int    `json:"requests"` // that met AtLeastNS to AtMostNS of the cause
	Sampled   int    `json:"sampled"`  // of them in the sample
	AtLeastNS int64  `json:"at_least_ns"`
	AtMostNS  int64  `json:"at_most_ns"`
	MetNS     int64  `json:"met_ns"`           // the median of their time in the cause
	P50NS     int64  `json:"p50_ns"`           // their latency
	P99NS     *int64 `json:"p99_ns,omitempty"` // nil with fewer than a hundred
	// Affected counts the group's requests that the change makes faster by more than 10 %. LeftNS is the median of the time in the
	// cause that the change leaves, over the whole group, and PredictedNS the group's predicted median.
	Affected    int      `json:"affected"`
	LeftNS      int64    `json:"left_ns"`
	PredictedNS Estimate `json:"predicted_ns"`
	// CauseRemoved reports that too few requests met as much as the change leaves, so that those that met almost nothing are compared:
	// Affected, LeftNS and PredictedNS are then for a change that removes the cause.
	CauseRemoved bool `json:"gone,omitempty"`
	// Agrees reports whether P50NS is within PredictedNS, or differs from it by no more than 10 % of it or 2 % of the predicted gain.
	// It is false only if chance does not explain the difference.
	Agrees bool `json:"agrees"`
}

// An Estimate is a prediction with its range.
type Estimate struct {
	Est  int64 `json:"est"`
	Low  int64 `json:"low"`
	High int64 `json:"high"`
}

// IsNumber reports whether the estimate may be written without its range: the ends are within 1.5 times the middle of the range.
func (e *Estimate) IsNumber() bool { return 4*e.High <= 9*e.Low || e.Low == e.High }
