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

// watching holds the flags of watch.
type watching struct {
	explanation
	conn   connection
	window time.Duration
	every  time.Duration
	budget percentFlag
	looks  int
	plain  bool
	trace  bool
}

// maxWatched is how many services are watched at once: more do not fit a screen.
const maxWatched = 16

func newWatch(s *streams) *cobra.Command {
	v := watching{budget: 0.02}
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
	// A look is taken again anyway; who waits long for one sees nothing meanwhile.
	v.conn.timeout = 5 * time.Second
	f.Lookup("timeout").DefValue = "5s"
	for _, name := range []string{"duration", "no-cpu"} {
		_ = f.MarkHidden(name)
	}
	f.DurationVar(&v.window, "window", time.Second, "length of the trace at each look, in whole seconds")
	f.DurationVar(&v.every, "every", 5*time.Second, "shortest time between looks")
	f.Var(&v.budget, "budget", "the largest share of the service's CPUs that looking may cost")
	f.IntVar(&v.looks, "looks", 0, "end after this many successful looks, or five failed ones in a row, at each service")
	f.BoolVar(&v.plain, "plain", false, "write lines also on a terminal")
	f.BoolVar(&v.json, "json", false, "write a line of JSON for every look")
	f.BoolVar(&v.trace, "trace", false, "take traces also where the service serves a flight recorder")
	f.StringVar(&v.group, "group", "", "show only groups whose name matches this regular `expression`")
	v.add(cmd, "request", "no-marks", "module", "thresholds", "ignore")
	v.color.add(cmd)
	command.ShowFlags(cmd, "window", "every", "budget", "looks", "plain", "json", "group", "trace", "header", "user")
	return cmd
}

// A watched is one service, with what is kept of the last look.
type watched struct {
	target string
	host   string
	opt    record.Options
	// Of the goroutine that follows it:
	svc    *watch.Service
	trace  bool      // no flight recorder is asked
	flight bool      // one has answered
	ended  time.Time // of the last snapshot, by the service's clock
	// Of the one that shows it:
	shown seen
}

// A seen is what came of a look at a service, and of those before it.
type seen struct {
	state        watch.State
	last, before *report.Report
	file         string // the last recording
}

// An event is what happened to the i-th service.
type event struct {
	i     int
	doing string
	until time.Time
	seen  *seen // nil: only doing
	done  bool  // there will be no more looks
	fatal any   // a panic's value
}

