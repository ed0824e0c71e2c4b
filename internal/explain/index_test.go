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

// TestIndexHoldsNoEngine: the index that answers a page's questions must not keep the engine in memory: its decoder,
// buffers, sums and workers, 120 MB for a long trace. One pointer to a field of the engine would.
func TestIndexHoldsNoEngine(t *testing.T) {
	data := testprog.Service(t, "load-inside").Trace // read twice, because it waits for its own server
	index := inspect.NewIndex(inspect.Limits{})
	opts := Options{Slowest: 3, Modules: modules.New(modules.Options{}), Index: index}
	var engines []weak.Pointer[engine]
	var passes []weak.Pointer[pass.Pass]
	var decoders []weak.Pointer[timeline.Decoder]
	reading := func(previous *selfWaits) *selfWaits {
		eng, cut, err := readTrace(context.Background(), bytes.NewReader(data), opts, previous, rereadNever)
		if err != nil {
			t.Fatal(err)
		}
		engines, passes, decoders = append(engines, weak.Make(eng)), append(passes, weak.Make(eng.pass)), append(decoders, weak.Make(eng.pass.Decoder))
		selfWaits := eng.findSelfWaits()
		if previous == nil && selfWaits != nil {
			return selfWaits
		}
		must.Have(eng.finish(context.Background(), cut))(t)
		return nil
	}
	selfWaits := reading(nil)
	if selfWaits == nil {
		t.Fatal("it waits for nobody of its own: this tests no answers")
	}
	opts.resetOutputs()
	reading(selfWaits)
	tr := must.Have(inspect.Open(index, bytes.NewReader(data), int64(len(data))))(t)
	for range 3 {
		runtime.GC()
	}
	for i := range engines {
		if engines[i].Value() != nil || passes[i].Value() != nil || decoders[i].Value() != nil {
			t.Errorf("reading %d: the engine is still held: %v, its pass: %v, its decoder: %v", i+1, engines[i].Value() != nil, passes[i].Value() != nil, decoders[i].Value() != nil)
		}
	}
	runtime.KeepAlive(tr)
}
