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

// TestSilentGoroutine has a goroutine without an end that later generations do not mention, as in a damaged trace: its state
// stays open until the end.
func TestSilentGoroutine(t *testing.T) {
	b := tracetext.New(26)
	m := b.Thread(1)
	m.Create(100, 77, "main.lost", "main.main")
	time := int64(1000)
	for range 5 {
		for range 10 {
			m.RegionBegin(time, 0, "r", "main.main")
			m.RegionEnd(time+500, 0, "r", "main.main")
			time += 1000
		}
		b.NextGeneration(time)
	}
	text := must.Have(b.Text())(t)
	var lines []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "GoStatus") || !strings.Contains(line, "g=77 ") {
			lines = append(lines, line)
		}
	}
	data := must.Have(tracetext.Assemble([]byte(strings.Join(lines, ""))))(t)
	var replayer explain.Replayer
	rep := must.Have(explain.Explain(context.Background(), bytes.NewReader(data), explain.Options{Replayer: &replayer}))(t)
	if err := replayer.Replay(context.Background(), bytes.NewReader(data), export.NewPerfettoTrace(io.Discard, rep, export.Options{All: true})); err != nil {
		t.Error(err)
	}
}