func (v *watching) run(cmd *cobra.Command, s *streams, targets []string) (err error) {
	if err := v.read(cmd); err != nil {
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
	case v.every < v.window:
		return command.Usage(cmd, "--every %v is shorter than --window %v", v.every, v.window)
	case v.looks < 0:
		return command.Usage(cmd, "--looks must not be negative")
	case v.conn.recording.PID > 0 && len(targets) > 1:
		return command.Usage(cmd, "--pid names one process, but you gave %d services", len(targets))
	}
	options, err := v.conn.options(cmd)
	if err != nil {
		return command.RecordError(err)
	}
	list := make([]*watched, len(targets))
	err = eachService(cmd, targets, options, func(i int, opt record.Options, end record.Endpoint) {
		opt.Duration, opt.NoCPU, opt.NoAllocs, opt.MaxBytes = v.window, true, true, maxLook
		_, may := record.MayServeFlight(targets[i])
		list[i] = &watched{target: targets[i], host: end.Host(), opt: opt, trace: v.trace || !may, svc: watch.New(end.Host(), watch.Budget{Share: float64(v.budget), MinInterval: v.every})}
	})
	if err != nil {
		return err
	}

	dir, err := os.MkdirTemp("", "whylate-watch-")
	if err != nil {
		return fmt.Errorf("making a folder for the last recordings: %w", err)
	}
	defer removeAll(dir)

	// A terminal that is closed says so by a signal that would end the process with everything lying about.
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP)
	defer stop()
	// The reader of our output may end, and an interrupt often comes twice (timeout and shells send it to the process and to its
	// group): either would end the process before the terminal is given back and the folder is gone.
	held := make(chan os.Signal, 1)
	signal.Notify(held, syscall.SIGPIPE, syscall.SIGHUP, os.Interrupt, syscall.SIGTERM)
	interrupted := false
	defer func() {
		if !interrupted { // the next one may be on its way, and the process ends anyway
			signal.Stop(held)
		}
	}()
	_, restore := holdMemory(0) // at first for all of the run: looks of several services take turns
	defer restore()
	events := make(chan event)
	var following sync.WaitGroup
	turn := make(chan struct{}, 1)
	for i, w := range list {
		following.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					send(ctx, events, event{i: i, fatal: fmt.Sprintf("%v\n%s", p, debug.Stack())})
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
		select { // the folder is removed when nothing writes to it any more, but an interrupt is answered at once
		case <-done:
		case <-time.After(lastSecond / 2):
		}
	}()
	in, _ := s.In.(*os.File)
	out, _ := s.Out.(*os.File)
	if !v.plain && !v.json && screen.Fits(in, out, os.Getenv) {
		err = v.full(ctx, s, in, out, list, events)
	} else {
		err = v.lines(ctx, s, list, events)
	}
	if err != nil {
		return err
	}
	trouble := ""
	for _, w := range list {
		if w.shown.last != nil {
			return nil
		}
		trouble = cmp.Or(trouble, w.shown.state.Problem)
	}
	if trouble == "" {
		return nil // it was ended before anything was known
	}
	return command.Exit(ExitFailed, errors.New("no look at any service succeeded: "+trouble))
}

