package explain

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"

	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/explain/freeze"
	"github.com/whylate/whylate/internal/explain/hostjoin"
	"github.com/whylate/whylate/report"
)

// readHost reads the host samples and tells the detector of freezes what they
// know: those beside the trace, or those in it. A recording without any is as
// good as no recording.
func (e *engine) readHost() (*host.Samples, error) {
	r := bufio.NewReader(bytes.NewReader(nil))
	if e.opts.Host != nil {
		r.Reset(e.opts.Host)
	}
	if _, err := r.Peek(1); errors.Is(err, io.EOF) {
		logged := e.hosts.reader(e.process.Clock())
		if logged == nil {
			return nil, nil
		}
		r.Reset(logged)
	}
	samples, err := host.Read(r)
	if err != nil {
		return nil, err
	}
	if l, ok := hostjoin.LimitsOf(samples, e.window()); ok {
		e.freezes.Known = freeze.Known{CPUs: cmp.Or(l.Facts.Parallelism, l.Facts.CPUs), PeriodNS: l.Facts.PeriodNS, Verdict: string(l.Verdict)}
	}
	return samples, nil
}

func (e *engine) window() hostjoin.Window {
	snapshot, at := e.process.Clock()
	return hostjoin.Window{Start: e.pass.Start, End: e.pass.End, Snapshot: snapshot, At: at}
}

// addHost adds a summary of the host samples in the trace's time. An error in
// them becomes a warning.
func (e *engine) addHost(rep *report.Report, samples *host.Samples, err error) {
	if samples != nil {
		rep.Host, err = hostjoin.Summarize(samples, e.window(), rep)
	}
	if err != nil {
		rep.Input.Warnings = append(rep.Input.Warnings, report.Warning{Code: host.WarnHost, Text: err.Error()})
		return
	}
	hostjoin.Throttle(rep)
}
