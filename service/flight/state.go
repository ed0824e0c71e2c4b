package flight

import (
	"maps"
	"math"
	"time"
)

// A State says what a recorder does and has done.
type State struct {
	// Recording reports whether the runtime's flight recorder runs; if not, Why says why.
	Recording bool   `json:"recording"`
	Why       string `json:"why,omitempty"`
	// Cost is the share of the CPUs that the runtime's flight recorder takes while it
	// runs, or would take while it is off. CostFrom says how it was measured.
	Cost     float64 `json:"cost"`
	CostFrom string  `json:"cost_from,omitempty"`
	// Budget is Options.Budget, 0 without a limit. Duty is the share of the time that the
	// recorder runs to stay within it, and Off how long the budget kept it off.
	Budget float64       `json:"budget,omitempty"`
	Duty   float64       `json:"duty"`
	Off    time.Duration `json:"off_ns,omitempty"`
	// BytesPerSecond is how fast the runtime's flight recorder wrote when last measured.
	BytesPerSecond float64 `json:"bytes_per_second,omitempty"`
	// OwnCost is the share of the CPUs that reading the kernel's counters takes. Above
	// 0.15 % they are read less often.
	OwnCost float64 `json:"own_cost"`
	// Reach is about how far back a recording reaches: MinAge, or less if MaxBytes are
	// written in less time.
	Reach time.Duration `json:"reach_ns"`
	// Triggers counts all triggers, Missed those that no recording holds, and Kept the
	// recordings.
	Triggers map[Kind]uint64 `json:"triggers,omitempty"`
	Missed   map[Kind]uint64 `json:"missed,omitempty"`
	Kept     uint64          `json:"kept"`
	// Failed counts recordings that could not be written, or that Sink did not take;
	// LastError is the last error.
	Failed    uint64 `json:"failed"`
	LastError string `json:"last_error,omitempty"`
	// Last is the last recording's name, LastAt the end of its trigger, LastBytes its
	// size, and LastSnapshot how long the runtime took to write its trace. DiskBytes is
	// the size of all recordings in Dir.
	Last         string        `json:"last,omitempty"`
	LastAt       time.Time     `json:"last_at,omitzero"`
	LastBytes    int64         `json:"last_bytes,omitempty"`
	LastSnapshot time.Duration `json:"last_snapshot_ns,omitempty"`
	DiskBytes    int64         `json:"disk_bytes"`
	// Unwatched reports that another mark.Watch exists, so that this recorder sees no
	// requests.
	Unwatched bool `json:"unwatched,omitempty"`
	// Upload is the uploader's state, nil without Options.Upload.
	Upload *UploadState `json:"upload,omitempty"`
}

// State returns what the recorder does and has done.
func (r *Recorder) State() State {
	if r == nil {
		return State{Why: "not started"}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.state
	s.Triggers, s.Missed = maps.Clone(s.Triggers), maps.Clone(s.Missed)
	s.OwnCost = math.Float64frombits(r.ownCost.Load())
	if r.uploader != nil {
		u := r.uploader.currentState()
		s.Upload = &u
	}
	return s
}
