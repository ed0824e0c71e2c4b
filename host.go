package whylate

import (
	"bufio"
	"errors"
	"io"

	"github.com/whylate/whylate/internal/host"
	"github.com/whylate/whylate/report"
)

// addHost adds what host samples tell of the trace's time. What is wrong with
// them is a warning; a recording without any is as good as no recording.
func (e *engine) addHost(rep *report.Report) {
	if e.opts.Host == nil {
		return
	}
	r := bufio.NewReader(e.opts.Host)
	if _, err := r.Peek(1); errors.Is(err, io.EOF) {
		return
	}
	samples, err := host.Read(r)
	if err == nil {
		rep.Host, err = samples.Summarize(host.Window{Start: e.start, End: e.end, Snapshot: e.rt.snapshot, At: e.rt.snapshotTime}, rep)
	}
	if err != nil {
		rep.Input.Warnings = append(rep.Input.Warnings, report.Warning{Code: host.WarnHost, Text: err.Error()})
		return
	}
	host.Throttle(rep)
}
