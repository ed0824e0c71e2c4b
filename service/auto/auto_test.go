package auto

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
	"github.com/whylate/whylate/service/tune"
)

func env(m map[string]string) func(string) string {
	return func(k string) string { return m[k] }
}

// TestOneLine tests that a program which sets its logger after init gets one line of JSON
// with every knob and its undo, then one line for each later decision.
func TestOneLine(t *testing.T) {
	for name, c := range map[string]struct {
		env   map[string]string
		says  []string
		level string
	}{
		"as it is":      {map[string]string{"WHYLATE_GOMAXPROCS": "observe"}, []string{"GOMAXPROCS=", "WHYLATE_GOMAXPROCS=off", "GOMEMLIMIT: WHYLATE_GOMEMLIMIT=off"}, "INFO"},
		"not a setting": {map[string]string{"WHYLATE_GOMAXPROCS": "off", "WHYLATE_GOGC": "loud", "WHYLATE_LOG": "huge"}, []string{"loud", "huge"}, "WARN"},
		"silent":        {map[string]string{"WHYLATE_GOMAXPROCS": "off", "WHYLATE_LOG": "off"}, nil, ""},
	} {
		before, after := slog.New(slog.DiscardHandler), &bytes.Buffer{}
		clock := before
		p := start(env(c.env), func() *slog.Logger { return clock })
		// The waits are this test's.
		p.logger.mu.Lock()
		p.logger.afterFunc = func(time.Duration, func()) {}
		p.logger.mu.Unlock()
		p.logger.waitForLogger(firstWait)
		p.logger.mu.Lock()
		early := p.logger.firstLineWritten && !p.logger.quiet
		clock = slog.New(slog.NewJSONHandler(after, nil))
		p.logger.mu.Unlock()
		if c.level != "" {
			p.logger.waitForLogger(firstWait)
		}
		p.tuner.Stop()
		p.logger.handleEvent(tune.Event{Knob: tune.KnobGOGC, Action: tune.ActionSet, Undo: "GOGC in the environment sets another value"})
		lines := strings.Split(strings.TrimSpace(after.String()), "\n")
		if c.level == "" {
			check.True(t, after.Len() == 0, "%s: %s", name, after)
			continue
		}
		must.False(t, early, "%s: told before the program had a logger", name)
		must.True(t, len(lines) == 2 && strings.Contains(lines[1], "WHYLATE_GOGC=off"), "%s: %d lines:\n%s", name, len(lines), after)
		keys := map[string]int{}
		d := json.NewDecoder(strings.NewReader(lines[0]))
		for depth := 0; ; {
			token, err := d.Token()
			if err != nil {
				break
			}
			if _, ok := token.(json.Delim); ok {
				depth++
			} else if key, ok := token.(string); ok {
				keys[key]++
				_, _ = d.Token()
			}
		}
		for key, n := range keys {
			check.True(t, n <= 1, "%s: key %q stands %d times", name, key, n)
		}
		check.True(t, keys["undo"] == 1 && strings.Contains(lines[0], `"level":"`+c.level+`"`), "%s: %s", name, lines[0])
		for _, want := range c.says {
			check.True(t, strings.Contains(lines[0], want), "%s: no %q in %s", name, want, lines[0])
		}
	}
}

// TestWhenTheLineComes tests that the line is written after a second without
// slog.SetDefault, and at once with SetLogger.
func TestWhenTheLineComes(t *testing.T) {
	var buf bytes.Buffer
	l := slog.New(slog.NewTextHandler(&buf, nil))
	v := newStartupLogger(func() *slog.Logger { return l }, false, nil)
	var waits []time.Duration
	v.afterFunc = func(d time.Duration, f func()) { waits = append(waits, d); f() }
	v.finishStart()
	sum := time.Duration(0)
	for _, d := range waits {
		sum += d
	}
	check.True(t, strings.Count(buf.String(), "\n") == 1 && sum >= 900*time.Millisecond && sum <= 1100*time.Millisecond,
		"after %v: %s", sum, buf.String())
	var logger bytes.Buffer
	v = newStartupLogger(func() *slog.Logger { return l }, false, nil)
	v.afterFunc = func(time.Duration, func()) {}
	v.finishStart()
	v.handleEvent(tune.Event{Knob: tune.KnobGOGC, Action: tune.ActionSet, Reason: "later"})
	v.setLogger(slog.New(slog.NewTextHandler(&logger, nil)))
	check.True(t, strings.Count(logger.String(), "\n") == 2 && strings.Contains(logger.String(), "later"),
		"the given logger got %q", logger.String())
}

func TestTuner(t *testing.T) {
	check.True(t, Tuner() != nil && Tuner().State().GOMAXPROCS >= 1, "importing the package started nothing")
}
