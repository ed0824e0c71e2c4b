// Package auto sets GOMAXPROCS by the container's CPU quota when a program imports
// it, and writes one log line with its decisions, their reasons, and the way to undo
// them:
//
//	import _ "github.com/whylate/whylate/service/auto"
//
// GOMAXPROCS becomes the tightest CPU quota of all levels that can be seen,
// rounded up, at least 1, at most the CPUs of the affinity mask, and follows a
// quota that changes. If that is the runtime's default, the package does not
// change it. GOMEMLIMIT and GOGC are observed only: the values that would be set
// are logged.
//
// The environment variables GOMAXPROCS, GOMEMLIMIT and GOGC always win. These
// configure the package:
//
//	WHYLATE_GOMAXPROCS   ceil (default), floor, round, latency: the policy;
//	                     observe: log what ceil would set; off
//	WHYLATE_GOMEMLIMIT   observe (default), apply, off, or a share of the
//	                     limit to apply, such as 0.8; apply means 0.9
//	WHYLATE_GOGC         observe (default), apply, off
//	WHYLATE_LOG          on (default), off
//
// The line goes to the logger that the program sets by slog.SetDefault, or to
// one given by [SetLogger]. A program that ends within a second and sets neither
// gets no line.
//
// Package tune explains the policies; docs/tune.md has reasons, measurements,
// and when to choose another one. Importing this package costs one goroutine
// that reads some files once a second.
package auto

import (
	"log/slog"
	"os"

	"github.com/whylate/whylate/service/internal/settings"
	"github.com/whylate/whylate/service/tune"
)

// started is the tuner of this process. An import without a name can only work
// through init, and needs a variable for the tuner that it started.
var started = start(os.Getenv, slog.Default)

// Tuner returns the tuner that importing this package started: its State has the
// decisions, and its Stop returns GOMAXPROCS to the runtime's control.
func Tuner() *tune.Tuner { return started.tuner }

// SetLogger sets the logger of all further lines, and of the first one if it was
// not written yet. Without it the first line goes to slog.Default, as soon as the
// program has called slog.SetDefault, or a second after the start.
func SetLogger(l *slog.Logger) { started.logger.setLogger(l) }

type runningTuner struct {
	tuner  *tune.Tuner
	logger *startupLogger
}

// start starts the tuner that the environment, read by getenv, configures. logger returns the program's present logger, which a program sets after
// init.
func start(getenv func(string) string, logger func() *slog.Logger) runningTuner {
	opts, quiet, problems := settings.Options(getenv)
	v := newStartupLogger(logger, quiet, problems)
	opts.Logger = slog.New(slog.DiscardHandler)
	opts.OnEvent = v.handleEvent
	t := tune.Start(opts)
	v.finishStart()
	return runningTuner{t, v}
}
