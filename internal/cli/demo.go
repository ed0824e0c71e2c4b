package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/capture/atomicfile"
	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/experiment/demo"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/text"
)

// Durations of the demo, which takes less than 15 s in total.
const (
	demoWarm    = 500 * time.Millisecond // of load before the recording
	demoRecords = 5 * time.Second
	demoStart   = 10 * time.Second // for the service to begin, on a machine that is busy
)

// A demoLoad sends requests to the demo's service until ctx ends, and returns the client's results of each route, by path.
type demoLoad = func(ctx context.Context, url string) map[string]demo.Result

// DemoVerbs are the demo and its service; load sends the requests.
func DemoVerbs(load demoLoad) []command.Verb {
	newVerb := func(s *command.Streams) *cobra.Command { return newDemo(&streams{*s}, load) }
	return []command.Verb{newVerb, newDemoService}
}

// newDemo returns the command demo, which loads a small service that has known faults, and explains a recording of it. load
// sends the requests.
func newDemo(s *streams, load demoLoad) *cobra.Command {
	var (
		color colorFlag
		keep  string
		fly   bool
	)
	cmd := &cobra.Command{
		GroupID: command.GroupExplain,
		Use:     "demo",
		Short:   "Show whylate on a small service with known faults",
		Args:    command.NoArgs,
		RunE: command.RunE(func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			var (
				rep           *report.Report
				route         string
				clientResults map[string]demo.Result
				err           error
			)
			if fly {
				rep, route, err = flightDemo(ctx, s, load, keep)
			} else if rep, clientResults, err = runDemo(ctx, s, load, keep); err == nil && demo.CountMissed(demo.Judge(rep)) > 0 {
				// The faults use CPUs. If other processes on this machine use them as well, they can hide a fault for some time.
				fmt.Fprintln(s.Err, "whylate: not all faults were found, perhaps because this machine is busy: trying again")
				rep, clientResults, err = runDemo(ctx, s, load, keep)
			}
			if cmd.Context().Err() != nil {
				return command.Exit(ExitInterrupted, errors.New("interrupted"))
			}
			if err != nil {
				return err
			}
			rep.Input.Name = filepath.Base(cmp.Or(keep, "demo"))
			if err := text.Write(s.Out, rep, text.Options{Width: width(s.Out), Color: color.on(s.Out, os.Getenv)}); err != nil {
				return err
			}
			if fly {
				return writeFlightStory(s.Out, rep, route, keep)
			}
			return writeVerdicts(s.Out, demo.Judge(rep), clientResults)
		}),
	}
	color.add(cmd)
	cmd.Flags().BoolVar(&fly, "flight", false, "let the service record itself when a request is slow, and explain that recording")
	cmd.Flags().StringVarP(&keep, "output", "o", "", "keep the trace in this `file`")
	return cmd
}

// newDemoService returns the verb of the service's process. The process ends when its standard input does, so that it never
// outlives the demo.
func newDemoService(s *command.Streams) *cobra.Command {
	return &cobra.Command{
		Use:    "demo-service STORE [RECORDINGS]",
		Hidden: true,
		Args:   cobra.RangeArgs(1, 2),
		RunE: command.RunE(func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			go func() {
				io.Copy(io.Discard, s.In)
				cancel()
			}()
			return demo.Serve(ctx, args[0], strings.Join(args[1:], ""), func(url string) { fmt.Fprintln(s.Out, url) })
		}),
	}
}

