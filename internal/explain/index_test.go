package explain

import (
	"bytes"
	"context"
	"runtime"
	"testing"
	"weak"

	"github.com/whylate/whylate/internal/explain/pass"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/internal/trace/modules"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/viewer/inspect"
)

// TestIndexHoldsNoReading: the index that answers a page's questions must not keep the reading in memory: its decoder,
// buffers, sums and workers, 120 MB for a long trace. One pointer to a field of the reading would.
func TestIndexHoldsNoReading(t *testing.T) {
	data := testprog.Service(t, "load-inside").Trace // read twice, because it waits for its own server
	index := inspect.NewIndex(inspect.Limits{})
	opts := Options{Slowest: 3, Modules: modules.New(modules.Options{}), Index: index}
	var readings []weak.Pointer[reading]
	var passes []weak.Pointer[pass.Pass]
	var decoders []weak.Pointer[timeline.Decoder]
	read := func(previous *selfWaits) *selfWaits {
		r := must.Have(readTrace(context.Background(), bytes.NewReader(data), opts, previous, rereadNever))(t)
		readings, passes, decoders = append(readings, weak.Make(r)), append(passes, weak.Make(r.pass)), append(decoders, weak.Make(r.pass.Decoder))
		selfWaits := r.findSelfWaits()
		if previous == nil && selfWaits != nil {
			return selfWaits
		}
		must.Have(r.finish(context.Background()))(t)
		return nil
	}
	selfWaits := read(nil)
	must.True(t, selfWaits != nil, "it waits for nobody of its own: this tests no answers")
	opts.resetOutputs()
	read(selfWaits)
	tr := must.Have(inspect.Open(index, bytes.NewReader(data), int64(len(data))))(t)
	for range 3 {
		runtime.GC()
	}
	for i := range readings {
		if readings[i].Value() != nil || passes[i].Value() != nil || decoders[i].Value() != nil {
			t.Errorf("reading %d: the reading is still held: %v, its pass: %v, its decoder: %v", i+1, readings[i].Value() != nil, passes[i].Value() != nil, decoders[i].Value() != nil)
		}
	}
	runtime.KeepAlive(tr)
}
