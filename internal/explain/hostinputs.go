package explain

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/explain/hostjoin"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// readHost reads host samples. They are nil if source is nil or empty.
func readHost(source io.Reader) (*host.Samples, error) {
	if source == nil {
		return nil, nil
	}
	r := bufio.NewReader(source)
	if _, err := r.Peek(1); errors.Is(err, io.EOF) {
		return nil, nil
	}
	return host.Read(r)
}

// maxKernelFile bounds the kernel's events.
const maxKernelFile = 64 << 20

// readKernel reads the kernel's events, at most maxKernelFile bytes; nil if source is nil.
func readKernel(source io.Reader) ([]byte, error) {
	if source == nil {
		return nil, nil
	}
	data, err := io.ReadAll(io.LimitReader(source, maxKernelFile+1))
	if err == nil && len(data) > maxKernelFile {
		err = fmt.Errorf("reading the kernel's events: they have more than %d MiB", maxKernelFile>>20)
	}
	return data, err
}

// hostWindow returns the time of the trace, with its clock snapshot, for joining host samples.
func (r *reading) hostWindow() hostjoin.Window {
	snapshot, snapshotTime := r.process.Clock()
	return hostjoin.Window{Start: r.pass.Start, End: r.pass.End, Snapshot: snapshot, SnapshotTime: snapshotTime}
}

// Keys of the user logs in which service/flight writes the kernel's counters. The messages are lines of host.jsonl
// without clocks, because the events have the time.
const (
	hostStartKey  = "whylate.host/1 start"
	hostSampleKey = "whylate.host/1 sample"
)

// maxHostLog bounds the bytes that are stored, enough for half an hour.
const maxHostLog = 16 << 20

// hostLog collects these logs. It implements pass.Listener.
type hostLog struct {
	start string
	lines []hostLine
	bytes int
}

// A hostLine is one sample of the kernel's counters, as JSON without its clocks.
type hostLine struct {
	time int64 // on the trace's clock
	text string
}

// AddGeneration implements pass.Listener: it collects the kernel's counters that service/flight wrote as user logs.
func (h *hostLog) AddGeneration(g *timeline.Gen, syms *tracefmt.Symbols, _ bool) {
	if h.bytes > maxHostLog {
		return
	}
	for i := range g.User {
		event := &g.User[i]
		if event.Kind != timeline.LogMessage {
			continue
		}
		key := syms.String(event.Name)
		if key != hostStartKey && key != hostSampleKey {
			continue
		}
		text := syms.String(event.Value)
		if !strings.HasPrefix(text, `{"`) || strings.ContainsAny(text, "\r\n") {
			continue
		}
		if key == hostStartKey {
			h.start = cmp.Or(h.start, text)
			continue
		}
		h.lines = append(h.lines, hostLine{event.Time, text})
		h.bytes += len(text)
	}
}

// reader returns the collected samples in the form of host.jsonl, with the clocks that follow from the trace's clock snapshot. It
// is nil if there are no samples or no snapshot.
func (h *hostLog) reader(snapshot *tracefmt.ClockSnapshot, snapshotTime int64) io.Reader {
	if h.start == "" || len(h.lines) == 0 || snapshot == nil {
		return nil
	}
	var buf bytes.Buffer
	write := func(t int64, text string) {
		mono := int64(snapshot.Mono) + t - snapshotTime
		wall := int64(snapshot.UnixSec)*1e9 + int64(snapshot.UnixNsec) + t - snapshotTime
		fmt.Fprintf(&buf, `{"mono_ns":%d,"wall_ns":%d,%s`+"\n", mono, wall, text[1:])
	}
	write(h.lines[0].time, h.start)
	for _, l := range h.lines {
		write(l.time, l.text)
	}
	return &buf
}