// runDemo loads the service, records and explains it, and returns the report and its client's results by path. If keep is not empty, the recording is
// written to that file.
func runDemo(ctx context.Context, s *streams, load demoLoad, keep string) (*report.Report, map[string]demo.Result, error) {
	var file *atomicfile.File
	if keep != "" {
		var err error
		if file, err = atomicfile.Create(keep); err != nil {
			return nil, nil, err
		}
		defer file.Discard()
	}
	url, stop, err := startService(ctx, "")
	if err != nil {
		return nil, nil, err
	}
	defer stop()
	loading, done := context.WithCancel(ctx)
	defer done()
	results := make(chan map[string]demo.Result, 1)
	go func() { results <- load(loading, url) }()
	select {
	case <-time.After(demoWarm):
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	bar := newRecordBar(s.Bar(), []string{url})
	in, err := openURL(ctx, url, record.Options{Duration: demoRecords, NoCPU: true, NoAllocs: true, Proxy: "none", Progress: bar.callback(0)})
	if err != nil {
		bar.clear()
		return nil, nil, err
	}
	defer in.Close()
	if file != nil {
		in.Reader = io.TeeReader(in.Reader, file)
	}
	rep, err := (&explainFlags{}).explain(ctx, in)
	in.Close() // no progress is reported after this
	bar.clear()
	done()
	if err != nil {
		return nil, nil, err
	}
	if file != nil {
		if err := file.Commit(); err != nil {
			return nil, nil, err
		}
	}
	return rep, <-results, nil
}

// flightDemo loads the service until it has kept a recording, and returns the report about that and the route of the request that caused it, "" if
// unknown. If keep is not empty, the recording is copied to that file.
func flightDemo(ctx context.Context, s *streams, load demoLoad, keep string) (rep *report.Report, route string, err error) {
	dir, err := os.MkdirTemp("", "whylate-demo-")
	if err != nil {
		return nil, "", fmt.Errorf("creating a directory for the demo: %w", err)
	}
	defer os.RemoveAll(dir)
	url, stop, err := startService(ctx, dir)
	if err != nil {
		return nil, "", err
	}
	defer stop()
	loading, done := context.WithCancel(ctx)
	defer done()
	go load(loading, url)
	fmt.Fprintf(s.Err, "the service records itself, and keeps the seconds around a request that takes longer than %v\n", demo.SlowThreshold)
	var files []string
	for end := time.Now().Add(demoStart); len(files) == 0; {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, "", ctx.Err()
		}
		if files, _ = filepath.Glob(filepath.Join(dir, "*"+record.BundleExt)); len(files) == 0 && time.Now().After(end) {
			return nil, "", errors.New("the demo's service kept no recording")
		}
	}
	done()
	name := files[0]
	if keep != "" {
		if _, err := copyTo(keep, name); err != nil {
			return nil, "", err
		}
	}
	in, err := s.openInput(ctx, name)
	if err != nil {
		return nil, "", err
	}
	defer in.Close()
	rep, err = (&explainFlags{}).explain(ctx, in)
	if err != nil {
		return nil, "", err
	}
	if in.meta != nil && in.meta.Flight != nil {
		route = in.meta.Flight.Reason.Route
	}
	return rep, route, nil
}

// writeFlightStory explains the demo's recording by a flight recorder, and how to record other services in the same way. route
// is the group of the slow requests, "" if it is not known; keep is the file with the recording, "" if it is removed.
func writeFlightStory(w io.Writer, rep *report.Report, route, keep string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\nWhat happened: no one started a recording. The service keeps its last seconds in memory, and wrote them to a file because\n%s.\n", termtext.Head(rep.Input.Reason, 200))
	for i := range rep.Groups {
		g := &rep.Groups[i]
		if route == "" || g.Name != route || len(g.Slowest) == 0 {
			continue
		}
		// The largest part of such a request, by its segments.
		parts := map[report.SiteKey]int64{}
		var largest *report.Segment
		for k := range g.Slowest[0].Segments {
			x := &g.Slowest[0].Segments[k]
			parts[x.Site.Key()] += x.DurationNS
			if largest == nil || parts[x.Site.Key()] > parts[largest.Site.Key()] {
				largest = x
			}
		}
		if largest != nil && g.Slowest[0].LatencyNS > 0 {
			fmt.Fprintf(&b, "The slowest %s in it spent %s of its %s %s, at %s.\n", termtext.Head(route, 80), words.Percent(float64(parts[largest.Site.Key()])/float64(g.Slowest[0].LatencyNS)),
				words.Duration(g.Slowest[0].LatencyNS), verdict.Words(&report.VerdictCause{Cause: largest.Cause, Kind: largest.Kind}), names.SiteText(largest.Site, 80))
		}
	}
	if keep == "" {
		fmt.Fprintln(&b, "To keep the file, run the demo with -o demo.whylate; whylate view opens it.")
	} else {
		fmt.Fprintf(&b, "To look at the file: whylate view %s\n", words.ShellQuote(keep))
	}
	fmt.Fprintln(&b, "Your own service does the same with flight.Start and mark.Handler: docs/flight.md.")
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing the demo's summary: %w", err)
	}
	return nil
}

