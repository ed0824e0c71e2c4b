// Package auto sets GOMAXPROCS by the container's CPU quota when it is
// imported, and says in one log line what it did and why:
//
//	import _ "github.com/whylate/whylate/service/auto"
//
// GOMAXPROCS becomes the tightest CPU quota of all levels that can be seen,
// rounded up, at least 1, at most the CPUs of the affinity mask, and follows a
// quota that changes. Where that is what the runtime picks by itself, nothing
// is called. GOMEMLIMIT and GOGC are observed only: what would be set is
// logged.
//
// The environment variables GOMAXPROCS, GOMEMLIMIT and GOGC always win. These
// change what is done:
//
//	WHYLATE_GOMAXPROCS   ceil (default), floor, round, latency: the policy;
//	                     observe: say what ceil would do; off
//	WHYLATE_GOMEMLIMIT   observe (default), apply, off, or a share of the
//	                     limit to apply, such as 0.8; apply means 0.9
//	WHYLATE_GOGC         observe (default), apply, off
//	WHYLATE_LOG          on (default), off
//
// Package tune explains the policies; docs/tune.md has reasons, measurements,
// and when to choose another one. Importing this package costs one goroutine
// that looks at some files once a second.
package auto

import (
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/whylate/whylate/service/tune"
)

// started is the tuner of this process. An import without a name can only work
// through init, and needs a place for what it started.
var started = start(os.Getenv, slog.Default)

// Tuner returns the tuner that importing this package started: its State shows
// what was decided, and its Stop gives GOMAXPROCS back to the runtime.
func Tuner() *tune.Tuner { return started }

// start starts the tuner that the environment asks for. logger is asked for
// the logger at each event, since a program sets its own after init.
func start(getenv func(string) string, logger func() *slog.Logger) *tune.Tuner {
	opts, quiet, problems := options(getenv)
	opts.Logger = slog.New(slog.DiscardHandler)
	var later atomic.Bool
	opts.OnEvent = func(e tune.Event) {
		// The first look is told in one line, below.
		if later.Load() && !quiet {
			e.Log(logger())
		}
	}
	t := tune.Start(opts)
	later.Store(true)
	if quiet {
		return t
	}
	l, attrs := logger(), []any{slog.String("undo", undo)}
	for _, p := range problems {
		attrs = append(attrs, slog.String("ignored", p))
	}
	if len(problems) > 0 {
		l.Warn("whylate: "+summary(t.State().Events), attrs...)
	} else {
		l.Info("whylate: "+summary(t.State().Events), attrs...)
	}
	return t
}

const undo = "WHYLATE_GOMAXPROCS=off, or GOMAXPROCS in the environment"

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

// options reads the environment. What cannot be understood is left at its
// default and told.
func options(getenv func(string) string) (o tune.Options, quiet bool, problems []string) {
	o = tune.Options{Procs: tune.ModeApply, Policy: tune.PolicyCeil, Memory: tune.ModeObserve, GC: tune.ModeObserve}
	problem := func(name, value, use string) {
		problems = append(problems, fmt.Sprintf("%s=%s: use %s", name, strconv.Quote(value), use))
	}
	if v := getenv("WHYLATE_GOMAXPROCS"); v != "" {
		if p, err := tune.ParsePolicy(v); err == nil {
			o.Policy = p
		} else if m, err := tune.ParseMode(v); err == nil {
			o.Procs = m
		} else {
			problem("WHYLATE_GOMAXPROCS", v, "ceil, floor, round, latency, observe or off")
		}
	}
	if v := getenv("WHYLATE_GOMEMLIMIT"); v != "" {
		if m, err := tune.ParseMode(v); err == nil {
			o.Memory = m
		} else if r, err := strconv.ParseFloat(v, 64); err == nil && r > 0 && r <= 1 {
			o.Memory, o.MemoryRatio = tune.ModeApply, r
		} else {
			problem("WHYLATE_GOMEMLIMIT", v, "observe, apply, off, or a share of the limit above 0 and up to 1")
		}
	}
	if v := getenv("WHYLATE_GOGC"); v != "" {
		if m, err := tune.ParseMode(v); err == nil {
			o.GC = m
		} else {
			problem("WHYLATE_GOGC", v, "observe, apply or off")
		}
	}
	switch v := getenv("WHYLATE_LOG"); v {
	case "", "on":
	case "off":
		quiet = true
	default:
		problem("WHYLATE_LOG", v, "on or off")
	}
	return o, quiet, problems
}
