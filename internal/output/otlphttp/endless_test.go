package otlphttp_test

import (
	"context"
	"testing"

	"github.com/whylate/whylate/internal/output/export"
	"github.com/whylate/whylate/internal/output/otlphttp"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/endless"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestEndlessHeads sends spans to endpoints whose answers have endless headers.
func TestEndlessHeads(t *testing.T) {
	if testing.Short() {
		t.Skip("sends requests over the loopback network")
	}
	for _, kind := range endless.Heads() {
		t.Run(kind, func(t *testing.T) {
			c := must.Have(otlphttp.NewClient(endless.Serve(t, kind), export.EncodingJSON, nil, nil))(t)
			defer c.Close()
			if n := endless.Allocated(func() {
				check.Error(t, c.Send(context.Background(), []byte("{}"), 1), "it was taken")
			}); n > 16<<20 {
				t.Errorf("%d bytes were allocated", n)
			}
		})
	}
}
