package bundle_test

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestUnfinished reads the trace of a recording whose writer was killed at any point.
func TestUnfinished(t *testing.T) {
	var out bytes.Buffer
	w := must.Have(bundle.NewWriter(&out, time.Unix(1e9, 0)))(t)
	const trace = "go 1.26 trace\x00\x00\x00 and so on"
	must.Have(w.Write([]byte(trace)))(t)
	must.Do(t, w.Close(bundle.Meta{}))
	whole := out.Bytes()
	start := bytes.Index(whole, []byte(trace))
	for n := range len(whole) {
		r, ok := bundle.UnfinishedTrace(bytes.NewReader(whole[:n]), int64(n))
		must.Equal(t, ok, n >= start, "%d bytes", n)
		if !ok {
			continue
		}
		got, err := io.ReadAll(r)
		want := whole[start:n]
		must.True(t, err == nil && bytes.Equal(got, want), "%d bytes: %q, %v, want %q", n, got, err, want)
	}
	if _, ok := bundle.UnfinishedTrace(bytes.NewReader([]byte("PK\x03\x04 something else that is long enough")), 40); ok {
		t.Error("any zip file is taken for a recording")
	}
}
