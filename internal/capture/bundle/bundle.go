// Package bundle reads and writes recordings: zip files, named x.whylate by custom, that hold an execution trace
// together with what was recorded beside it and where it came from. docs/bundle.md describes the format.
//
// The trace is the first entry and is stored without compression, so that writing streams, reading needs no second
// copy, and `unzip -p x.whylate trace` gives a file for any other tool.
package bundle

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/trace/modules"
)

// Schema is the value of Meta.Schema in files that this package writes.
const Schema = "whylate.bundle/v1"

const schemaFamily = "whylate.bundle/"

// Names of the entries. Only Trace and Meta must be there. Readers ignore names they do not know.
const (
	NameTrace  = "trace"        // the execution trace, as the runtime wrote it
	NameCPU    = "cpu.pb.gz"    // CPU profile of the same time, gzipped pprof
	NameAllocs = "allocs.pb.gz" // allocations of the same time (a difference of two profiles), gzipped pprof
	NameHost   = "host.jsonl"   // samples of the host or container, one JSON object a line (package host)
	NameMeta   = "meta.json"    // Meta
)

// Limits on what a reader accepts. Traces have no limit of their own: they are streamed.
const (
	maxMeta    = 1 << 20  // a few hundred bytes in practice
	maxProfile = 64 << 20 // the largest profiles of real services are some MB
	maxHost    = 256 << 20
	maxEntries = 1024 // five in practice; leaves room for later versions
	// maxDirectory bounds the bytes that are read to find the entries: 67 KiB at the end of the file, and 300 bytes an entry.
	maxDirectory = 384 << 10
)

// Meta says where a recording came from. Times in nanoseconds are as seen by the recording side.
type Meta struct {
	Schema string `json:"schema"`
	// Tool is the version of whylate that wrote the file.
	Tool string `json:"tool,omitempty"`
	// URL is the endpoint without user, password, and query values.
	URL string `json:"url"`
	// Start is when the trace was asked for, by the recorder's clock.
	Start time.Time `json:"start"`
	// RequestedNS is the duration the user asked for, WindowNS what the endpoint was asked for (whole seconds, rounded
	// up), ReceivedNS how long the trace was being received.
	RequestedNS int64 `json:"asked_ns"`
	WindowNS    int64 `json:"window_ns"`
	ReceivedNS  int64 `json:"got_ns"`
	// Truncated is set when the trace ended before its time: interrupted, or cut by the server or the network.
	Truncated bool `json:"truncated"`
	// TraceVersion is the version in the trace's header, such as "go 1.26"; Go the service's exact version, if known.
	TraceVersion string    `json:"trace_version,omitempty"`
	Go           string    `json:"go,omitempty"`
	Warnings     []Warning `json:"warnings,omitempty"`
	// Host says on what the service ran, where host samples were taken.
	Host *Host `json:"host,omitempty"`
	// Service says what was recorded and where it ran, as the recording side knew it, with OpenTelemetry's names.
	Service map[string]string `json:"service,omitempty"`
	// Flight says why the service itself kept the recording, if it did: service/flight.
	Flight *Flight `json:"flight,omitempty"`
}

// ServiceAttributes says what was recorded and where it ran: what the recording side knew, and else what the service said.
func (m *Meta) ServiceAttributes() map[string]string {
	if m.Service == nil && m.Flight != nil {
		return m.Flight.Service
	}
	return m.Service
}

// Flight says why a service kept a recording of itself.
type Flight struct {
	Reason Trigger `json:"reason"`
	// OtherTriggers names others that it holds, Held counts all by kind; Missed counts those since the recording before that none holds.
	OtherTriggers []Trigger         `json:"also,omitempty"`
	TriggerCounts map[string]uint64 `json:"held,omitempty"`
	MissedCounts  map[string]uint64 `json:"missed,omitempty"`
	Service       map[string]string `json:"service,omitempty"`
	SnapshotNS    int64             `json:"snapshot_ns,omitempty"`
}

// A Trigger is what was worth a recording.
type Trigger struct {
	Kind       string    `json:"kind"`
	Text       string    `json:"text"`
	Route      string    `json:"route,omitempty"`
	Status     string    `json:"status,omitempty"`
	DurationNS int64     `json:"took_ns,omitempty"`
	Time       time.Time `json:"at"`
}

// Description says in a line why the recording was kept, and what else it holds.
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

