package worstcase

import (
	"bytes"
	"context"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/explain"
	"github.com/whylate/whylate/internal/output/export"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// TestLongDurations gives explain and the exports traces of 4 kB that claim to last hours and years:
// the cost must not depend on the claimed duration. With steps of 10 ms it took 0.2 s for hours, and
// did not end for years.
func TestLongDurations(t *testing.T) {
	const generations = 20
	build := func(generationLength time.Duration) []byte {
		b := tracetext.New(26)
		m, clock := startMain(b)
		for range generations {
			region(m, clock, 80, "r")
			clock += int64(generationLength)
			b.NextGeneration(clock)
		}
		text := must.Have(b.Text())(t)
		return must.Have(tracetext.Assemble([]byte(text)))(t)
	}
	allocated := func(generationLength time.Duration) uint64 {
		data := build(generationLength)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		rep := must.Have(explain.Explain(context.Background(), bytes.NewReader(data), explain.Options{}))(t)
		runtime.ReadMemStats(&after)
		if s := rep.Runtime.Series; len(s.PsIdle) > 500 || len(s.Running) > 500 || s.StepNS*500 < int64(generationLength)*(generations-1) {
			t.Errorf("generations of %v: steps of %v, %d and %d of them", generationLength, time.Duration(s.StepNS), len(s.PsIdle), len(s.Running))
		}
		for _, f := range export.Formats() {
			if err := exportTrace(f, data); err != nil {
				t.Errorf("export to %s: %v", f.Name, err)
			}
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	short, long := allocated(time.Second), allocated(10*time.Minute)
	if long > 4*short { // it has more points; steps of 10 ms gave a factor of 35
		t.Fatalf("a trace of %d generations of a second has %d bytes allocated, one of 10 minutes each %d", generations, short, long)
	}
	allocated(3 * 365 * 24 * time.Hour)
}

// exportTrace exports a trace to one of the formats, with all its content.
func exportTrace(f export.Format, data []byte) error {
	var replayer explain.Replayer
	rep, err := explain.Explain(context.Background(), bytes.NewReader(data), explain.Options{Replayer: &replayer})
	if err != nil {
		return err
	}
	if f.Sink != nil {
		if sink := f.Sink(io.Discard, rep, export.Options{All: true, Rows: export.RowRequests}); sink != nil {
			return replayer.Replay(context.Background(), bytes.NewReader(data), sink)
		}
	}
	return f.Write(io.Discard, rep)
}
