package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/output/words"
)

// flightTimeout is the longest wait for the answer of a service that may have no flight recorder.
const flightTimeout = 3 * time.Second

// wantsTrace returns the name of a flag on the command line that requires a new trace, "" if there is none.
func wantsTrace(cmd *cobra.Command) string {
	for _, name := range []string{"duration", "no-cpu", "no-host", "pid"} {
		if cmd.Flags().Changed(name) {
			return name
		}
	}
	return ""
}

// openFlight fetches the recording of the flight recorder at a URL, and writes a note. The input is nil, without an error, if a trace must be
// recorded instead.
func (s *streams) openFlight(cmd *cobra.Command, target string, opt record.Options) (*input, error) {
	named, may := record.MayServeFlight(target)
	if flag := wantsTrace(cmd); flag != "" {
		if named {
			return nil, command.Usage(cmd, "--%s is for a trace that is recorded now, but %s names a flight recorder: leave the path out", flag, record.FlightPath)
		}
		return nil, nil
	}
	if !may {
		return nil, nil
	}
	in, err := takeFlight(cmd.Context(), target, opt, named)
	switch {
	case err == nil:
	case cmd.Context().Err() != nil:
		return nil, interruptedEarly()
	case named || isUnreachable(err):
		return nil, command.RecordError(err)
	default:
		if e, ok := errors.AsType[*record.Error](err); ok && e.Kind == record.Empty {
			fmt.Fprintf(s.Err, "whylate: %s (%s): recording %v instead\n", e.Text, command.OneLine(e.Remedy), opt.Duration)
		}
		return nil, nil
	}
	held := "what its flight recorder holds"
	if m := in.meta; m != nil && m.ReceivedNS > 0 {
		held = "the last " + words.Rough(m.ReceivedNS) + " that its flight recorder holds"
	}
	fmt.Fprintf(s.Err, "whylate: %s: %s, without waiting (-d %v records the next seconds instead)\n", in.name, held, opt.Duration)
	return in, nil
}

// takeFlight fetches a recording of the flight recorder at a target into a file that is removed when the input is closed. If
// the user has not named the recorder, it waits only flightTimeout for the first bytes.
func takeFlight(ctx context.Context, target string, opt record.Options, named bool) (*input, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tmp, err := os.CreateTemp("", "whylate-*.part")
	if err != nil {
		return nil, fmt.Errorf("keeping the recording for reading: %w", err)
	}
	in := &input{}
	in.ownFile(tmp)
	first := opt.ConnectTimeout + opt.Grace
	if !named {
		first = flightTimeout
	}
	to := &watchdogWriter{w: tmp, silence: opt.Grace, timer: time.AfterFunc(first, cancel)}
	defer to.timer.Stop()
	in.size, err = record.SaveFlight(ctx, target, opt, "", to)
	if err == nil {
		err = in.unpack(tmp, "")
	}
	if err != nil {
		in.Close()
		return nil, err
	}
	in.name = record.FlightURL(target)
	return in, nil
}

// A watchdogWriter is a writer whose timer fires if nothing is written for some time.
type watchdogWriter struct {
	w       io.Writer
	silence time.Duration
	timer   *time.Timer
}

// Write restarts the timer and writes p.
func (l *watchdogWriter) Write(p []byte) (int, error) {
	l.timer.Reset(l.silence)
	return l.w.Write(p)
}

// isUnreachable reports whether an error of fetching a flight recorder's recording implies that a trace cannot be requested from the service, either.
func isUnreachable(err error) bool {
	var e *record.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Kind {
	case record.Usage, record.DNS, record.Refused, record.TLS, record.Proxy:
		return true
	}
	return false
}
