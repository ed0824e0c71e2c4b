package cli

import (
	"fmt"
	"sync"

	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/output/progress"
	"github.com/whylate/whylate/internal/output/words"
)

// A recordBar is one bar for all recordings of a run.
type recordBar struct {
	bar        *progress.Bar
	label      string
	mu         sync.Mutex
	progresses []record.Progress
}

// newRecordBar returns a bar for the progress of all recordings together. Its label is the host of a single target, else the
// number of targets.
func newRecordBar(bar *progress.Bar, targets []string) *recordBar {
	b := &recordBar{bar: bar, label: fmt.Sprintf("%d services", len(targets)), progresses: make([]record.Progress, len(targets))}
	if len(targets) == 1 {
		if end, _, err := record.ParseEndpoint(targets[0]); err == nil {
			b.label = end.Host()
		}
	}
	return b
}

// callback returns the progress callback of one recording, nil if nothing is drawn.
func (b *recordBar) callback(i int) func(record.Progress) {
	if b.bar == nil {
		return nil
	}
	return func(p record.Progress) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.progresses[i] = p
		b.bar.Set(b.state())
	}
}

// state combines the recordings: the bytes of all, the longest duration, and the elapsed time of the one that began last and still runs.
func (b *recordBar) state() progress.State {
	s := progress.State{Label: b.label, Note: "connecting"}
	first := true
	for _, p := range b.progresses {
		s.Bytes += p.Bytes
		s.Total = max(s.Total, p.Total)
		if p.Done || p.Elapsed == 0 {
			continue
		}
		if first || p.Elapsed < s.Elapsed {
			s.Elapsed = p.Elapsed
		}
		first, s.Note = false, ""
	}
	if s.Note == "" && s.Elapsed > s.Total {
		s.Note = "waiting for the last bytes and the profiles, " + words.Bytes(s.Bytes) + " so far"
	}
	return s
}

func (b *recordBar) clear() { b.bar.Clear() }
