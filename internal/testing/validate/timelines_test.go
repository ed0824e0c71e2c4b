package validate

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/refdata"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// TestReferenceTraces checks the timelines of the reference reader's test traces, which are unusual and short.
func TestReferenceTraces(t *testing.T) {
	traces := must.Have(refdata.Traces())(t)
	var spans, runs int64
	for _, tr := range traces {
		data := must.Have(tracetext.Assemble(tr.Text))(t)
		v := validateTimelines(t, data)
		if err := v.Err(); err != nil {
			t.Errorf("%s: %v", tr.Name, err)
		}
		spans, runs = spans+v.Spans, runs+v.Runs
	}
	check.True(t, spans >= 100 && runs >= 30, "only %d spans and %d runs were checked", spans, runs)
}

// validateTimelines checks a trace up to its end or its first damage.
func validateTimelines(t *testing.T, data []byte) *Timelines {
	t.Helper()
	rd := must.Have(tracefmt.NewReader(bytes.NewReader(data), tracefmt.Options{}))(t)
	decoder := timeline.NewDecoder(rd, 2)
	defer decoder.Close()
	checks, win := new(Timelines), new(timeline.Window)
	for skipped := false; ; {
		g, err := decoder.Next(t.Context())
		var damage *tracefmt.Error
		switch {
		case errors.Is(err, io.EOF), errors.As(err, &damage):
			return checks
		case err != nil:
			t.Fatal(err)
		case g == nil:
			skipped = true
			continue
		}
		win.Gens = append(win.Gens, g)
		checks.Decoded(win, skipped)
		skipped = false
		if len(win.Gens) > 1 {
			win.DropFirst()
		}
	}
}

// TestSpanRules breaks each rule about spans once.
func TestSpanRules(t *testing.T) {
	const running, runnable, waiting = timeline.Running, timeline.Runnable, timeline.Waiting
	for _, tc := range []struct {
		rule  string
		spans []timeline.Span
	}{
		{"", []timeline.Span{{Start: 1, End: 2, State: running}, {Start: 2, End: 5, State: waiting, Woken: true}, {Start: 5, End: 6, State: runnable}}},
		{"", []timeline.Span{{Start: 5, End: 5, State: running}, {Start: 4, End: 6, State: runnable}}}, // clocks of two threads
		{"states", []timeline.Span{{Start: 1, End: 2, State: runnable}, {Start: 2, End: 3, State: waiting}}},
		{"states", []timeline.Span{{Start: 1, End: 2, State: timeline.NotAlive}, {Start: 2, End: 3, State: running}}},
		{"gaps", []timeline.Span{{Start: 1, End: 2, State: running}, {Start: 3, End: 4, State: runnable}}},
		{"gaps", []timeline.Span{{Start: 1, End: 3, State: running}, {Start: 2, End: 4, State: runnable}}},
		{"wakes", []timeline.Span{{Start: 1, End: 2, State: waiting}, {Start: 2, End: 4, State: runnable}}},
	} {
		var v Timelines
		v.checkLife(7, tc.spans)
		switch {
		case tc.rule == "" && v.Total > 0:
			t.Errorf("%v breaks no rule: %v", tc.spans, v.Err())
		case tc.rule != "" && (v.Total != 1 || v.List[0].Rule != tc.rule):
			t.Errorf("%v breaks %q: %v", tc.spans, tc.rule, v.Err())
		}
	}
}

// TestProblems: for a rule that is broken many times, a few problems and their number are stored.
func TestProblems(t *testing.T) {
	var p Problems
	for i := range 1000 {
		p.add("gaps", "gap %d", i)
	}
	p.add("wakes", "one")
	check.True(t, len(p.List) == maxPerRule+1 && p.Total == 1001, "%d kept of %d", len(p.List), p.Total)
	if err := p.Err(); err == nil || !strings.Contains(err.Error(), "and 995 more") {
		t.Errorf("Err says %v", err)
	}
	if err := new(Problems).Err(); err != nil {
		t.Errorf("without a problem Err says %v", err)
	}
}
