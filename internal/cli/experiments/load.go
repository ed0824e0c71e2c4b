// Package experiments has the verbs of the whylate command that run services under load.
package experiments

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/capture/atomicfile"
	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/experiment/load"
	"github.com/whylate/whylate/internal/output/progress"
	"github.com/whylate/whylate/internal/output/termtext"
)

// loadFlags are the flags of verbs that send requests.
type loadFlags struct {
	load.Options         // as far as flags give them as they are
	method, body, bodyIn string
	header               []string
	targets, caCert      string
	insecure, remote     bool
}

// paceAuto leaves the pace to paceFor.
const paceAuto load.Pace = "auto"

// add adds the flags of the load generator, other than the load itself, to a command.
func (l *loadFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	l.Arrivals, l.Pace = load.Poisson, paceAuto
	command.Choose(cmd, &l.Arrivals, "arrivals", "distribution of arrivals: poisson, like users, or constant", load.Poisson, load.Constant)
	command.Choose(cmd, &l.Pace, "pace", "how the generator waits: sleep, spin (needs its own core), timer, or auto", load.PaceSleep, load.PaceSpin, load.PaceTimer, paceAuto)
	f.Uint64Var(&l.Seed, "seed", 1, "seed of the arrivals: equal seeds give equal schedules")
	f.IntVar(&l.MaxInFlight, "max-in-flight", 0, "allow this many requests in flight; any beyond are counted, and make the run invalid (default 4096)")
	f.DurationVar(&l.Timeout, "timeout", 30*time.Second, "give up on a request after this time")
	f.BoolVar(&l.HTTP.H2, "http2", false, "speak HTTP/2, without TLS for http URLs")
	f.BoolVar(&l.HTTP.NoReuse, "no-reuse", false, "open a connection for every request")
	f.StringVarP(&l.method, "method", "X", "", "HTTP method (default: GET, or POST with a body)")
	f.StringVar(&l.body, "body", "", "send this `text` with every request")
	f.StringVar(&l.bodyIn, "body-file", "", "send this `file` with every request")
	f.StringArrayVarP(&l.header, "header", "H", nil, "send this header, `Name: value` (may be repeated)")
	f.StringVar(&l.targets, "targets", "", "a `file` of several targets with weights: see above")
	f.StringVar(&l.caCert, "cacert", "", "trust the certificate authorities in this PEM `file`")
	f.BoolVarP(&l.insecure, "insecure", "k", false, "do not verify the server's certificate")
	f.BoolVar(&l.remote, "allow-remote", false, "allow other hosts: you confirm that you may load them")
}

// options makes the options of a run against a URL, and reads the files that the flags name. Pace and schedule are the caller's.
func (l *loadFlags) options(cmd *cobra.Command, target string) (load.Options, error) {
	o := l.Options
	o.Pace = ""
	if !strings.Contains(target, "://") {
		target = "http://" + target
	}
	if strings.HasPrefix(target, "http://:") { // as net/http listens
		target = "http://localhost" + strings.TrimPrefix(target, "http://")
	}
	header := http.Header{}
	if err := record.AddHeaders(header, "--header", l.header); err != nil {
		return o, command.RecordError(err)
	}
	one := load.Target{URL: target, Method: l.method, Body: []byte(l.body), Header: header, Weight: 1}
	if l.bodyIn != "" {
		if l.body != "" {
			return o, command.Usage(cmd, "--body and --body-file exclude each other")
		}
		b, err := command.WaitFor(cmd.Context(), l.bodyIn, func() ([]byte, error) { return load.ReadBody(l.bodyIn) })
		if err != nil {
			return o, err
		}
		one.Body = b
	}
	o.Targets = []load.Target{one}
	if l.targets != "" {
		if l.method != "" || len(one.Body) > 0 {
			return o, command.Usage(cmd, "--targets names methods and bodies itself: leave --method, --body and --body-file out")
		}
		var err error
		o.Targets, err = command.ReadOption(cmd, l.targets, func(r io.Reader, name string) ([]load.Target, error) {
			targets, err := load.ReadTargets(r, target, filepath.Dir(name))
			if err != nil {
				err = fmt.Errorf("%s: %w", name, err)
			}
			return targets, err
		})
		if err != nil {
			return o, err
		}
		for i := range o.Targets {
			t := &o.Targets[i]
			if t.Header == nil {
				t.Header = http.Header{}
			}
			for name, values := range header {
				if _, ok := t.Header[name]; !ok {
					t.Header[name] = values
				}
			}
		}
	}
	if !l.remote && !load.AreLoopback(o.Targets) {
		return o, command.Usage(cmd, "%s is not this machine: --allow-remote says that you may load it", redactedURL(target))
	}
	if l.caCert != "" || l.insecure {
		c, err := record.TLSFiles{CACert: l.caCert, Insecure: l.insecure}.Config(cmd.Context())
		if err != nil {
			return o, command.RecordError(err)
		}
		o.HTTP.TLS = c
	} else {
		o.HTTP.TLS = &tls.Config{}
	}
	return o, nil
}

