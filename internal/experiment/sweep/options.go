package sweep

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/experiment/load"
)

// Options configure a sweep.
type Options struct {
	Command []string // of the service, with the placeholders {port} and {instance}
	Axes    []Axis
	Runs    int           // of each arm
	Warmup  time.Duration // unmeasured load at the start of each run
	Measure time.Duration // measured load
	Trace   time.Duration // length of the trace after that, under the same load; 0: no trace
	// Load has the options of the load except schedule, warm-up and pace. URLs may have the placeholder {port}.
	Load load.Options
	// Pace is the generator's pace on dedicated CPUs, PaceShared its pace on CPUs that it shares with the service.
	Pace, PaceShared load.Pace
	ReadyURL         string        // URL that answers once the service is ready; empty: the first target's
	ReadyTimeout     time.Duration // 0: 30 s
	PprofURL         string        // URL of the service's profiling handlers; empty: as the first target's
	ParentGroup      string        // an existing cgroup, the parent of the runs' cgroups
	// CPUs and LoadCPUs pin the service and the generator; empty: separate CPUs, if there are enough for both.
	CPUs, LoadCPUs []int
	Seed           uint64 // of the order of runs and of the load
	Env            []string
	SLO            []Target

	Guard func() *exec.Cmd // a command that calls guard.Run with its standard streams
	// FinishedRuns are the runs of an earlier sweep, which are not repeated. Save stores the result
	// after each run. Its error does not end the sweep: Do returns the last error of Save at the end.
	FinishedRuns []Run
	Save         func(*Result) error
	// Progress and Note, if not nil, get the progress of the sweep and messages for the user.
	Progress func(Progress)
	Note     func(text string)
}

// Progress is the state of a sweep.
type Progress struct {
	Done, Total int
	Remaining   time.Duration // 0 if unknown
	Arm         Settings
}

// A Target is a goal for a percentile: p99=20ms.
type Target struct {
	Percentile string        `json:"percentile"` // p50, p90, p99, p99.9 or max
	Limit      time.Duration `json:"most_ns"`
}

// String returns the goal in the form that ParseSLO reads.
func (t Target) String() string { return t.Percentile + "=" + t.Limit.String() }

var percentileFigures = map[string]string{"p50": "p50_ns", "p90": "p90_ns", "p99": "p99_ns", "p99.9": "p999_ns", "max": "max_ns"}

// ParseSLO parses goals: p99=20ms,p99.9=100ms.
func ParseSLO(s string) ([]Target, error) {
	var out []Target
	for _, part := range strings.Split(s, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		d, err := time.ParseDuration(value)
		if _, isKnown := percentileFigures[name]; !ok || !isKnown || err != nil || d <= 0 {
			return nil, fmt.Errorf("the goal %q: write p50, p90, p99, p99.9 or max and a time, such as p99=20ms", part)
		}
		out = append(out, Target{name, d})
	}
	return out, nil
}

// Check returns an error if the options are invalid. Do calls it, too.
func (o *Options) Check() error {
	_, err := o.check()
	return err
}

// check sets the default of ReadyTimeout, returns an error for the first option that is invalid, and otherwise the arms.
func (o *Options) check() ([]Settings, error) {
	o.ReadyTimeout = cmp.Or(o.ReadyTimeout, 30*time.Second)
	switch {
	case len(o.Command) == 0:
		return nil, errors.New("name the service's command after --")
	case len(o.Load.Targets) == 0:
		return nil, errors.New("give the service's address with --url")
	case o.Runs < 1 || o.Runs > maxRuns:
		return nil, fmt.Errorf("%d runs of each arm: give 1 to %d", o.Runs, maxRuns)
	case o.Measure < 100*time.Millisecond || o.Measure > MaxDuration:
		return nil, fmt.Errorf("a duration of %v: give 100ms to %v", o.Measure, MaxDuration)
	case o.Warmup < 0 || o.Warmup > MaxDuration:
		return nil, fmt.Errorf("a warm-up of %v: give up to %v", o.Warmup, MaxDuration)
	case o.Trace < 0 || o.Trace > time.Minute:
		return nil, fmt.Errorf("a trace of %v: give up to a minute", o.Trace)
	case o.ReadyTimeout < 0 || o.ReadyTimeout > 10*time.Minute:
		return nil, fmt.Errorf("a time-out of %v for being ready: give up to 10m", o.ReadyTimeout)
	}
	for i := range o.Load.Targets {
		address := strings.ReplaceAll(o.Load.Targets[i].URL, "{port}", "1")
		if u, err := url.Parse(address); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("the URL %q: write it as http://127.0.0.1:8080/path", o.Load.Targets[i].URL)
		}
	}
	arms, err := Arms(o.Axes)
	if err != nil {
		return nil, err
	}
	for _, a := range arms {
		if n, _ := strconv.Atoi(a.Get(Instances)); n > 1 && !strings.Contains(o.Load.Targets[0].URL, "{port}") {
			return nil, errors.New("several instances need separate ports: write {port} in --url and in the command")
		}
	}
	return arms, nil
}
