package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/cli/screen"
	"github.com/whylate/whylate/internal/judge/watch"
	"github.com/whylate/whylate/report"
)

// watchFlags contains the flags of watch.
type watchFlags struct {
	explainFlags
	conn     connectFlags
	window   time.Duration
	interval time.Duration
	budget   percentFlag
	polls    int
	plain    bool
	trace    bool
}

// maxWatched is the largest number of services: more do not fit on a screen.
const maxWatched = 16

// newWatch returns the command watch, which repeatedly polls services and shows what their requests wait for.
func newWatch(s *streams) *cobra.Command {
	v := watchFlags{budget: 0.02}
	cmd := &cobra.Command{
		Use:   "watch [flags] URL...",
		Short: "Watch running services during an incident",
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return command.Usage(cmd, "name at least one URL")
			case len(args) > maxWatched:
				return command.Usage(cmd, "watch shows at most %d services at once, but you named %d: name those that are late, or start one watch for every %d", maxWatched, len(args), maxWatched)
			}
			return nil
		},
		RunE: command.RunE(func(cmd *cobra.Command, args []string) error { return v.run(cmd, s, args) }),
	}
	f := cmd.Flags()
	v.conn.addFlags(f)
	// A failed poll is repeated anyway, and during a long wait the screen shows nothing new.
	v.conn.timeout = 5 * time.Second
	f.Lookup("timeout").DefValue = "5s"
	for _, name := range []string{"duration", "no-cpu"} {
		_ = f.MarkHidden(name)
	}
	f.DurationVar(&v.window, "window", time.Second, "length of the trace at each look, in whole seconds")
	f.DurationVar(&v.interval, "every", 5*time.Second, "shortest time between looks")
	f.Var(&v.budget, "budget", "the largest share of the service's CPUs that looking may cost")
	f.IntVar(&v.polls, "looks", 0, "end after this many successful looks, or five failed ones in a row, at each service")
	f.BoolVar(&v.plain, "plain", false, "write lines also on a terminal")
	f.BoolVar(&v.json, "json", false, "write a line of JSON for every look")
	f.BoolVar(&v.trace, "trace", false, "take traces also where the service serves a flight recorder")
	f.StringVar(&v.group, "group", "", "show only groups whose name matches this regular `expression`")
	v.addShared(cmd, "request", "no-marks", "module", "thresholds", "ignore")
	v.color.add(cmd)
	command.ShowFlags(cmd, "window", "every", "budget", "looks", "plain", "json", "group", "trace", "header", "user")
	return cmd
}

// A watchedService is one service, with the result of the last poll.
type watchedService struct {
	target string
	host   string
	opt    record.Options
	// Used by the goroutine that follows the service:
	state           *watch.Service
	trace           bool      // no request to a flight recorder
	flight          bool      // a flight recorder has answered
	lastSnapshotEnd time.Time // of the last snapshot, by the service's clock
	// Used by the goroutine that shows it:
	shownResult pollResult
}

// A pollResult is the result of a poll of a service, and of those before it.
type pollResult struct {
	state        watch.State
	last, before *report.Report
	file         string // the last recording
}

// An event is a change of a service: the beginning of an activity, or the result of a poll.
type event struct {
	service    int
	doing      string
	doingUntil time.Time
	result     *pollResult // nil: only doing
	done       bool        // there will be no more looks
	fatal      any         // a panic's value
}

