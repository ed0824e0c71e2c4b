package record

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestSave: the file has the trace, bare or in a bundle with the requested profiles, and tee gets the
// trace, with or without a file.
func TestSave(t *testing.T) {
	for _, c := range []struct {
		name   string
		tee    bool
		cpu    bool
		allocs bool
	}{
		{"x.trace", false, false, false}, {"x.trace", true, true, false}, {"", true, false, false},
		{"x.whylate", false, true, true}, {"X.WHYLATE", true, false, true}, {"x.whylate", true, true, false},
	} {
		name, tee := c.name, new(bytes.Buffer)
		if name != "" {
			name = filepath.Join(t.TempDir(), name)
		}
		inBubble(t, imitation(), func(t *testing.T, target string, opt Options) {
			opt.NoCPU, opt.NoAllocs, opt.NoHost = !c.cpu, !c.allocs, true
			var w io.Writer
			if c.tee {
				w = tee
			}
			r, err := Save(context.Background(), target, opt, name, "v1", w)
			full := filepath.Ext(c.name) != ".trace" && c.name != ""
			if err != nil || !r.HasGeneration || r.Partial || r.Bytes != int64(len(cannedTrace())) || r.CPUProfile != (full && c.cpu) || r.AllocsProfile != (full && c.allocs) || r.HostSamples != 0 {
				t.Errorf("%+v: %v, %+v", c, err, r)
			}
		})
		if c.tee && !bytes.Equal(tee.Bytes(), cannedTrace()) {
			t.Errorf("%+v: %d bytes of %d besides", c, tee.Len(), len(cannedTrace()))
		}
		if c.name == "" {
			continue
		}
		b, err := bundle.Open(name)
		if filepath.Ext(c.name) == ".trace" {
			if got := must.Have(os.ReadFile(name))(t); !bytes.Equal(got, cannedTrace()) {
				t.Errorf("%+v: %d bytes of %d", c, len(got), len(cannedTrace()))
			}
			continue
		}
		must.Do(t, err)
		trace, _, err := b.Trace()
		must.Do(t, err)
		if got := must.Have(io.ReadAll(trace))(t); !bytes.Equal(got, cannedTrace()) || b.Meta().Tool != "v1" {
			t.Errorf("%+v: %d bytes of %d, %+v", c, len(got), len(cannedTrace()), b.Meta())
		}
		for name, want := range map[string]bool{"cpu": c.cpu, "allocs": c.allocs} {
			read := b.CPUProfile
			if name == "allocs" {
				read = b.AllocsProfile
			}
			if data, err := read(); (err == nil && len(data) > 0) != want {
				t.Errorf("%+v: %d bytes of the %s profile, %v", c, len(data), name, err)
			}
		}
		trace.Close()
		b.Close()
	}
}