// Host is what was found out about the machine and the process when host samples began. What could not be read is
// absent.
type Host struct {
	PID  int    `json:"pid"`
	OS   string `json:"os"`
	Arch string `json:"arch"`
	// Kernel is its release, such as "6.12.0".
	Kernel string `json:"kernel,omitempty"`
	// CPUs counts those that are online on the machine, Parallelism those that the process may run on.
	CPUs        int `json:"cpus,omitempty"`
	Parallelism int `json:"parallelism,omitempty"`
	// QuotaCPUs is the tightest CPU quota of the process's groups, QuotaPeriodNS its period, QuotaFile the file that says
	// so, QuotaDepth its level, 0 being the process's own group. HasHiddenGroups says that there are groups above those
	// that could be seen.
	QuotaCPUs       float64 `json:"quota_cpus,omitempty"`
	QuotaPeriodNS   int64   `json:"period_ns,omitempty"`
	QuotaFile       string  `json:"quota_from,omitempty"`
	QuotaDepth      int     `json:"quota_depth,omitempty"`
	HasHiddenGroups bool    `json:"quota_hidden,omitempty"`
	// MemoryBytes is the tightest memory limit, MemoryFile the file that says so.
	MemoryBytes int64  `json:"memory_bytes,omitempty"`
	MemoryFile  string `json:"memory_from,omitempty"`
	// CgroupVersion is "v1" or "v2", of the hierarchy with the cpu controller; Group the process's group in it.
	CgroupVersion string `json:"cgroup_version,omitempty"`
	Group         string `json:"group,omitempty"`
	// GOMAXPROCS, GOGC and GOMEMLIMIT are the process's environment; Go the version that its program was built with.
	GOMAXPROCS string `json:"gomaxprocs,omitempty"`
	GOGC       string `json:"gogc,omitempty"`
	GOMEMLIMIT string `json:"gomemlimit,omitempty"`
	Go         string `json:"go,omitempty"`
	// Build says what the program was built from.
	Build *modules.Build `json:"build,omitempty"`
	// OtherNetwork says that the process lives in another network namespace than the recorder.
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

// Warning is something that went wrong or was done differently than asked, without making the recording useless.
type Warning struct {
	Code string `json:"code"` // stable, for scripts
	Text string `json:"text"` // for people
}

// ErrNotBundle is wrapped by errors about input that is no recording, whole and of a version known here.
var ErrNotBundle = errors.New("not a whylate recording")

// ErrDirectory is wrapped, with [ErrNotBundle], by errors about a zip file with more entries than any recording has.
var ErrDirectory = errors.New("its directory is larger than that of any recording")

// MagicLen is how many bytes of a file tell what it is.
const MagicLen = 35

// HasMagic tells from the first bytes of a file, MagicLen are enough, whether it is a recording: a zip whose first entry is the
// trace. Zip files that were packed again, with the entries in another order, are recognized by [IsZip] only.
func HasMagic(prefix []byte) bool {
	// A zip's local file header: signature, 22 bytes of fields, length of the name (2), length of the extra field (2),
	// name. Source: PKWARE APPNOTE.TXT 6.3.10, section 4.3.7.
	const header = 30
	return IsZip(prefix) && len(prefix) >= header+len(NameTrace) &&
		prefix[26] == byte(len(NameTrace)) && prefix[27] == 0 &&
		string(prefix[header:header+len(NameTrace)]) == NameTrace
}

// IsZip tells whether the bytes begin like a zip file with at least one entry.
func IsZip(prefix []byte) bool { return bytes.HasPrefix(prefix, []byte("PK\x03\x04")) }

func (m *Meta) check() error {
	switch {
	case m.Schema == Schema:
		return nil
	case strings.HasPrefix(m.Schema, schemaFamily):
		return fmt.Errorf("%w of a version known here: its schema is %q, this program reads %q: use a newer whylate", ErrNotBundle, clip(m.Schema), Schema)
	default:
		return fmt.Errorf("%w: the schema in its %s is %q, want %q", ErrNotBundle, NameMeta, clip(m.Schema), Schema)
	}
}

func clip(s string) string {
	if len(s) > 60 {
		return s[:60] + "..."
	}
	return s
}

func parseMeta(data []byte) (Meta, error) {
	var m Meta
	if err := json.Unmarshal(data, &m); err != nil {
		return Meta{}, fmt.Errorf("%w: reading its %s: %w", ErrNotBundle, NameMeta, err)
	}
	if err := m.check(); err != nil {
		return Meta{}, err
	}
	return m, nil
}
