package explain

import (
	"bufio"
	"cmp"
	"errors"
	"io"

	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/explain/freeze"
	"github.com/whylate/whylate/internal/explain/hostjoin"
	"github.com/whylate/whylate/report"
)

// hostSamples are those beside a trace, which all readings of it share.
type hostSamples struct {
	samples *host.Samples // nil if there are none
	err     error
}

// load reads them. A recording without any is as good as no recording.
func (h *hostSamples) load(source io.Reader) {
	if source == nil {
		return
	}
	r := bufio.NewReader(source)
	if _, err := r.Peek(1); !errors.Is(err, io.EOF) {
		h.samples, h.err = host.Read(r)
	}
}

// loadHost returns the host samples, those beside the trace or those in it, and tells the detector of freezes what they
// know.
func (e *engine) loadHost() (*host.Samples, error) {
	loaded := e.opts.hostSamples
	if loaded.samples == nil && loaded.err == nil {
		if logged := e.hostLog.reader(e.process.Clock()); logged != nil {
			loaded.load(logged)
		}
	}
	samples := loaded.samples
	if samples == nil || loaded.err != nil {
		return nil, loaded.err
	}
	if l, ok := hostjoin.LimitsOf(samples, e.hostWindow()); ok {
		e.freezes.Kernel = freeze.KernelLimits{CPUs: cmp.Or(l.Facts.Parallelism, l.Facts.CPUs), PeriodNS: l.Facts.PeriodNS, Verdict: report.ThrottleVerdict(l.Verdict)}
	}
	return samples, nil
}

func (e *engine) hostWindow() hostjoin.Window {
	snapshot, snapshotTime := e.process.Clock()
	return hostjoin.Window{Start: e.pass.Start, End: e.pass.End, Snapshot: snapshot, SnapshotTime: snapshotTime}
}

// addHost adds a summary of the host samples in the trace's time. An error in
// them becomes a warning.
func (e *engine) addHost(rep *report.Report, samples *host.Samples, err error) {
	if samples != nil {
		rep.Host, err = hostjoin.Summarize(samples, e.hostWindow(), rep)
	}
	if err != nil {
		rep.Input.Warnings = append(rep.Input.Warnings, report.Warning{Code: host.WarnHost, Text: err.Error()})
		return
	}
	hostjoin.ReplaceThrottle(rep)
}
