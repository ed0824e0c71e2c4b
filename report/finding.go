package report

import "slices"

// A Finding is a fault that a rule found.
type Finding struct {
	ID         string    `json:"id"`
	Code       RuleCode  `json:"code"`
	Severity   Severity  `json:"severity"`
	Title      string    `json:"title"`
	Service    string    `json:"service,omitempty"` // whose code is to be changed, of several services
	Cause      CauseName `json:"cause"`             // or a family, or empty
	Site       *Site     `json:"site"`
	Group      string    `json:"group"`
	Share      float64   `json:"share"`
	Confidence float64   `json:"confidence"`
	// Doubt is why Confidence is low, in a clause; empty if it is not.
	Doubt string `json:"doubt,omitempty"`
	// DoubtedBy is the rule whose finding is that reason; empty if it is another one.
	DoubtedBy RuleCode `json:"doubted_by,omitempty"`
	// CallsAtOnce is how many calls are under way at a peer when its answers take longest; 0 unless these calls wait for each other.
	CallsAtOnce int `json:"calls_at_once,omitempty"`
	// InService means that a change of the service avoids the waits for the peer.
	InService bool       `json:"in_service,omitempty"`
	Evidence  []Evidence `json:"evidence"`
	// Fix is what to do, with alternatives and conditions. It begins with Remedy: the first thing to do, in a complete clause.
	Fix    string `json:"fix"`
	Remedy string `json:"remedy,omitempty"`
	// Changes are what Fix advises, as far as a trace can answer it: Predicted is for all of them together. It is empty if requests
	// cannot be timed again with the fix.
	Changes   []Change   `json:"changes,omitempty"`
	Predicted *Predicted `json:"predicted"`
	// Combined is for these changes and those of the earlier findings of the same group, of medium or high severity.
	Combined *Predicted `json:"together,omitempty"`
	Ignored  string     `json:"ignored,omitempty"` // the reason of the option that ignores it
	// AskedBy are groups of the same process whose requests wait for this group's over the network, and so for the fault, too.
	AskedBy []AskedBy `json:"asked_by,omitempty"`
	// Decided holds the numbers that decided Severity; nil for facts, which are always info.
	Decided *Decided `json:"decided,omitempty"`
	// Queue is what requests queue for, if that is the fault.
	Queue *Queue `json:"queue,omitempty"`
}

// A Change is one change of the service, as data.
type Change struct {
	Kind  ChangeKind `json:"kind"`
	Cause CauseName  `json:"cause,omitempty"` // of ChangeTime and ChangeShare: only this cause, or this family, or "queue"
	Site  string     `json:"site,omitempty"`  // as --what-if accepts it
	Value float64    `json:"value"`           // in the unit of the kind; 0 where the kind has none
	// Text is the change as --what-if and whylate.ParseChange accept it.
	Text string `json:"what_if"`
}

// SameFault reports whether two findings, of two reports, are of one fault: by their ids, or by rule and place, because requests can be
// in another group and lines move.
func (f *Finding) SameFault(o *Finding) bool {
	return f.ID != "" && f.ID == o.ID || f.Code == o.Code && f.SamePlace(o)
}

// SamePlace reports whether two findings have the same function and, if both reports have callers, the same caller.
func (f *Finding) SamePlace(o *Finding) bool {
	if f.Site == nil || o.Site == nil || f.Site.CalledFrom == nil || o.Site.CalledFrom == nil {
		return f.Site.LineKey().Func == o.Site.LineKey().Func
	}
	return f.Site.OwnLine().Func == o.Site.OwnLine().Func
}

// A Queue is what requests wait for until others ahead of them have finished.
type Queue struct {
	For string `json:"for"` // "a Mutex", "a connection of a database/sql pool"
	// Waits are the waits in the queue. Of a path with several only the first counts.
	Waits []Via `json:"at"`
	// OwnNS is how long a request's own turn takes, on average, if the wait contains it, else 0.
	OwnNS int64 `json:"own_ns,omitempty"`
}

// Contains reports whether v is a wait in the queue, from wherever the waiting dependency was called.
func (q *Queue) Contains(v *Via) bool {
	return slices.ContainsFunc(q.Waits, func(wait Via) bool {
		return v.Wait == wait.Wait && v.Call == wait.Call && v.Site.LineKey() == wait.Site.LineKey()
	})
}

// An AskedBy is a group whose requests wait for those of a finding's group, with the time that they lose to the fault.
type AskedBy struct {
	Group     string     `json:"group"` // id
	Name      string     `json:"name"`
	Share     float64    `json:"share"`   // of their time
	EachNS    int64      `json:"each_ns"` // per request, on average
	Predicted *Predicted `json:"predicted"`
}

// Decided is what the fix would win for some requests, and how much of it the severity requires.
type Decided struct {
	Requests   DecidedBy `json:"by"`
	Share      float64   `json:"share"` // of their time
	LeastShare float64   `json:"least_share"`
	NS         int64     `json:"ns"` // per request, on average
	LeastNS    int64     `json:"least_ns"`
}

// Evidence is one fact behind a finding.
type Evidence struct {
	Text  string  `json:"text"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}
