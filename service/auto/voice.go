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

// A voice writes events to the program's logger. What was decided at the start is
// one line, which it holds back until the program has a logger: imports run before
// main, and a line in another format than the program's logs is noise to those who
// read these.
type voice struct {
	logger   func() *slog.Logger
	atStart  *slog.Logger // logger's answer before main
	quiet    bool
	problems []string
	// after is time.AfterFunc but for tests.
	after func(time.Duration, func())

	guard guard.Guard // of the program's logger

	mu      sync.Mutex
	begun   bool // the first look is over
	told    bool // the first line is out
	first   []tune.Event
	waiting []tune.Event // decided since
}

func newVoice(logger func() *slog.Logger, quiet bool, problems []string) *voice {
	return &voice{
		logger: logger, atStart: logger(), quiet: quiet, problems: problems,
		after: func(d time.Duration, f func()) { time.AfterFunc(d, f) },
	}
}

// Waits for the program's logger: the first is short, since main usually begins
// with it, each is twice as long as the one before, and all together are a
// second.
const (
	firstWait = time.Millisecond
	lastWait  = 512 * time.Millisecond
)

func (v *voice) event(e tune.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.quiet:
	case !v.begun:
		v.first = append(v.first, e)
	case !v.told:
		v.waiting = append(v.waiting, e)
	default:
		v.log(e)
	}
}

// begin says that the first look is over.
func (v *voice) begin() {
	v.mu.Lock()
	v.begun = true
	v.mu.Unlock()
	if !v.quiet {
		v.after(firstWait, func() { v.wait(firstWait) })
	}
}

// wait writes the first line if the program has set its logger or the time is
// up.
func (v *voice) wait(passed time.Duration) {
	v.mu.Lock()
	again := !v.told && v.logger() == v.atStart && passed < lastWait
	if !v.told && !again {
		v.tell()
	}
	after := v.after
	v.mu.Unlock()
	if again {
		after(2*passed, func() { v.wait(2 * passed) })
	}
}

// use sets the logger.
func (v *voice) use(l *slog.Logger) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.logger = func() *slog.Logger { return l }
	if !v.told && !v.quiet {
		v.tell()
	}
}

// tell writes the first line, and what was decided since.
func (v *voice) tell() {
	v.told = true
	level, attrs := slog.LevelInfo, []slog.Attr{slog.String("undo", undo(v.first))}
	if len(v.problems) > 0 {
		level = slog.LevelWarn
		attrs = append(attrs, slog.String("ignored", strings.Join(v.problems, "; ")))
	}
	_ = v.guard.Do("auto: the logger", func() {
		v.logger().LogAttrs(context.Background(), level, "whylate: "+summary(v.first), attrs...)
	})
	for _, e := range v.waiting {
		v.log(e)
	}
	v.first, v.waiting = nil, nil
}

func (v *voice) log(e tune.Event) {
	e.Undo = settings.Undo(e)
	_ = v.guard.Do("auto: the logger", func() { e.Log(v.logger()) })
}

// summary is what the first look decided, in one line.
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

// undo says for each knob how its decision is undone.
func undo(events []tune.Event) string {
	var parts []string
	for _, e := range events {
		parts = append(parts, string(e.Knob)+": "+settings.Undo(e))
	}
	if len(parts) == 0 {
		return "nothing was done"
	}
	return strings.Join(parts, "; ")
}
