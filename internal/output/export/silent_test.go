package export_test

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/explain"
	"github.com/whylate/whylate/internal/output/export"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// TestSilentGoroutine has a goroutine that never ended, of which later generations say nothing, as a damaged trace may: its state
// stays open until the end.
func TestSilentGoroutine(t *testing.T) {
	b := tracetext.New(26)
	m := b.Thread(1)
	m.Create(100, 77, "main.lost", "main.main")
	at := int64(1000)
	for range 5 {
		for range 10 {
			m.RegionBegin(at, 0, "r", "main.main")
			m.RegionEnd(at+500, 0, "r", "main.main")
			at += 1000
		}
		b.NextGeneration(at)
	}
	text := must.Have(b.Text())(t)
	var kept []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "GoStatus") || !strings.Contains(line, "g=77 ") {
			kept = append(kept, line)
		}
	}
	data := must.Have(tracetext.Assemble([]byte(strings.Join(kept, ""))))(t)
	var k explain.Replayer
	rep := must.Have(explain.Explain(context.Background(), bytes.NewReader(data), explain.Options{Replayer: &k}))(t)
	if err := k.Replay(context.Background(), bytes.NewReader(data), export.NewPerfettoTrace(io.Discard, rep, export.Options{All: true})); err != nil {
		t.Error(err)
	}
}
