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

// hostSamples are the host samples that accompany a trace. All its readings share them.
type hostSamples struct {
	samples *host.Samples // nil if there are none
	err     error
}

// load reads the samples. An empty input counts as none.
func (h *hostSamples) load(source io.Reader) {
	if source == nil {
		return
	}
	r := bufio.NewReader(source)
	if _, err := r.Peek(1); !errors.Is(err, io.EOF) {
		h.samples, h.err = host.Read(r)
	}
}

// loadHost returns the host samples that accompany the trace or are in it. It passes their facts about CPUs to the
// detector of freezes.
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
		e.freezes.Kernel = freeze.KernelLimits{
			CPUs: cmp.Or(l.Facts.Parallelism, l.Facts.CPUs), PeriodNS: l.Facts.PeriodNS, Verdict: report.ThrottleVerdict(l.Verdict),
		}
	}
	return samples, nil
}

func (e *engine) hostWindow() hostjoin.Window {
	snapshot, snapshotTime := e.process.Clock()
	return hostjoin.Window{Start: e.pass.Start, End: e.pass.End, Snapshot: snapshot, SnapshotTime: snapshotTime}
}

// addHost adds a summary of the host samples within the trace's time. An error becomes a warning.
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
