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

// Levels that can be set: beyond the first nothing more is logged, beyond the
// last nothing at all.
const (
	lowest  = slog.LevelDebug - 4
	highest = slog.LevelError + 4
)

// A change of level may last from a second to a day.
const (
	shortest = time.Second
	longest  = 24 * time.Hour
)

// levels changes a level, for a while if asked to.
type levels struct {
	level  Level
	logger func() *slog.Logger
	// after is time.AfterFunc but for tests; it returns what stops the timer.
	after func(time.Duration, func()) (stop func() bool)

	guard guard.Guard

	mu    sync.Mutex
	stop  func() bool // of the change that will expire, nil without
	until time.Time   // when that is
	back  slog.Level  // what comes back then
	turn  int         // counts changes: an expiry that was overtaken does nothing
}

func newLevels(o Options) *levels {
	l := &levels{level: o.Level, logger: func() *slog.Logger { return o.Logger }}
	if o.Logger == nil {
		l.logger = slog.Default
	}
	l.after = func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }
	return l
}

// set changes the level for good, or for a while if d is not 0: then the level
// from before the first such change comes back.
func (l *levels) set(to slog.Level, d time.Duration, by string) (from slog.Level) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from = l.level.Level()
	back := from
	if l.stop != nil {
		l.stop()
		back, l.stop = l.back, nil
	}
	l.turn++
	l.until = time.Time{}
	attrs := []any{slog.String("from", from.String()), slog.String("to", to.String()), slog.String("by", by)}
	if d > 0 {
		turn := l.turn
		l.back, l.until = back, time.Now().Add(d)
		l.stop = l.after(d, func() { _ = l.guard.Do("debugz.Options.Level", func() { l.expire(turn, to) }) })
		attrs = append(attrs, slog.String("for", d.String()), slog.String("then", back.String()))
	}
	l.change(from, to, "whylate: log level changed", attrs...)
	return from
}

// expire brings the level back, unless other code changed it since.
func (l *levels) expire(turn int, to slog.Level) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.turn != turn {
		return
	}
	l.stop, l.until = nil, time.Time{}
	if l.level.Level() == to {
		l.change(to, l.back, "whylate: log level is back", slog.String("from", to.String()), slog.String("to", l.back.String()))
	}
}

// change sets the level and logs it while the more talkative one is in force,
// at a level that it lets through.
func (l *levels) change(from, to slog.Level, message string, attrs ...any) {
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

// String is the level with its end, for the page.
func (l *levels) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.level.Level().String()
	if !l.until.IsZero() {
		s += fmt.Sprintf(" until %s, then %s", l.until.UTC().Format(time.RFC3339), l.back)
	}
	return s
}

// parse reads level=LEVEL and for=DURATION.
func parse(form url.Values) (level slog.Level, d time.Duration, err error) {
	text := form.Get("level")
	if err := level.UnmarshalText([]byte(text)); err != nil {
		return 0, 0, fmt.Errorf("level %q: use debug, info, warn or error", text)
	}
	if level < lowest || level > highest {
		return 0, 0, fmt.Errorf("level %q: use one from %s to %s", text, lowest, highest)
	}
	if text := form.Get("for"); text != "" {
		d, err = time.ParseDuration(text)
		if err != nil || d < shortest || d > longest {
			return 0, 0, fmt.Errorf("for %q: use a duration such as 5m, from %s to %s", text, shortest, longest)
		}
	}
	return level, d, nil
}

func (h *handler) change(w http.ResponseWriter, r *http.Request) {
	if origin.Other(r) {
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
	level, d, err := parse(r.Form)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	before := h.levels.set(level, d, r.RemoteAddr)
	fmt.Fprintf(w, "log level %s, was %s\n", h.levels, before)
}
