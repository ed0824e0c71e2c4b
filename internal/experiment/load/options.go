package load

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// Options configure a run. Run does not change them.
type Options struct {
	Targets  []Target
	Phases   []Phase  // of the schedule; in a closed loop without a rate, one Phase with only a Duration
	Arrivals Arrivals // empty: Poisson
	Seed     uint64   // of the arrivals and the choice of targets
	// Warmup is the time of unrecorded load before the run, at the first phase's rate.
	Warmup time.Duration
	// ClosedClients selects a closed loop with that many clients, each of which waits for its answer
	// before its next request. With a rate, the clients share the schedule: a request starts when it is
	// due and a client is free, and its latency counts from its actual start. 0 selects the open loop.
	ClosedClients int
	// MaxInFlight bounds the concurrent requests; further requests are dropped and counted. 0 means
	// 4096.
	MaxInFlight int
	// Timeout of one request; 0 means 30 s.
	Timeout time.Duration
	Pace    Pace // empty: PaceTimer
	// CPUs is the number of CPUs that the generator may use; 0 means runtime.NumCPU.
	CPUs int

	// Send sends one request; nil selects HTTP.
	Send SendFunc
	HTTP HTTP
	// Observe, if not nil, is called for every recorded request, concurrently.
	Observe func(Sample)
	// Progress, if not nil, is called about ten times a second, not concurrently.
	Progress func(done, total time.Duration, sent int64)
}

// check sets the defaults of options that are zero, and returns an error for the first option that is missing or out of range.
func (o *Options) check() error {
	o.MaxInFlight = cmp.Or(o.MaxInFlight, 4096)
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	o.Pace = cmp.Or(o.Pace, PaceTimer)
	o.Arrivals = cmp.Or(o.Arrivals, Poisson)
	if o.CPUs == 0 {
		o.CPUs = runtime.NumCPU()
	}
	switch {
	case len(o.Targets) == 0:
		return errors.New("there is no target to send requests to")
	case len(o.Targets) > maxTargets:
		return fmt.Errorf("%d targets are more than %d", len(o.Targets), maxTargets)
	case len(o.Phases) == 0:
		return errors.New("a run needs a duration")
	case o.Arrivals != Poisson && o.Arrivals != Constant:
		return fmt.Errorf("arrivals %q: use %s or %s", o.Arrivals, Poisson, Constant)
	case o.Pace != PaceTimer && o.Pace != PaceSleep && o.Pace != PaceSpin:
		return fmt.Errorf("pace %q: use %s, %s or %s", o.Pace, PaceSleep, PaceSpin, PaceTimer)
	case o.ClosedClients < 0 || o.ClosedClients > 100_000:
		return fmt.Errorf("a closed loop of %d clients: give 1 to 100000", o.ClosedClients)
	case o.MaxInFlight < 1 || o.MaxInFlight > 1_000_000:
		return fmt.Errorf("%d requests in flight: give 1 to 1000000", o.MaxInFlight)
	case o.Timeout < time.Millisecond || o.Timeout > 10*time.Minute:
		return fmt.Errorf("a time-out of %v: give 1ms to 10m", o.Timeout)
	case o.Warmup < 0 || o.Warmup > MaxDuration:
		return fmt.Errorf("a warm-up of %v: give up to %v", o.Warmup, MaxDuration)
	}
	return nil
}

// weights returns the weight of each target, at least 1.
func (o *Options) weights() []int {
	w := make([]int, len(o.Targets))
	for i := range o.Targets {
		w[i] = max(1, o.Targets[i].Weight)
	}
	return w
}

// hasRate reports whether there is a schedule: always except in a closed loop without a rate.
func (o *Options) hasRate() bool { return o.ClosedClients == 0 || o.Phases[0].StartRate > 0 }

// schedule computes the schedule of a run. Without a rate it has a duration and no requests.
func (o *Options) schedule(phases []Phase, seed uint64) (*Schedule, error) {
	if o.hasRate() {
		return NewSchedule(phases, o.Arrivals, seed, o.weights())
	}
	d := phases[0].Duration
	if d <= 0 || d > MaxDuration {
		return nil, fmt.Errorf("a run of %v: give a duration up to %v", d, MaxDuration)
	}
	return &Schedule{duration: int64(d)}, nil
}
