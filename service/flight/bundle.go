package flight

import (
	"archive/zip"
	"encoding/json"
	"io"
	"time"

	"github.com/whylate/whylate/service/internal/tracebatch"
)

// A recording is a zip with the trace and its metadata: the format is
// docs/bundle.md's. The tool's own writer of it is internal/capture/bundle; this is a
// small copy, because a service may depend on the standard library alone.
const (
	bundleSchema = "whylate.bundle/v1"
	bundleTrace  = "trace"
	bundleMeta   = "meta.json"
)

// meta is meta.json. Fields that the tool knows have its names; flight is what
// only recordings of this package have.
type meta struct {
	Schema       string     `json:"schema"`
	URL          string     `json:"url"`
	Start        time.Time  `json:"start"`
	AskedNS      int64      `json:"asked_ns"`
	WindowNS     int64      `json:"window_ns"`
	GotNS        int64      `json:"got_ns"`
	Truncated    bool       `json:"truncated"`
	TraceVersion string     `json:"trace_version,omitempty"`
	Go           string     `json:"go,omitempty"`
	Host         *facts     `json:"host,omitempty"`
	Flight       flightMeta `json:"flight"`
}

type flightMeta struct {
	Reason Trigger `json:"reason"`
	// Also names other triggers that it holds, at most seven: the longest of each kind
	// and route. Held counts all of them by kind.
	Also []Trigger       `json:"also,omitempty"`
	Held map[Kind]uint64 `json:"held,omitempty"`
	// Missed counts the triggers since the recording before that no recording holds,
	// because there were too many.
	Missed map[Kind]uint64 `json:"missed,omitempty"`
	// Service says which program it was, and where it ran.
	Service map[string]string `json:"service"`
	// SnapshotNS is how long the runtime took to hand the trace out.
	SnapshotNS int64 `json:"snapshot_ns"`
}

// writeBundle writes a recording; trace writes the trace, m is completed by
// what that told.
func writeBundle(w io.Writer, m *meta, trace func(io.Writer) error) error {
	z := zip.NewWriter(w)
	e, err := z.CreateHeader(&zip.FileHeader{Name: bundleTrace, Method: zip.Store, Modified: m.Start})
	if err != nil {
		return err
	}
	head := &header{w: e}
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

// header keeps a trace's first bytes: "go 1.26 trace".
type header struct {
	w    io.Writer
	head []byte
}

func (h *header) Write(p []byte) (int, error) {
	if n := tracebatch.HeaderLen - len(h.head); n > 0 {
		h.head = append(h.head, p[:min(n, len(p))]...)
	}
	return h.w.Write(p)
}

func (h *header) version() string {
	if len(h.head) < tracebatch.HeaderLen {
		return ""
	}
	for i, c := range h.head {
		if c == 0 || i >= 4 && c == ' ' {
			return string(h.head[:i])
		}
	}
	return ""
}
