package flight

import (
	"archive/zip"
	"encoding/json"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/service/internal/tracebatch"
)

// A recording is a zip file of the trace and its metadata (docs/bundle.md). The tool has
// another writer, internal/capture/bundle, because this module imports the standard
// library only.
const (
	bundleSchema = "whylate.bundle/v1"
	bundleTrace  = "trace"
	bundleMeta   = "meta.json"
)

// recordingMeta is the content of meta.json. Only recordings of this package have Flight.
type recordingMeta struct {
	Schema       string     `json:"schema"`
	URL          string     `json:"url"`
	Start        time.Time  `json:"start"`
	AskedNS      int64      `json:"asked_ns"`
	WindowNS     int64      `json:"window_ns"`
	GotNS        int64      `json:"got_ns"`
	Truncated    bool       `json:"truncated"`
	TraceVersion string     `json:"trace_version,omitempty"`
	Go           string     `json:"go,omitempty"`
	Host         *hostFacts `json:"host,omitempty"`
	Flight       flightMeta `json:"flight"`
}

type flightMeta struct {
	Reason Trigger `json:"reason"`
	// OtherTriggers has at most seven other triggers within the recording: the longest of each
	// kind and route. HeldCounts counts all triggers within it by kind.
	OtherTriggers []Trigger       `json:"also,omitempty"`
	HeldCounts    map[Kind]uint64 `json:"held,omitempty"`
	// MissedCounts counts the triggers since the previous recording that no recording holds.
	MissedCounts map[Kind]uint64 `json:"missed,omitempty"`
	// Service identifies the process; see describeService.
	Service map[string]string `json:"service"`
	// SnapshotNS is how long the runtime took to write the trace.
	SnapshotNS int64 `json:"snapshot_ns"`
}

// writeBundle writes a recording whose trace the function trace writes, and m as its metadata. It sets m's schema, trace version and snapshot time.
func writeBundle(w io.Writer, m *recordingMeta, trace func(io.Writer) error) error {
	z := zip.NewWriter(w)
	e, err := z.CreateHeader(&zip.FileHeader{Name: bundleTrace, Method: zip.Store, Modified: m.Start})
	if err != nil {
		return err
	}
	head := &headerWriter{w: e}
	began := time.Now()
	if err := trace(head); err != nil {
		return err
	}
	m.Flight.SnapshotNS = int64(time.Since(began))
	m.TraceVersion = head.version()
	m.Schema = bundleSchema
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if e, err = z.CreateHeader(&zip.FileHeader{Name: bundleMeta, Method: zip.Store, Modified: m.Start}); err != nil {
		return err
	}
	if _, err := e.Write(append(text, '\n')); err != nil {
		return err
	}
	return z.Close()
}

// A headerWriter passes a trace on and keeps its first bytes: "go 1.26 trace".
type headerWriter struct {
	w      io.Writer
	header []byte
}

// Write writes p and keeps the trace's header, its first bytes.
func (h *headerWriter) Write(p []byte) (int, error) {
	if n := tracebatch.HeaderLen - len(h.header); n > 0 {
		h.header = append(h.header, p[:min(n, len(p))]...)
	}
	return h.w.Write(p)
}

// version returns the trace's version, "go 1.26", or "" if there is no header.
func (h *headerWriter) version() string {
	if len(h.header) < tracebatch.HeaderLen {
		return ""
	}
	for i, c := range h.header {
		if c == 0 || i >= 4 && c == ' ' {
			return string(h.header[:i])
		}
	}
	return ""
}

// describeService returns attributes that identify this process, under OpenTelemetry's names: from its build information, OpenTelemetry's resource
// variables, and Kubernetes' downward API under its usual variable names. Unknown ones are missing.
func describeService(env func(string) string, build *debug.BuildInfo) map[string]string {
	identity := map[string]string{"go": runtime.Version(), "gomaxprocs": strconv.Itoa(runtime.GOMAXPROCS(0)), "pid": strconv.Itoa(os.Getpid())}
	put := func(key, value string) {
		if value != "" {
			identity[key] = clip(value)
		}
	}
	if build != nil {
		put("module", build.Main.Path)
		put("version", build.Main.Version)
		for _, s := range build.Settings {
			switch s.Key {
			case "vcs.revision":
				put("revision", s.Value)
			case "vcs.modified":
				put("modified", s.Value)
			}
		}
	}
	for _, pair := range strings.Split(env("OTEL_RESOURCE_ATTRIBUTES"), ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		switch key {
		case "service.name", "service.version", "service.namespace", "service.instance.id", "deployment.environment.name", "k8s.pod.name", "k8s.node.name", "k8s.namespace.name", "host.name":
			if ok {
				put(key, value)
			}
		}
	}
	put("service.name", env("OTEL_SERVICE_NAME"))
	for _, v := range [][2]string{{"k8s.pod.name", "POD_NAME"}, {"k8s.node.name", "NODE_NAME"}, {"k8s.namespace.name", "POD_NAMESPACE"}} {
		if identity[v[0]] == "" {
			put(v[0], env(v[1]))
		}
	}
	if identity["host.name"] == "" {
		name, _ := os.Hostname()
		put("host.name", name)
	}
	return identity
}

// clip bounds a text from outside the program to 300 bytes of valid UTF-8: other bytes become "?".
func clip(s string) string {
	if len(s) > 300 {
		s = s[:300]
	}
	return strings.ToValidUTF8(s, "?")
}
