package predict

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A Setting is a new value of a setting of the runtime or the kernel.
type Setting struct {
	Name  string // one of those below; "" for none
	Value float64
}

// The settings whose effect can be predicted.
const (
	GOGC       = "GOGC"       // percent; +Inf for off
	GOMEMLIMIT = "GOMEMLIMIT" // bytes
	GOMAXPROCS = "GOMAXPROCS" // Ps
	Quota      = "quota"      // CPUs
)

// String formats a setting in the syntax of --what-if, such as GOMEMLIMIT=900MiB.
func (s Setting) String() string {
	switch {
	case s.Name == GOGC && math.IsInf(s.Value, 1):
		return "GOGC=off"
	case s.Name == GOMEMLIMIT:
		for _, u := range units {
			if s.Value >= u.bytes && math.Mod(s.Value, u.bytes) == 0 {
				return s.Name + "=" + strconv.FormatFloat(s.Value/u.bytes, 'f', -1, 64) + u.name
			}
		}
	}
	return s.Name + "=" + strconv.FormatFloat(s.Value, 'f', -1, 64)
}

// units are the units of GOMEMLIMIT, the largest first.
var units = []struct {
	name  string
	bytes float64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// settings describes each setting: its values, and how its effect is predicted.
var settings = []struct {
	name    string
	whole   bool // accepts no fractions
	value   string
	predict func(*Facts, Setting, refuseFunc) (*effect, string, error)
}{
	{GOGC, true, "percentage such as 400, or off", (*Facts).predictGOGC},
	{GOMEMLIMIT, false, "size such as 900MiB", (*Facts).predictMemoryLimit},
	{GOMAXPROCS, true, "number of Ps such as 2", (*Facts).predictProcs},
	{Quota, false, "number of CPUs such as 1.5", (*Facts).predictQuota},
}

// parseSetting parses the value of a setting, such as GOGC and "400". ok is false if name is no setting; with a wrong value, ok
// is true and err is set.
func parseSetting(name, value string) (setting Setting, ok bool, err error) {
	for _, candidate := range settings {
		if !strings.EqualFold(name, candidate.name) {
			continue
		}
		setting.Name = candidate.name
		if setting.Name == GOGC && value == "off" {
			setting.Value = math.Inf(1)
			return setting, true, nil
		}
		number, bytes := value, 1.0
		if setting.Name == GOMEMLIMIT {
			number, bytes = cutUnit(value)
		}
		n, err := strconv.ParseFloat(number, 64)
		if err != nil || !(n > 0) || n > 1e15 || candidate.whole && n != math.Trunc(n) {
			return setting, true, fmt.Errorf("what-if %s=%s: %q is not a %s", name, value, value, candidate.value)
		}
		setting.Value = n * bytes
		return setting, true, nil
	}
	return setting, false, nil
}

// cutUnit splits a size such as "900MiB" into its number and the bytes of its unit; without a unit, bytes is 1.
func cutUnit(size string) (number string, bytes float64) {
	for _, u := range units {
		if n, ok := strings.CutSuffix(size, u.name); ok {
			return n, u.bytes
		}
	}
	return size, 1
}

// Facts describe the traced process apart from its requests, in ns of the trace's clock where they are times.
type Facts struct {
	SpanNS int64
	// Procs is GOMAXPROCS, and BusyNS the time in which Ps ran goroutines, summed over all Ps. BusyPs holds the start of each
	// StepNS and the mean number of busy Ps in it, in thousandths. MeanReady is the mean number of runnable goroutines.
	Procs     int
	BusyNS    int64
	BusyPs    [][2]int64
	StepNS    int64
	MeanReady float64
	// Collections. No setting changes the ForcedCycles, which the code requests. LiveBytes and GoalBytes are means over
	// Measured collections.
	Cycles, ForcedCycles, Measured int
	LiveBytes, GoalBytes           int64
	// FullCycles are further collections, after which the live heap, of FullBytes, left no room below the goal. The heap grew by
	// AllocatedBytes between all collections.
	FullCycles                int
	FullBytes, AllocatedBytes int64
	// MarkPhases are [start, length], sorted: all mark phases (MarksComplete), or only the longest.
	MarkPhases    [][2]int64
	MarksComplete bool
	MarkNS        int64
	// CollectorNS is the CPU time of mark workers except idle ones, IdleMarkNS that of idle ones, and AssistNS that of
	// assists. GCStopShare is the collector's share of all stops of the world.
	CollectorNS, IdleMarkNS, AssistNS int64
	GCStopShare                       float64
	// GCShare is the collector's share of all requests' time.
	GCShare float64
	// Throttled reports that a quota froze the process, for FrozenNS in all; MaybeThrottled, that this cannot be excluded.
	// FrozenCPUs is the largest number of CPUs that a freeze stopped.
	Throttled, MaybeThrottled bool
	FrozenNS                  int64
	FrozenCPUs                int
	// CPUs is the number of CPUs the process may run on, and QuotaCPUs its quota; 0 if unknown.
	CPUs, QuotaCPUs float64
}

// A Refusal is the reason why the effect of a change cannot be predicted.
type Refusal struct {
	Change Change
	Reason string
}

// Error returns the sentence for the user: which what-if is not answered, and why.
func (r *Refusal) Error() string {
	return fmt.Sprintf("what-if %s is not answered: %s", r.Change, r.Reason)
}

// SetFacts sets the facts that PredictSetting needs.
func (m *Model) SetFacts(f *Facts) { m.facts = f }

// PredictSetting returns the effect of a setting on requests, and a note with the basis of the prediction. It returns a Refusal
// and a nil effect if the trace does not show enough.
func (m *Model) PredictSetting(s Setting) (e *effect, note string, err error) {
	f := m.facts
	refuse := func(format string, args ...any) (*effect, string, error) {
		return nil, "", &Refusal{Change{Setting: s}, fmt.Sprintf(format, args...)}
	}
	if f == nil || f.SpanNS <= 0 {
		return refuse("nothing is known of the process")
	}
	for _, candidate := range settings {
		if s.Name == candidate.name {
			return candidate.predict(f, s, refuse)
		}
	}
	return refuse("there is no such setting")
}

// A refuseFunc returns a Refusal with a formatted reason, in the form of a prediction's results.
type refuseFunc func(format string, args ...any) (*effect, string, error)
