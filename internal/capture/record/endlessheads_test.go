package record_test

import (
	"context"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/testing/endless"
)

// TestEndlessHeads records from servers whose headers never end, and fetches their flight recorder.
func TestEndlessHeads(t *testing.T) {
	if testing.Short() {
		t.Skip("sends requests over the loopback network")
	}
	for _, kind := range endless.Heads() {
		t.Run(kind, func(t *testing.T) {
			url, opt := endless.Serve(t, kind), record.Options{Duration: time.Second}
			if n := endless.Allocated(func() {
				if res, err := record.Save(context.Background(), url, opt, filepath.Join(t.TempDir(), "x.whylate"), "test", nil); err == nil {
					t.Errorf("a recording: %+v", res)
				}
				if n, err := record.SaveFlight(context.Background(), url, opt, "", io.Discard); err == nil {
					t.Errorf("a flight recording of %d bytes", n)
				}
			}); n > 64<<20 {
				t.Errorf("%d bytes were allocated for five requests", n)
			}
		})
	}
}
