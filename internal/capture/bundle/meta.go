package bundle

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/trace/modules"
)

// Meta describes a recording and its origin. Durations in nanoseconds are by the recorder's clock.
type Meta struct {
	Schema string `json:"schema"`
	// Tool is the version of whylate that wrote the file.
	Tool string `json:"tool,omitempty"`
	// URL is the endpoint without user, password, and query values.
	URL string `json:"url"`
	// Start is the time of the request for the trace, by the recorder's clock.
	Start time.Time `json:"start"`
	// RequestedNS is the duration that the user requested, WindowNS the duration in the request (whole
	// seconds, rounded up), ReceivedNS how long the trace was received.
	RequestedNS int64 `json:"asked_ns"`
	WindowNS    int64 `json:"window_ns"`
	ReceivedNS  int64 `json:"got_ns"`
	// Truncated means that the trace ended early: it was interrupted, or cut by the server or the
	// network.
	Truncated bool `json:"truncated"`
	// TraceVersion is the version in the trace's header, such as "go 1.26". Go is the exact version of
	// the service, if known.
	TraceVersion string `json:"trace_version,omitempty"`
	Go           string `json:"go,omitempty"`
	// TraceFrom is "uprobes" for a trace that was made from outside the process; empty for one of the runtime.
	TraceFrom string    `json:"trace_from,omitempty"`
	Warnings  []Warning `json:"warnings,omitempty"`
	// Host describes the service's machine and process if the recorder took host samples.
	Host *Host `json:"host,omitempty"`
	// Service describes the service and its environment, as the recorder knew them, with OpenTelemetry's names.
	Service map[string]string `json:"service,omitempty"`
	// Kernel describes the recording of the kernel's events, if there is one.
	Kernel *Kernel `json:"kernel,omitempty"`
	// Flight has the reason if the service itself kept the recording with service/flight.
	Flight *Flight `json:"flight,omitempty"`
}

// ServiceAttributes describes the service and its environment with OpenTelemetry's names: as the recorder knew them, else, in a flight recording, as
// the service reported them. The map is m's own.
func (m *Meta) ServiceAttributes() map[string]string {
	if m.Service == nil && m.Flight != nil {
		return m.Flight.Service
	}
	return m.Service
}

// A Flight is the reason why a service kept a recording of itself.
type Flight struct {
	Reason Trigger `json:"reason"`
	// OtherTriggers are further triggers in the recording. TriggerCounts counts all triggers in it by
	// kind, MissedCounts those since the previous recording that no recording has.
	OtherTriggers []Trigger         `json:"also,omitempty"`
	TriggerCounts map[string]uint64 `json:"held,omitempty"`
	MissedCounts  map[string]uint64 `json:"missed,omitempty"`
	Service       map[string]string `json:"service,omitempty"`
	SnapshotNS    int64             `json:"snapshot_ns,omitempty"`
}

// A Trigger is an event for which a service keeps a recording.
type Trigger struct {
	Kind       string    `json:"kind"`
	Text       string    `json:"text"`
	Route      string    `json:"route,omitempty"`
	Status     string    `json:"status,omitempty"`
	DurationNS int64     `json:"took_ns,omitempty"`
	Time       time.Time `json:"at"`
}

// Description returns one line: the reason for the recording, how many more triggers of that kind there were, and the first trigger of each other
// kind.
func (f *Flight) Description() string {
	out := cmp.Or(f.Reason.Text, f.Reason.Kind)
	if n := f.TriggerCounts[f.Reason.Kind]; n > 1 {
		out += fmt.Sprintf(" (and %d more)", n-1)
	}
	for i, t := range f.OtherTriggers {
		hasKind := func(u Trigger) bool { return u.Kind == t.Kind }
		if t.Kind != f.Reason.Kind && t.Text != "" && !slices.ContainsFunc(f.OtherTriggers[:i], hasKind) {
			out += "; " + t.Text
		}
	}
	return out
}

