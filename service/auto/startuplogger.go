package auto

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/whylate/whylate/service/internal/guard"
	"github.com/whylate/whylate/service/internal/settings"
	"github.com/whylate/whylate/service/tune"
)

// A startupLogger writes events to the program's logger. It writes the decisions at the
// start as one line, after the program has set its logger: imports run before main, and
// a line in another format than the program's logs would be noise in them.
type startupLogger struct {
	logger   func() *slog.Logger
	atStart  *slog.Logger // logger's answer before main
	quiet    bool
	problems []string
	// afterFunc is time.AfterFunc except in tests.
	afterFunc func(time.Duration, func())

	guard guard.Guard // of the program's logger

	mu               sync.Mutex
	startDone        bool // the tuner's first poll is over
	firstLineWritten bool // the first line was written
	startEvents      []tune.Event
	laterEvents      []tune.Event // later decisions, before the first line was written
}

// newStartupLogger returns a logger of the tuner's decisions. problems are texts about invalid settings, for the first line; if quiet is true, it
// writes no line.
func newStartupLogger(logger func() *slog.Logger, quiet bool, problems []string) *startupLogger {
	return &startupLogger{
		logger: logger, atStart: logger(), quiet: quiet, problems: problems,
		afterFunc: func(d time.Duration, f func()) { time.AfterFunc(d, f) },
	}
}

// Waits for the program's logger: the first is short, because main usually sets it
// first. Each wait is twice as long as the previous one, and their sum is a second.
const (
	firstWait = time.Millisecond
	lastWait  = 512 * time.Millisecond
)

// handleEvent logs an event once the first line is written. Before that it keeps it: an event of the start for the first line, a
// later one for after it. If v is quiet, it drops the event.
func (v *startupLogger) handleEvent(e tune.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.quiet:
	case !v.startDone:
		v.startEvents = append(v.startEvents, e)
	case !v.firstLineWritten:
		v.laterEvents = append(v.laterEvents, e)
	default:
		v.logEvent(e)
	}
}

// finishStart schedules the first line, unless the logger is quiet. The caller has passed all events of the tuner's first poll.
func (v *startupLogger) finishStart() {
	v.mu.Lock()
	v.startDone = true
	v.mu.Unlock()
	if !v.quiet {
		v.afterFunc(firstWait, func() { v.waitForLogger(firstWait) })
	}
}

// waitForLogger writes the first line if the program has set its logger since the start, or if at least lastWait has passed since the start;
// otherwise it schedules its next call.
func (v *startupLogger) waitForLogger(passed time.Duration) {
	v.mu.Lock()
	waitLonger := !v.firstLineWritten && v.logger() == v.atStart && passed < lastWait
	if !v.firstLineWritten && !waitLonger {
		v.writeFirstLine()
	}
	afterFunc := v.afterFunc
	v.mu.Unlock()
	if waitLonger {
		afterFunc(2*passed, func() { v.waitForLogger(2 * passed) })
	}
}

// setLogger sets the logger, and writes the first line if that has not been written yet.
func (v *startupLogger) setLogger(l *slog.Logger) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.logger = func() *slog.Logger { return l }
	if !v.firstLineWritten && !v.quiet {
		v.writeFirstLine()
	}
}

// writeFirstLine writes the first line and the later decisions, with v.mu held.
func (v *startupLogger) writeFirstLine() {
	v.firstLineWritten = true
	level, attrs := slog.LevelInfo, []slog.Attr{slog.String("undo", undoText(v.startEvents))}
	if len(v.problems) > 0 {
		level = slog.LevelWarn
		attrs = append(attrs, slog.String("ignored", strings.Join(v.problems, "; ")))
	}
	_ = v.guard.Do("auto: the logger", func() {
		v.logger().LogAttrs(context.Background(), level, "whylate: "+summary(v.startEvents), attrs...)
	})
	for _, e := range v.laterEvents {
		v.logEvent(e)
	}
	v.startEvents, v.laterEvents = nil, nil
}

// logEvent logs an event of the tuner, with the setting that undoes it.
func (v *startupLogger) logEvent(e tune.Event) {
	e.Undo = settings.Undo(e)
	_ = v.guard.Do("auto: the logger", func() { e.Log(v.logger()) })
}

// summary returns the decisions, with the sources of the limits, in one line; "nothing to do" without any.
func summary(events []tune.Event) string {
	var parts []string
	for _, e := range events {
		s := e.String()
		if e.Source != "" {
			s += " [" + e.Source + "]"
		}
		parts = append(parts, s)
	}
	if len(parts) == 0 {
		return "nothing to do"
	}
	return strings.Join(parts, "; ")
}

// undoText returns how to undo the decision of each event, in one line; "nothing was done" without events.
func undoText(events []tune.Event) string {
	var parts []string
	for _, e := range events {
		parts = append(parts, string(e.Knob)+": "+settings.Undo(e))
	}
	if len(parts) == 0 {
		return "nothing was done"
	}
	return strings.Join(parts, "; ")
}