// paceFor returns how the generator waits for the next request: as the flag says, else spinning if it has CPUs that the service does not use
// (hasOwnCPUs), else sleeping.
func (l *loadFlags) paceFor(hasOwnCPUs bool) load.Pace {
	switch {
	case l.Pace != paceAuto:
		return l.Pace
	case hasOwnCPUs:
		return load.PaceSpin
	}
	return load.PaceSleep
}

// redactedURL returns a URL with xxxxx for its password, "the target" if it cannot be parsed.
func redactedURL(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "the target"
	}
	return u.Redacted()
}

// A Recorder begins to record a service for a time, and returns when the trace has begun. explain waits for the end of the recording
// and writes why requests were late; discard ends the recording and removes it.
type Recorder = func(cmd *cobra.Command, s *command.Streams, target string, duration time.Duration) (explain func() error, discard func(), err error)

// Verbs are the verbs of this package. startRecording records the services that they load.
func Verbs(startRecording Recorder) []command.Verb {
	return []command.Verb{func(s *command.Streams) *cobra.Command { return newLoad(s, startRecording) }, newSweep, newSweepGuard}
}

// newLoad returns the command load, which sends requests at a steady rate and measures their latency. startRecording starts the
// recording for --explain.
func newLoad(s *command.Streams, startRecording Recorder) *cobra.Command {
	var (
		l                loadFlags
		rate             string
		duration         time.Duration
		asJSON, bench    bool
		output, histFile string
		explainURL       string
		explainRecording func() error
	)
	cmd := &cobra.Command{
		GroupID: command.GroupTry,
		Use:     "load [flags] URL",
		Short:   "Send requests at a steady rate and measure latency honestly",
		Args:    command.Exactly(1, "name one URL, got {n}"),
		RunE: command.RunE(func(cmd *cobra.Command, args []string) error {
			if rate == "" && l.ClosedClients == 0 {
				return command.Usage(cmd, "set the requests per second with --rate")
			}
			if asJSON && bench {
				return command.Usage(cmd, "--json and --bench exclude each other")
			}
			if explainURL != "" && (asJSON || bench) {
				return command.Usage(cmd, "--explain writes text: leave --json and --bench out, or run `whylate record` during the load")
			}
			o, err := l.options(cmd, args[0])
			if err != nil {
				return err
			}
			if rate != "" {
				if o.Phases, err = load.ParseRate(rate, duration); err != nil {
					return command.Usage(cmd, "%v", err)
				}
			} else {
				o.Phases = []load.Phase{{Duration: duration}}
			}
			o.Pace = l.paceFor(runtime.NumCPU() >= 4)
			// A goroutine that sleeps in the kernel holds a P for a moment.
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + 1))
			if explainURL == loadedService {
				explainURL = serviceOf(o.Targets[0].URL)
			}
			if explainURL != "" {
				var discard func()
				if explainRecording, discard, err = startRecording(cmd, s, explainURL, l.Warmup+duration); err != nil {
					return err
				}
				defer discard()
			}
			bar := s.Bar()
			if bar != nil {
				label := redactedURL(o.Targets[0].URL)
				o.Progress = func(done, total time.Duration, sent int64) {
					bar.Set(progress.State{Note: fmt.Sprintf("%s  %.1fs of %v, %d requests", label, done.Seconds(), total, sent)})
				}
			}
			res, err := load.Run(cmd.Context(), o)
			bar.Clear()
			if res == nil {
				if cmd.Context().Err() != nil {
					return command.Exit(command.ExitInterrupted, errors.New("interrupted before a request was answered"))
				}
				return command.Exit(command.ExitUsage, err)
			}
			name := redactedURL(o.Targets[0].URL)
			if l.targets != "" {
				name = l.targets
			}
			if histFile != "" {
				if err := atomicfile.WriteTo(histFile, func(w io.Writer) error { return load.WriteHDR(w, res) }); err != nil {
					return err
				}
			}
			if err := s.WriteTo(output, func(w io.Writer) error {
				switch {
				case asJSON:
					return command.WriteJSON(w, res)
				case bench:
					return load.WriteBench(w, res, pathOf(o.Targets[0].URL))
				}
				return load.WriteText(w, res, name)
			}); err != nil {
				return err
			}
			if (asJSON || bench) && !res.Valid {
				for _, w := range res.Warnings {
					fmt.Fprintf(s.Err, "whylate: %s\n", termtext.Escape(w.Text))
				}
			}
			if explainRecording != nil {
				fmt.Fprint(s.Out, "\nthe service during the load:\n\n")
				if err := explainRecording(); err != nil {
					return err
				}
			}
			switch {
			case cmd.Context().Err() != nil:
				return command.Exit(command.ExitInterrupted, nil)
			case res.Requests == res.Errors:
				return command.Exit(command.ExitFailed, nil)
			}
			return nil
		}),
	}
	f := cmd.Flags()
	f.StringVar(&rate, "rate", "", "`requests` per second: 500, a ramp 100..1000, or steps 100,200,400")
	f.DurationVarP(&duration, "duration", "d", 10*time.Second, "how long to send requests, up to an hour")
	f.DurationVar(&l.Warmup, "warmup", 0, "send requests for this long before measuring")
	f.IntVar(&l.ClosedClients, "closed", 0, "instead of a rate, this many `clients` that each wait for an answer before the next request")
	l.add(cmd)
	f.StringVar(&explainURL, "explain", "", "record the service during the load, and say why its requests were late; `URL` is that of its net/http/pprof")
	f.Lookup("explain").NoOptDefVal = loadedService
	f.BoolVar(&asJSON, "json", false, "print the result as JSON")
	f.BoolVar(&bench, "bench", false, "print the result as a line of the Go benchmark format, for benchstat")
	f.StringVar(&histFile, "hdr", "", "write the latencies to this `file` as a histogram log of HdrHistogram")
	f.StringVarP(&output, "output", "o", "", "write to this `file` instead of standard output")
	command.ShowFlags(cmd, "rate", "duration", "warmup", "closed", "timeout", "method", "body", "header", "targets", "http2", "allow-remote", "explain", "json", "output")
	return cmd
}

// loadedService is the value of --explain without a URL: the service that is loaded serves its profiles itself.
const loadedService = "that of the load"

// serviceOf returns the scheme and host of a URL; text that is none unchanged.
func serviceOf(target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return target
	}
	return u.Scheme + "://" + u.Host
}

// pathOf returns the escaped path of a URL, "" for text that is none.
func pathOf(s string) string {
	if u, err := url.Parse(s); err == nil {
		return u.EscapedPath()
	}
	return ""
}