// run watches the services at the targets, on a terminal with a screen for all, until an interrupt or the number of polls in
// --looks.
func (v *watchFlags) run(cmd *cobra.Command, s *streams, targets []string) (err error) {
	if err := v.parse(cmd); err != nil {
		return err
	}
	if err := v.readIgnores(cmd); err != nil {
		return err
	}
	switch {
	case cmd.Flags().Changed("duration"):
		return command.Usage(cmd, "watch has no --duration: --window is the length of the trace at each look")
	case v.window < time.Second || v.window > time.Minute || v.window != v.window.Truncate(time.Second):
		return command.Usage(cmd, "--window %v: give whole seconds, from 1s to 1m", v.window)
	case v.interval < v.window:
		return command.Usage(cmd, "--every %v is shorter than --window %v", v.interval, v.window)
	case v.polls < 0:
		return command.Usage(cmd, "--looks must not be negative")
	case v.conn.recording.PID > 0 && len(targets) > 1:
		return command.Usage(cmd, "--pid names one process, but you gave %d services", len(targets))
	}
	options, err := v.conn.options(cmd)
	if err != nil {
		return command.RecordError(err)
	}
	list := make([]*watchedService, len(targets))
	err = eachService(cmd, targets, options, func(i int, opt record.Options, end record.Endpoint) {
		opt.Duration, opt.NoCPU, opt.NoAllocs, opt.MaxBytes = v.window, true, true, maxPollBytes
		_, may := record.MayServeFlight(targets[i])
		list[i] = &watchedService{target: targets[i], host: end.Host(), opt: opt, trace: v.trace || !may, state: watch.New(end.Host(), watch.Budget{Share: float64(v.budget), MinInterval: v.interval})}
	})
	if err != nil {
		return err
	}

	dir, err := os.MkdirTemp("", "whylate-watch-")
	if err != nil {
		return fmt.Errorf("making a folder for the last recordings: %w", err)
	}
	defer removeAll(dir)

	// Closing a terminal sends a signal that would end the process without removing its files.
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP)
	defer stop()
	// The reader of our output may end, and an interrupt often comes twice (timeout and shells send it to the process and to its
	// group): either would end the process before the terminal is restored and the directory is removed.
	held := make(chan os.Signal, 1)
	signal.Notify(held, syscall.SIGPIPE, syscall.SIGHUP, os.Interrupt, syscall.SIGTERM)
	interrupted := false
	defer func() {
		if !interrupted { // after an interrupt a second one may follow, and the process ends anyway
			signal.Stop(held)
		}
	}()
	_, restore := limitMemory(0) // for the whole run, because only one service's poll is explained at a time
	defer restore()
	events := make(chan event)
	var following sync.WaitGroup
	turn := make(chan struct{}, 1)
	for i, w := range list {
		following.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					send(ctx, events, event{service: i, fatal: fmt.Sprintf("%v\n%s", p, debug.Stack())})
				}
			}()
			v.follow(ctx, s, i, w, dir, turn, events)
		})
	}
	defer func() {
		interrupted = ctx.Err() != nil
		stop()
		done := make(chan struct{})
		go func() { following.Wait(); close(done) }()
		select { // the directory is removed when no goroutine writes to it, but an interrupt is handled immediately
		case <-done:
		case <-time.After(lastSecond / 2):
		}
	}()
	in, _ := s.In.(*os.File)
	out, _ := s.Out.(*os.File)
	if !v.plain && !v.json && screen.CanDraw(in, out, os.Getenv) {
		err = v.showScreen(ctx, s, in, out, list, events)
	} else {
		err = v.writeLines(ctx, s, list, events)
	}
	if err != nil {
		return err
	}
	trouble := ""
	for _, w := range list {
		if w.shownResult.last != nil {
			return nil
		}
		trouble = cmp.Or(trouble, w.shownResult.state.Problem)
	}
	if trouble == "" {
		return nil // it ended before the first result
	}
	return command.Exit(ExitFailed, errors.New("no look at any service succeeded: "+trouble))
}

// removeAll removes a directory in which a goroutine may still create a file. It tries for a tenth of a second and ignores failure.
func removeAll(dir string) {
	for range 10 {
		if os.RemoveAll(dir) == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// writeLines writes a block of text, or a line of JSON, for every poll, until each service has had its number of polls, ctx ends or the reader of the
// output has ended.
func (v *watchFlags) writeLines(ctx context.Context, s *streams, list []*watchedService, events <-chan event) error {
	plain := screen.NewPlain(s.Out, width(s.Out), v.color.on(s.Out, os.Getenv))
	encoder := json.NewEncoder(s.Out)
	encoder.SetEscapeHTML(false)
	for remaining := len(list); remaining > 0; {
		select {
		case <-ctx.Done():
			return nil
		case e := <-events:
			if e.fatal != nil {
				panic(e.fatal)
			}
			if e.result == nil {
				continue
			}
			list[e.service].shownResult = *e.result
			var err error
			if v.json {
				err = encoder.Encode(&e.result.state)
			} else {
				err = plain.Write(&e.result.state)
			}
			if errors.Is(err, syscall.EPIPE) {
				return nil // the reader has ended
			}
			if err != nil {
				return fmt.Errorf("writing the looks: %w", err)
			}
			if e.done {
				remaining--
			}
		}
	}
	return nil
}