// A Host describes the machine and the process at the start of host samples. Facts that could not be
// read are absent.
type Host struct {
	PID  int    `json:"pid"`
	OS   string `json:"os"`
	Arch string `json:"arch"`
	// Kernel is the kernel's release, such as "6.12.0".
	Kernel string `json:"kernel,omitempty"`
	// CPUs counts the online CPUs of the machine, Parallelism those that the process may run on.
	CPUs        int `json:"cpus,omitempty"`
	Parallelism int `json:"parallelism,omitempty"`
	// QuotaCPUs is the tightest CPU quota of the process's cgroups, QuotaPeriodNS its period, QuotaFile
	// the file that sets it, and QuotaDepth its level, 0 for the process's own cgroup. HasHiddenGroups
	// means that cgroups exist above the visible ones.
	QuotaCPUs       float64 `json:"quota_cpus,omitempty"`
	QuotaPeriodNS   int64   `json:"period_ns,omitempty"`
	QuotaFile       string  `json:"quota_from,omitempty"`
	QuotaDepth      int     `json:"quota_depth,omitempty"`
	HasHiddenGroups bool    `json:"quota_hidden,omitempty"`
	// MemoryBytes is the tightest memory limit, MemoryFile the file that sets it.
	MemoryBytes int64  `json:"memory_bytes,omitempty"`
	MemoryFile  string `json:"memory_from,omitempty"`
	// CgroupVersion is "v1" or "v2", for the hierarchy with the cpu controller. Group is the process's
	// cgroup in it.
	CgroupVersion string `json:"cgroup_version,omitempty"`
	Group         string `json:"group,omitempty"`
	// GOMAXPROCS, GOGC and GOMEMLIMIT are variables of the process's environment. Go is the version
	// that built its program.
	GOMAXPROCS string `json:"gomaxprocs,omitempty"`
	GOGC       string `json:"gogc,omitempty"`
	GOMEMLIMIT string `json:"gomemlimit,omitempty"`
	Go         string `json:"go,omitempty"`
	// Build is the program's build information.
	Build *modules.Build `json:"build,omitempty"`
	// OtherNetwork means that the process has another network namespace than the recorder.
	OtherNetwork bool `json:"other_network,omitempty"`
}

// Program returns the recorded build information of the service; nil if there is none.
func (m *Meta) Program() *modules.Build {
	if m.Host != nil && m.Host.Build != nil {
		return m.Host.Build
	}
	if m.Flight != nil && m.Flight.Service["module"] != "" {
		return &modules.Build{Main: modules.Module{Path: m.Flight.Service["module"]}}
	}
	return nil
}

// Kernel describes the recording of the kernel's events.
type Kernel struct {
	// Schema is that of the entry kernel.bin.
	Schema string `json:"schema"`
	// Events, Lost and Late count the events, those that did not fit the recorder's buffer, and those that came too late
	// for their place in the order of time.
	Events int64 `json:"events"`
	Lost   int64 `json:"lost"`
	Late   int64 `json:"late,omitempty"`
	// Programs are the recorder's programs in the kernel.
	Programs []KernelProgram `json:"programs,omitempty"`
	// ClockOffsetNS is to be added to the events' times to get those of the service's own CLOCK_MONOTONIC. IsClockChecked
	// means that the two clocks were compared.
	ClockOffsetNS  int64 `json:"clock_offset_ns,omitempty"`
	IsClockChecked bool  `json:"clock_checked,omitempty"`
	CPUs           int   `json:"cpus,omitempty"`
	// ProgramNS is the CPU time that the programs took.
	ProgramNS int64 `json:"bpf_ns,omitempty"`
	// StartNS and EndNS bound the events, by CLOCK_MONOTONIC. StopReason says why they end before the trace does.
	StartNS    int64  `json:"start_ns,omitempty"`
	EndNS      int64  `json:"end_ns,omitempty"`
	StopReason string `json:"stopped,omitempty"`
}

// A KernelProgram is a program that the recorder attached to the kernel, or why the kernel refused it.
type KernelProgram struct {
	Name       string `json:"name"`
	IsAttached bool   `json:"attached"`
	Reason     string `json:"reason,omitempty"`
}

// A Warning reports a failure, or a deviation from the options, that leaves the recording usable.
type Warning struct {
	Code string `json:"code"` // stable, for scripts
	Text string `json:"text"` // for people
}

// checkSchema returns nil only for Schema itself. The error wraps ErrNotBundle and distinguishes another version of the schema from a text that is
// none.
func (m *Meta) checkSchema() error {
	switch {
	case m.Schema == Schema:
		return nil
	case strings.HasPrefix(m.Schema, schemaFamily):
		return fmt.Errorf("%w of a version known here: its schema is %q, this program reads %q: use a newer whylate", ErrNotBundle, clip(m.Schema), Schema)
	default:
		return fmt.Errorf("%w: the schema in its %s is %q, want %q", ErrNotBundle, NameMeta, clip(m.Schema), Schema)
	}
}

// clip returns at most the first 60 bytes of a text, with dots if it was longer.
func clip(s string) string {
	if len(s) > 60 {
		return s[:60] + "..."
	}
	return s
}

// parseMeta decodes the metadata of a bundle. The error wraps ErrNotBundle if data is no such JSON or has another schema.
func parseMeta(data []byte) (Meta, error) {
	var m Meta
	if err := json.Unmarshal(data, &m); err != nil {
		return Meta{}, fmt.Errorf("%w: reading its %s: %w", ErrNotBundle, NameMeta, err)
	}
	if err := m.checkSchema(); err != nil {
		return Meta{}, err
	}
	return m, nil
}