// removeAll removes a folder in which a goroutine may still create a file.
func removeAll(dir string) {
	for range 10 {
		if os.RemoveAll(dir) == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// maxLook bounds a look's recording: a second of a very busy service with 30 cores.
const maxLook = 256 << 20

func send(ctx context.Context, events chan<- event, e event) bool {
	select {
	case events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

// follow looks at one service until ctx ends, or it has looked often enough. It alone changes w.svc, between two events.
func (v *watching) follow(ctx context.Context, s *streams, i int, w *watched, dir string, turn chan struct{}, events chan<- event) {
	answers := 0
	var kept seen
	for ctx.Err() == nil {
		begin := time.Now()
		// The last recording stays while the next one is made.
		file := filepath.Join(dir, fmt.Sprintf("%d-%d%s", i, answers%2, record.BundleExt))
		look := v.look(ctx, s, i, w, file, turn, events)
		if ctx.Err() != nil {
			return
		}
		wait := w.svc.Add(look, rand.Float64())
		next := time.Now().Add(wait)
		doing := "trying again"
		if look.Report != nil {
			next, doing = begin.Add(wait), "next look"
			if next.Before(time.Now()) {
				next = time.Now()
			}
			kept.file = file
			answers++
		}
		kept.state = w.svc.State()
		kept.last, kept.before = w.svc.Reports()
		now := kept
		e := event{i: i, doing: doing, until: next, seen: &now, done: v.looks > 0 && (answers >= v.looks || givenUp(&kept.state, look.Busy))}
		if e.done {
			e.doing, e.until = "done", time.Time{}
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

// givenUp says of a service that gave no answer for some time that it will not: who asks for so many looks waits for an end.
func givenUp(s *watch.State, busy bool) bool {
	const tries, minute = 5, 30 // while another program is tracing, a look comes every 2 s
	if busy {
		return s.Failures >= minute
	}
	return s.Failures >= tries
}

// slack is how much longer a look may take than it must: for a trace that comes over a slow line.
const slack = 10 * time.Second

// look records and explains once. However slowly a service answers, it ends.
func (v *watching) look(ctx context.Context, s *streams, i int, w *watched, file string, turn chan struct{}, events chan<- event) watch.Poll {
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
		send(ctx, events, event{i: i, doing: "taking a snapshot"})
		named, _ := record.MayServeFlight(w.target)
		size, err = saveFlight(ctx, w.target, w.opt, file, named || w.flight)
		switch {
		case err == nil:
			out.Snapshot, out.Bytes, w.flight = true, size, true
		case named || unreached(err) || ctx.Err() != nil:
			return failed(err)
		default:
			var e *record.Error
			// A recorder that is off for a while is asked again. Something that is no recorder is not.
			w.trace = !errors.As(err, &e) || e.Kind != record.Empty
		}
	}
	if !out.Snapshot {
		send(ctx, events, event{i: i, doing: "tracing"})
		tracing, cancel := context.WithTimeout(ctx, v.window+w.opt.Grace+slack)
		res, err := record.Save(tracing, w.target, w.opt, file, readBuild().Version, nil)
		late := tracing.Err() != nil && ctx.Err() == nil
		cancel()
		if late && (res == nil || !res.HasGeneration) {
			return failed(fmt.Errorf("no trace arrived within %v: the service is stuck or very slow (--timeout allows more time)", v.window+w.opt.Grace+slack))
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
	send(ctx, events, event{i: i, doing: "explaining"})
	if out.Report, err = v.explainFile(ctx, s, file, 0); err == nil && out.Snapshot {
		out.Report, out.ShownPart, err = v.onlyNew(ctx, s, w, file, out.Report)
	}
	if err != nil {
		return failed(err)
	}
	out.Time = time.Now()
	out.Report.Input.Name = w.host
	return out
}

// onlyNew explains, of a snapshot that has a part of the last one in it, the rest, and says how long that is.
func (v *watching) onlyNew(ctx context.Context, s *streams, w *watched, file string, rep *report.Report) (*report.Report, time.Duration, error) {
	all := time.Duration(rep.Input.DurationNS)
	if rep.Input.Start == nil {
		return rep, all, nil
	}
	before := w.ended
	w.ended = rep.Input.Start.Add(all)
	from := before.Sub(*rep.Input.Start)
	if before.IsZero() || from <= 0 || from >= all {
		return rep, all, nil // the first one, or the service was restarted, or its clock was set
	}
	rep, err := v.explainFile(ctx, s, file, from)
	return rep, all - from, err
}

func (v *watching) explainFile(ctx context.Context, s *streams, file string, from time.Duration) (*report.Report, error) {
	in, err := s.openInput(ctx, file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	e := v.explanation
	e.given.From = from
	rep, err := e.explain(ctx, in)
	if err != nil {
		return nil, err
	}
	return rep, nil
}

// saveFlight saves what a flight recorder holds. One that may not be there is not waited for as long.
func saveFlight(ctx context.Context, target string, opt record.Options, name string, sure bool) (int64, error) {
	most := opt.Grace + slack
	if !sure {
		most = askFlight
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return record.SaveFlight(ctx, target, opt, name, nil)
}

// lines writes a block, or a line of JSON, for every look.
func (v *watching) lines(ctx context.Context, s *streams, list []*watched, events <-chan event) error {
	plain := screen.NewPlain(s.Out, width(s.Out), v.color.on(s.Out, os.Getenv))
	encoder := json.NewEncoder(s.Out)
	encoder.SetEscapeHTML(false)
	for left := len(list); left > 0; {
		select {
		case <-ctx.Done():
			return nil
		case e := <-events:
			if e.fatal != nil {
				panic(e.fatal)
			}
			if e.seen == nil {
				continue
			}
			list[e.i].shown = *e.seen
			var err error
			if v.json {
				err = encoder.Encode(&e.seen.state)
			} else {
				err = plain.Write(&e.seen.state)
			}
			if errors.Is(err, syscall.EPIPE) {
				return nil // the reader has ended
			}
			if err != nil {
				return fmt.Errorf("writing the looks: %w", err)
			}
			if e.done {
				left--
			}
		}
	}
	return nil
}

// full shows everything on a terminal of its own, until it is told to quit.
func (v *watching) full(ctx context.Context, s *streams, in, out *os.File, list []*watched, events <-chan event) error {
	colored := v.color.on(s.Out, os.Getenv)
	enableColors(out)
	t, err := screen.Take(in, out)
	if err != nil {
		return err
	}
	defer t.Close() // also when something panics
	names := make([]string, len(list))
	for i, w := range list {
		names[i] = w.host
	}
	app := screen.NewApp(names, colored)
	tick := time.NewTicker(250 * time.Millisecond) // for what counts seconds, and for a terminal that changes its size
	defer tick.Stop()
	draw := func() {
		columns, lines := t.Size()
		t.Draw(app.Draw(columns, lines, time.Now()))
	}
	left := len(list)
	for left > 0 || v.looks == 0 {
		draw()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case e := <-events:
			if e.fatal != nil {
				panic(e.fatal)
			}
			p := app.Pane(e.i)
			p.Doing, p.Until = e.doing, e.until
			if e.seen != nil {
				p.State, list[e.i].shown = e.seen.state, *e.seen
			}
			if e.done {
				left--
			}
		case key, ok := <-t.Keys():
			if !ok {
				return nil
			}
			w := list[app.Focus()]
			columns, _ := t.Size()
			switch app.Key(key) {
			case screen.Quit:
				return nil
			case screen.Explain:
				v.showReport(app, w, columns, colored)
			case screen.Diff:
				showDiff(app, w, columns, colored)
			case screen.Save:
				app.Say(saveLook(w), time.Now())
			}
		}
	}
	return nil
}

// showReport lays the last look's report over the screen.
func (v *watching) showReport(app *screen.App, w *watched, columns int, colored bool) {
	last := w.shown.last
	if last == nil {
		app.Say("there is nothing to explain yet", time.Now())
		return
	}
	var b bytes.Buffer
	if err := text.Write(&b, last, text.Options{Width: columns, Color: colored, AllGroups: true}); err != nil {
		app.Say(err.Error(), time.Now())
		return
	}
	app.Show(w.host+", the last look", b.String())
}

// showDiff lays what changed since the look before, and over the looks so far, over the screen.
func showDiff(app *screen.App, w *watched, columns int, colored bool) {
	last, before := w.shown.last, w.shown.before
	if before == nil {
		app.Say("there is nothing to compare yet", time.Now())
		return
	}
	var b bytes.Buffer
	opts := difftext.Options{Width: columns, Color: colored, Full: true}
	err := difftext.Write(&b, compare.Reports(before, last), opts)
	if err == nil {
		err = difftext.WriteShifts(&b, w.shown.state.Shifts(), opts)
	}
	if err != nil {
		app.Say(err.Error(), time.Now())
		return
	}
	app.Show(w.host+", the last look and the one before", b.String())
}

// saveLook copies the last recording to a file of its own and says so.
func saveLook(w *watched) string {
	if w.shown.file == "" {
		return "there is nothing to save yet"
	}
	names, err := record.FileNames(timedName("watch"), []string{w.target})
	if err != nil {
		return err.Error()
	}
	size, err := copyTo(names[0], w.shown.file)
	if err != nil {
		return "not saved: " + err.Error()
	}
	return fmt.Sprintf("saved %s (%s): whylate explain %s", names[0], words.Bytes(size), words.ShellQuote(names[0]))
}

func copyTo(name, from string) (size int64, err error) {
	src, err := os.Open(from)
	if err != nil {
		return 0, fmt.Errorf("the last recording is gone: %w", command.WithoutPath(err))
	}
	defer src.Close()
	return size, atomicfile.WriteTo(name, func(w io.Writer) (err error) { size, err = io.Copy(w, src); return err })
}
