package process

import (
	"testing"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// TestMainCall: samples count for the exported functions of the standard library that the innermost line of the service calls, of which the innermost
// is named that has most of them.
func TestMainCall(t *testing.T) {
	syms := tracefmt.NewSymbols()
	stack := func(innermostFirst ...string) tracefmt.StackID {
		var frames []tracefmt.FrameText
		for _, fn := range innermostFirst {
			frames = append(frames, tracefmt.FrameText{Func: fn, Line: 1})
		}
		return syms.AddStack(append(frames, tracefmt.FrameText{Func: "net/http.(*conn).serve", Line: 2})...)
	}
	stats := Stats{SampledFuncs: map[string]*SampledFunc{}}
	sp := &spell.Speller{Syms: syms, Sites: cause.NewSites(syms)}
	for _, c := range []struct {
		samples int64
		stack   tracefmt.StackID
	}{
		{3, stack("runtime.mallocgc", "encoding/json.(*decodeState).object", "encoding/json.Unmarshal", "main.load", "main.serve")},
		{3, stack("encoding/json.checkValid", "encoding/json.Unmarshal", "main.load", "main.serve")},
		{4, stack("runtime.mallocgc", "main.load", "main.serve")},
		{1, stack("main.load")},
		{4, stack("internal/runtime/maps.(*Iter).Next", "main.sum", "main.serve")},
		{4, stack("slices.SortFunc[go.shape.[]int]", "main.few")},
		{1, stack("slices.sortFunc[go.shape.[]int]", "main.few")},
		{8, stack("runtime.gcBgMarkWorker")},
		{4, stack("compress/flate.(*compressor).deflate", "compress/gzip.(*Writer).Write", "encoding/json.(*Encoder).Encode", "main.send", "main.serve")},
		{2, stack("encoding/json.(*Encoder).Encode", "main.send", "main.serve")},
	} {
		stats.addCalls(sp, c.stack, c.samples)
	}
	for fn, want := range map[string]string{"main.load": "encoding/json.Unmarshal", "main.sum": "", "main.few": "slices.SortFunc[go.shape.[]int]", "main.send": "compress/gzip.(*Writer).Write", "main.serve": "", "main.other": ""} {
		check.Equal(t, stats.SampledFuncs[fn].MainCall(), want, "%s", fn)
	}
}
