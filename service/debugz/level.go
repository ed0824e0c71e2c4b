package debugz

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/whylate/whylate/service/internal/guard"
	"github.com/whylate/whylate/service/internal/origin"
)

// A Level is a log level that can be changed while the program runs. It must be
// safe for concurrent use. *slog.LevelVar is one; for another logger, write a type
// with these two methods.
type Level interface {
	Level() slog.Level
	Set(slog.Level)
}

// Levels that can be set: below minLevel nothing more is logged, above maxLevel nothing
// at all.
const (
	minLevel = slog.LevelDebug - 4
	maxLevel = slog.LevelError + 4
)

// A change of level may last from a second to a day.
const (
	minDuration = time.Second
	maxDuration = 24 * time.Hour
)

// A levelChanger changes a level, permanently or for a while.
type levelChanger struct {
	level  Level
	logger func() *slog.Logger
	// afterFunc is time.AfterFunc except in tests; stop stops the timer.
	afterFunc func(time.Duration, func()) (stop func() bool)

	guard guard.Guard

	mu          sync.Mutex
	stopTimer   func() bool // stops the timer of a temporary change; nil without one
	expiresAt   time.Time   // end of the temporary change
	levelAfter  slog.Level  // the level after its end
	changeCount int         // number of changes, so that an outdated expiry does nothing
}

// newLevels returns a changer of o.Level that logs to o.Logger, or to the default logger of
// the time of the change.
func newLevels(o Options) *levelChanger {
	l := &levelChanger{level: o.Level, logger: func() *slog.Logger { return o.Logger }}
	if o.Logger == nil {
		l.logger = slog.Default
	}
	l.afterFunc = func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }
	return l
}

// set changes the level permanently, or for d if d is above 0: then the level from before the first of successive temporary changes returns. client,
// in the log, names who asked. It returns the level before the change.
func (l *levelChanger) set(to slog.Level, d time.Duration, client string) (from slog.Level) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from = l.level.Level()
	back := from
	if l.stopTimer != nil {
		l.stopTimer()
		back, l.stopTimer = l.levelAfter, nil
	}
	l.changeCount++
	l.expiresAt = time.Time{}
	attrs := []any{slog.String("from", from.String()), slog.String("to", to.String()), slog.String("by", client)}
	if d > 0 {
		turn := l.changeCount
		l.levelAfter, l.expiresAt = back, time.Now().Add(d)
		l.stopTimer = l.afterFunc(d, func() { _ = l.guard.Do("debugz.Options.Level", func() { l.expire(turn, to) }) })
		attrs = append(attrs, slog.String("for", d.String()), slog.String("then", back.String()))
	}
	l.setAndLog(from, to, "whylate: log level changed", attrs...)
	return from
}

// expire ends change number turn, which set the level to to: it restores the level, unless a later change was made or other code has set another
// level.
func (l *levelChanger) expire(turn int, to slog.Level) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changeCount != turn {
		return
	}
	l.stopTimer, l.expiresAt = nil, time.Time{}
	if l.level.Level() == to {
		l.setAndLog(to, l.levelAfter, "whylate: log level is back", slog.String("from", to.String()), slog.String("to", l.levelAfter.String()))
	}
}

// setAndLog sets the level and logs it while the more verbose one is set, at a level that
// it lets through.
func (l *levelChanger) setAndLog(from, to slog.Level, message string, attrs ...any) {
	record := func() {
		_ = l.guard.Do("debugz.Options.Logger", func() { l.logger().Log(noContext, max(slog.LevelInfo, min(from, to)), message, attrs...) })
	}
	if to < from {
		l.level.Set(to)
		record()
		return
	}
	record()
	l.level.Set(to)
}

// String returns the level and, of a temporary one, its end and the level after it, for the page.
func (l *levelChanger) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.level.Level().String()
	if !l.expiresAt.IsZero() {
		s += fmt.Sprintf(" until %s, then %s", l.expiresAt.UTC().Format(time.RFC3339), l.levelAfter)
	}
	return s
}

// parseChange reads level=LEVEL and for=DURATION of a form; d is 0 without for.
func parseChange(form url.Values) (level slog.Level, d time.Duration, err error) {
	text := form.Get("level")
	if err := level.UnmarshalText([]byte(text)); err != nil {
		return 0, 0, fmt.Errorf("level %q: use debug, info, warn or error", text)
	}
	if level < minLevel || level > maxLevel {
		return 0, 0, fmt.Errorf("level %q: use one from %s to %s", text, minLevel, maxLevel)
	}
	if text := form.Get("for"); text != "" {
		d, err = time.ParseDuration(text)
		if err != nil || d < minDuration || d > maxDuration {
			return 0, 0, fmt.Errorf("for %q: use a duration such as 5m, from %s to %s", text, minDuration, maxDuration)
		}
	}
	return level, d, nil
}

// serveChange handles POST: it changes the log level.
func (h *handler) serveChange(w http.ResponseWriter, r *http.Request) {
	if origin.IsCrossSite(r) {
		http.Error(w, "changing the log level from another site's page is not allowed", http.StatusForbidden)
		return
	}
	if h.opts.Level == nil {
		http.Error(w, "this program gave the handler no log level to change (debugz.Options.Level)", http.StatusNotImplemented)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 4<<10)
	if err := r.ParseForm(); err != nil {
		http.Error(w, "reading the form: "+err.Error(), http.StatusBadRequest)
		return
	}
	level, d, err := parseChange(r.Form)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	before := h.levels.set(level, d, r.RemoteAddr)
	fmt.Fprintf(w, "log level %s, was %s\n", h.levels, before)
}