// startService starts the store of the demo's service, and this program again as the service, whose URL it returns when the service is ready.
// recordings is the directory of its flight recorder, "" for none. stop ends both and waits.
func startService(ctx context.Context, recordings string) (url string, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, fmt.Errorf("finding this program, to start it as the demo's service: %w", err)
	}
	store, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("opening a port for the demo: %w", err)
	}
	go demo.Store(store)
	defer func() {
		if err != nil {
			store.Close()
		}
	}()
	cmd := exec.CommandContext(ctx, self, "demo-service", store.Addr().String())
	if recordings != "" {
		cmd.Args = append(cmd.Args, recordings)
	}
	cmd.Args[0] = os.Args[0]
	// Without garbage collection (there is little garbage) only the faults make the service late.
	cmd.Env = append(os.Environ(), fmt.Sprint("GOMAXPROCS=", demo.MaxProcs), "GOGC=off", "GOMEMLIMIT=256MiB")
	cmd.WaitDelay = time.Second
	var complaints strings.Builder
	cmd.Stderr = &complaints
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, fmt.Errorf("starting the demo's service: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, fmt.Errorf("starting the demo's service: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return "", nil, fmt.Errorf("starting the demo's service: %w", err)
	}
	stop = func() {
		stdin.Close()
		_ = cmd.Wait()
		store.Close()
	}
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(stdout).ReadString('\n')
		line <- strings.TrimSpace(text)
	}()
	select {
	case url = <-line:
	case <-time.After(demoStart):
	case <-ctx.Done():
	}
	if !strings.HasPrefix(url, "http://") {
		_ = cmd.Process.Kill()
		stop()
		if ctx.Err() != nil {
			return "", nil, ctx.Err()
		}
		return "", nil, fmt.Errorf("the demo's service did not start: %s", strings.TrimSpace(complaints.String()))
	}
	return url, stop, nil
}

// writeVerdicts writes which faults were found and what the client measured (clientResults, by path), and returns an error
// unless all were found.
func writeVerdicts(w io.Writer, verdicts []demo.Verdict, clientResults map[string]demo.Result) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\nWhat is wrong with this service, and what was found:\n")
	missed := demo.CountMissed(verdicts)
	found := len(verdicts) - missed
	for _, v := range verdicts {
		mark, description := "missed", "the report has no group for it"
		if v.First != nil {
			description = fmt.Sprintf("%.0f%% %s", 100*v.Share, v.First.Cause)
			if s := v.First.Site; s != nil {
				description += fmt.Sprintf(" in %s %s:%d", s.Func[strings.LastIndexByte(s.Func, '/')+1:], filepath.Base(s.File), s.Line)
			}
		}
		if v.Found {
			mark = "found"
		}
		fmt.Fprintf(&b, "  %-7s %-42s %s: %s\n", mark, v.Fault.Description, v.Fault.Path, description)
		if r := clientResults[v.Fault.Path]; r.Count > 0 && v.Group != nil && v.Group.LatencyNS.P50 != nil {
			fmt.Fprintf(&b, "  %-7s %-42s p50 %v seen by the client, %v by the trace\n", "", "", words.Duration(int64(r.P50)), words.Duration(*v.Group.LatencyNS.P50))
		}
	}
	fmt.Fprintf(&b, "%d of %d known faults found.\n", found, len(verdicts))
	for _, v := range verdicts {
		if r := clientResults[v.Fault.Path]; r.Errors > 0 {
			fmt.Fprintf(&b, "%d requests to %s failed: %s\n", r.Errors, v.Fault.Path, termtext.Head(fmt.Sprint(r.Err), 200))
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing the verdict: %w", err)
	}
	if missed > 0 {
		return fmt.Errorf("%d of %d known faults were not found, perhaps because this machine is busy", missed, len(verdicts))
	}
	return nil
}
