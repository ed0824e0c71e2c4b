package auto

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/tune"
)

// TestWords tests the lines with the first poll's decisions and their undo.
func TestWords(t *testing.T) {
	check.True(t, summary(nil) == "nothing to do" && undoText(nil) == "nothing was done", "of nothing: %q, %q", summary(nil), undoText(nil))
	events := []tune.Event{{Knob: tune.KnobGOMAXPROCS, Action: tune.ActionSet, From: 8, To: 2, Reason: "why", Source: "/cpu.max"}, {Knob: tune.KnobGOGC, Action: tune.ActionKeep, Reason: "because"}}
	if got, want := summary(events), events[0].String()+" [/cpu.max]; "+events[1].String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := undoText(events); !strings.HasPrefix(got, "GOMAXPROCS: ") || !strings.Contains(got, "; GOGC: ") {
		t.Errorf("%q", got)
	}
}

// TestFirstLineOnce tests that the first line is written once, however often a logger is set, and never with WHYLATE_LOG=off.
func TestFirstLineOnce(t *testing.T) {
	for _, quiet := range []bool{false, true} {
		var b bytes.Buffer
		v := &startupLogger{quiet: quiet, logger: slog.Default, afterFunc: func(time.Duration, func()) {}}
		for range 3 {
			v.setLogger(slog.New(slog.NewTextHandler(&b, nil)))
		}
		if n := strings.Count(b.String(), "whylate: "); n != 1 && !quiet || n != 0 && quiet {
			t.Errorf("quiet %v: told %d times\n%s", quiet, n, b.String())
		}
	}
}
