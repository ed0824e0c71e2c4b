package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/capture/atomicfile"
	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/cli/screen"
	"github.com/whylate/whylate/internal/judge/compare"
	"github.com/whylate/whylate/internal/judge/watch"
	"github.com/whylate/whylate/internal/output/difftext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/text"
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

// maxPollBytes bounds a poll's recording: a second of a very busy service with 30 cores.
const maxPollBytes = 256 << 20

// send sends an event. It is false if ctx ended before the event was received.
func send(ctx context.Context, events chan<- event, e event) bool {
	select {
	case events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

// follow polls service i until ctx ends, the number of polls is reached or the service is given up, and sends an event before and after each poll.
// dir is for its recordings. Only this goroutine changes the service's state w, between two events.
func (v *watchFlags) follow(ctx context.Context, s *streams, i int, w *watchedService, dir string, turn chan struct{}, events chan<- event) {
	answers := 0
	var result pollResult
	for ctx.Err() == nil {
		begin := time.Now()
		// The last recording is kept during the next poll.
		file := filepath.Join(dir, fmt.Sprintf("%d-%d%s", i, answers%2, record.BundleExt))
		look := v.poll(ctx, s, i, w, file, turn, events)
		if ctx.Err() != nil {
			return
		}
		wait := w.state.Add(look, rand.Float64())
		next := time.Now().Add(wait)
		doing := "trying again"
		if look.Report != nil {
			next, doing = begin.Add(wait), "next look"
			if next.Before(time.Now()) {
				next = time.Now()
			}
			result.file = file
			answers++
		}
		result.state = w.state.State()
		result.last, result.before = w.state.Reports()
		sent := result
		e := event{service: i, doing: doing, doingUntil: next, result: &sent, done: v.polls > 0 && (answers >= v.polls || hasGivenUp(&result.state, look.Busy))}
		if e.done {
			e.doing, e.doingUntil = "done", time.Time{}
		}
		if !send(ctx, events, e) || e.done {
			return
		}
		select {
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
		}
	}
}

// hasGivenUp reports whether a service that failed to answer several polls in succession is considered lost, so that a run with a number of polls
// ends. busy says that another program is tracing it: then it takes about a minute.
func hasGivenUp(s *watch.State, busy bool) bool {
	const tries, minute = 5, 30 // while another program is tracing, there is a poll every 2 s
	if busy {
		return s.Failures >= minute
	}
	return s.Failures >= tries
}

// pollTimeoutSlack is the additional time of a poll, for a trace that arrives over a slow connection.
const pollTimeoutSlack = 10 * time.Second

// poll records service i into the file, and explains the recording. A failure is in the result's Problem. turn limits how many services are explained
// at a time. It ends however slowly the service answers.
func (v *watchFlags) poll(ctx context.Context, s *streams, i int, w *watchedService, file string, turn chan struct{}, events chan<- event) watch.Poll {
	failed := func(err error) watch.Poll {
		l := watch.Poll{Time: time.Now(), Problem: command.OneLine(err.Error())}
		if re, ok := errors.AsType[*record.Error](err); ok {
			l.Busy = re.Kind == record.Busy
			l.Problem = command.OneLine(re.Text)
			if re.Remedy != "" {
				l.Problem += ": " + command.OneLine(re.Remedy)
			}
		}
		return l
	}
	out := watch.Poll{}
	size, err := int64(0), error(nil)
	if !w.trace {
		send(ctx, events, event{service: i, doing: "taking a snapshot"})
		named, _ := record.MayServeFlight(w.target)
		size, err = saveFlight(ctx, w.target, w.opt, file, named || w.flight)
		switch {
		case err == nil:
			out.Snapshot, out.Bytes, w.flight = true, size, true
		case named || isUnreachable(err) || ctx.Err() != nil:
			return failed(err)
		default:
			var e *record.Error
			// A recorder that is temporarily off is asked again at the next poll, but any other answer means that the service has none.
			w.trace = !errors.As(err, &e) || e.Kind != record.Empty
		}
	}
	if !out.Snapshot {
		send(ctx, events, event{service: i, doing: "tracing"})
		tracing, cancel := context.WithTimeout(ctx, v.window+w.opt.Grace+pollTimeoutSlack)
		res, err := record.Save(tracing, w.target, w.opt, file, readBuild().Version, nil)
		late := tracing.Err() != nil && ctx.Err() == nil
		cancel()
		if late && (res == nil || !res.HasGeneration) {
			return failed(fmt.Errorf("no trace arrived within %v: the service is stuck or very slow (--timeout allows more time)", v.window+w.opt.Grace+pollTimeoutSlack))
		}
		if res == nil {
			return failed(err)
		}
		out.Bytes, out.Window = res.Bytes, res.Received
		if err != nil {
			var re *record.Error
			if out.Note = command.OneLine(err.Error()); errors.As(err, &re) {
				out.Note = command.OneLine(re.Text)
			}
		}
		if !res.HasGeneration {
			return failed(errors.New(out.Note + "; it cannot be analysed"))
		}
	}
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return failed(ctx.Err())
	}
	send(ctx, events, event{service: i, doing: "explaining"})
	if out.Report, err = v.explainFile(ctx, s, file, 0); err == nil && out.Snapshot {
		out.Report, out.ShownPart, err = v.explainNewPart(ctx, s, w, file, out.Report)
	}
	if err != nil {
		return failed(err)
	}
	out.Time = time.Now()
	out.Report.Input.Name = w.host
	return out
}

// explainNewPart returns the report and the duration of the part of a snapshot that the last one does not contain, and stores the snapshot's end in w
// for the next call; of the whole snapshot if none of it is known to be old. file and rep are the whole snapshot and its report.
func (v *watchFlags) explainNewPart(ctx context.Context, s *streams, w *watchedService, file string, rep *report.Report) (*report.Report, time.Duration, error) {
	all := time.Duration(rep.Input.DurationNS)
	if rep.Input.Start == nil {
		return rep, all, nil
	}
	before := w.lastSnapshotEnd
	w.lastSnapshotEnd = rep.Input.Start.Add(all)
	from := before.Sub(*rep.Input.Start)
	if before.IsZero() || from <= 0 || from >= all {
		return rep, all, nil // the first snapshot, or the service was restarted, or its clock was set
	}
	rep, err := v.explainFile(ctx, s, file, from)
	return rep, all - from, err
}

// explainFile explains the recording in a file, without requests that end before from (since the trace's start).
func (v *watchFlags) explainFile(ctx context.Context, s *streams, file string, from time.Duration) (*report.Report, error) {
	in, err := s.openInput(ctx, file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	e := v.explainFlags
	e.options.From = from
	rep, err := e.explain(ctx, in)
	if err != nil {
		return nil, err
	}
	return rep, nil
}

// saveFlight saves the recording of the flight recorder at a target to the file name and returns its size in bytes. Unless the
// target is known to have one (sure), it waits only a short time.
func saveFlight(ctx context.Context, target string, opt record.Options, name string, sure bool) (int64, error) {
	timeout := opt.Grace + pollTimeoutSlack
	if !sure {
		timeout = flightTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return record.SaveFlight(ctx, target, opt, name, nil)
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

// showScreen shows everything on the whole terminal, until the user quits.
func (v *watchFlags) showScreen(ctx context.Context, s *streams, in, out *os.File, list []*watchedService, events <-chan event) error {
	colored := v.color.on(s.Out, os.Getenv)
	enableColors(out)
	t, err := screen.OpenTerminal(in, out)
	if err != nil {
		return err
	}
	defer t.Close() // also when something panics
	names := make([]string, len(list))
	for i, w := range list {
		names[i] = w.host
	}
	app := screen.NewApp(names, colored)
	tick := time.NewTicker(250 * time.Millisecond) // for countdowns, and for changes of the terminal's size
	defer tick.Stop()
	draw := func() {
		columns, lines := t.Size()
		t.Draw(app.Draw(columns, lines, time.Now()))
	}
	remaining := len(list)
	for remaining > 0 || v.polls == 0 {
		draw()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case e := <-events:
			if e.fatal != nil {
				panic(e.fatal)
			}
			p := app.Pane(e.service)
			p.Doing, p.DoingUntil = e.doing, e.doingUntil
			if e.result != nil {
				p.State, list[e.service].shownResult = e.result.state, *e.result
			}
			if e.done {
				remaining--
			}
		case key, ok := <-t.Keys():
			if !ok {
				return nil
			}
			w := list[app.Focus()]
			columns, _ := t.Size()
			switch app.HandleKey(key) {
			case screen.Quit:
				return nil
			case screen.Explain:
				v.showReport(app, w, columns, colored)
			case screen.Diff:
				showDiff(app, w, columns, colored)
			case screen.Save:
				app.ShowMessage(saveRecording(w), time.Now())
			}
		}
	}
	return nil
}

// showReport shows the last poll's report, wrapped at columns, over the screen.
func (v *watchFlags) showReport(app *screen.App, w *watchedService, columns int, colored bool) {
	last := w.shownResult.last
	if last == nil {
		app.ShowMessage("there is nothing to explain yet", time.Now())
		return
	}
	var b bytes.Buffer
	if err := text.Write(&b, last, text.Options{Width: columns, Color: colored, AllGroups: true}); err != nil {
		app.ShowMessage(err.Error(), time.Now())
		return
	}
	app.ShowText(w.host+", the last look", b.String())
}

// showDiff shows, over the screen, the changes since the poll before the last, and over all polls, wrapped at columns.
func showDiff(app *screen.App, w *watchedService, columns int, colored bool) {
	last, before := w.shownResult.last, w.shownResult.before
	if before == nil {
		app.ShowMessage("there is nothing to compare yet", time.Now())
		return
	}
	var b bytes.Buffer
	opts := difftext.Options{Width: columns, Color: colored, Full: true}
	err := difftext.Write(&b, compare.Reports(before, last), opts)
	if err == nil {
		err = difftext.WriteShifts(&b, w.shownResult.state.Shifts(), opts)
	}
	if err != nil {
		app.ShowMessage(err.Error(), time.Now())
		return
	}
	app.ShowText(w.host+", the last look and the one before", b.String())
}

// saveRecording copies the last recording to a new file in the working directory, and returns a message with its name or the error.
func saveRecording(w *watchedService) string {
	if w.shownResult.file == "" {
		return "there is nothing to save yet"
	}
	names, err := record.FileNames(timedName("watch"), []string{w.target})
	if err != nil {
		return err.Error()
	}
	size, err := copyTo(names[0], w.shownResult.file)
	if err != nil {
		return "not saved: " + err.Error()
	}
	return fmt.Sprintf("saved %s (%s): whylate explain %s", names[0], words.Bytes(size), words.ShellQuote(names[0]))
}

// copyTo writes a copy of the file from to the file name, which is replaced atomically, and returns its size in bytes.
func copyTo(name, from string) (size int64, err error) {
	src, err := os.Open(from)
	if err != nil {
		return 0, fmt.Errorf("the last recording is gone: %w", command.WithoutPath(err))
	}
	defer src.Close()
	return size, atomicfile.WriteTo(name, func(w io.Writer) (err error) { size, err = io.Copy(w, src); return err })
}
