package uprobes

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/whylate/whylate/internal/capture/gobinary"
	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/capture/schedtrace"
)

// record places the probes in the target, reads their events for opt.Duration, or until ctx or the process ends, and returns the recording. If ctx
// ended it, both results are set.
func (t *target) record(ctx context.Context, opt Options) (*Result, error) {
	res := &Result{Go: t.program.Version}
	programs := []string{"leave_cpu", "send", "sample"}
	for _, at := range t.points {
		programs = append(programs, at.program)
	}
	p, err := load(t, programs)
	if err != nil {
		return nil, err
	}
	defer p.close()
	reader, err := ringbuf.NewReader(p.collection.Maps["events"])
	if err != nil {
		return nil, fmt.Errorf("opening the buffer of events: %w", err)
	}
	defer reader.Close()
	for _, at := range t.points {
		if err := p.attach(t, at.program, at.offset); err != nil {
			return nil, err
		}
	}
	for _, o := range []struct {
		attach  func() error
		missing string
	}{
		{func() error { return p.attachTracepoint("leave_cpu", "sched_switch") }, "system calls are shown as running"},
		{func() error { return p.attachTracepoint("send", "sock_send_length") }, "the ends of requests are less exact"},
		{p.attachSamples, "there are no CPU samples"},
	} {
		if err := o.attach(); err != nil {
			res.Warnings = append(res.Warnings, fmt.Sprintf("the kernel refused a part of the recording, so %s: %v", o.missing, err))
		}
	}
	c := collector{target: t, reader: reader, stacks: map[uint64][]uint64{}}
	start, wall := host.MonotonicNS(), time.Now()
	err = c.run(ctx, opt, p, start)
	end := host.MonotonicNS()
	p.detach()
	c.drain()
	res.Lost, res.Hits = p.counters()
	res.Window = time.Duration(end - start)
	if res.Lost > 0 {
		res.Warnings = append(res.Warnings, fmt.Sprintf("%d of %d events were lost, because the recorder had no CPU in time: some states are wrong", res.Lost, int(res.Lost)+len(c.events)))
	}
	if c.isFull {
		res.Warnings = append(res.Warnings, fmt.Sprintf("the recording ended after %v, because it had %d million events", res.Window.Round(time.Millisecond), maxEvents>>20))
	}
	res.Recording = c.recording(start, end, wall)
	return res, err
}

// A collector reads events from the buffer that the BPF programs write.
type collector struct {
	target *target
	reader *ringbuf.Reader
	record ringbuf.Record
	events []rawEvent
	stacks map[uint64][]uint64
	isFull bool
}

// rawEvent is struct event of the BPF programs.
type rawEvent struct {
	time         int64
	g, peer      uint64
	stack, pc    uint64
	tid          uint32
	kind         schedtrace.Kind
	reason, skip uint8
}

const (
	eventSize      = 48
	stackEventHead = 16
)

// drainInterval is the time between two readings. The buffer holds 300,000 events.
const drainInterval = 20 * time.Millisecond

// run reads events until the duration in opt is over, the process has ended or maxEvents are read; it returns the error of ctx
// if that ends before. start is on CLOCK_MONOTONIC, in ns, for the progress.
func (c *collector) run(ctx context.Context, opt Options, p *probes, start int64) error {
	end := time.After(opt.Duration)
	tick := time.NewTicker(drainInterval)
	defer tick.Stop()
	for !c.isFull {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end:
			return nil
		case <-tick.C:
			c.drain()
			if _, err := os.Stat(fmt.Sprintf("/proc/%d", opt.PID)); err != nil {
				return nil // it has ended
			}
			if opt.Progress != nil {
				opt.Progress(time.Duration(host.MonotonicNS() - start))
			}
		}
	}
	return nil
}

// drain reads all events that are in the buffer, without waiting for more. It drops those beyond maxEvents and sets isFull.
func (c *collector) drain() {
	c.reader.SetDeadline(time.Unix(1, 0))
	for c.reader.ReadInto(&c.record) == nil {
		b := c.record.RawSample
		u64 := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
		if len(b) > eventSize {
			frames := int(binary.LittleEndian.Uint32(b[8:]))
			var addresses []uint64
			for i := range min(frames, (len(b)-stackEventHead)/8) {
				if pc := u64(2 + i); pc != 0 {
					addresses = append(addresses, pc-c.target.base)
				}
			}
			c.stacks[u64(0)] = addresses
			continue
		}
		if len(c.events) >= maxEvents {
			c.isFull = true
			continue
		}
		c.events = append(c.events, rawEvent{
			time: int64(u64(0)), g: u64(1), peer: u64(2), stack: u64(3), pc: u64(4),
			tid: binary.LittleEndian.Uint32(b[40:]), kind: schedtrace.Kind(b[44]), reason: b[45], skip: b[46],
		})
	}
}

// preemptedReason is the BPF programs' number for the reason "preempted".
const preemptedReason = 255

// recording returns the events from start to end (CLOCK_MONOTONIC, ns), by time, with the names and lines of their stacks. wall
// is the time of day at start.
func (c *collector) recording(start, end int64, wall time.Time) *schedtrace.Recording {
	r := &schedtrace.Recording{Start: start, End: end, Wall: wall, Stacks: [][]gobinary.Frame{nil}}
	slices.SortStableFunc(c.events, func(a, b rawEvent) int { return int(a.time - b.time) })
	program := c.target.program
	ids := c.target.threadIDs()
	type stackKey struct {
		hash, pc uint64
		skip     uint8
	}
	indexes := map[stackKey]int{{}: 0}
	indexOf := func(k stackKey, frames func() []gobinary.Frame) int {
		i, ok := indexes[k]
		if !ok {
			i = len(r.Stacks)
			r.Stacks = append(r.Stacks, frames())
			indexes[k] = i
		}
		return i
	}
	reasons := program.Layout.BlockReasons
	for _, raw := range c.events {
		if raw.time < start || raw.time > end {
			continue
		}
		e := schedtrace.Event{Time: raw.time, G: raw.g, Peer: raw.peer, Thread: uint64(raw.tid), Kind: raw.kind}
		if inner, ok := ids[e.Thread]; ok {
			e.Thread = inner
		}
		switch {
		case raw.kind == schedtrace.Block && raw.reason == preemptedReason, raw.kind == schedtrace.Stop && raw.reason == 1:
			e.Reason = "preempted"
		case raw.kind == schedtrace.Stop:
			e.Reason = "runtime.Gosched"
		case raw.kind == schedtrace.Block && int(raw.reason) < len(reasons):
			e.Reason = reasons[raw.reason]
		case raw.kind == schedtrace.Block:
			e.Reason = "unspecified"
		}
		if raw.stack != 0 {
			e.Stack = indexOf(stackKey{hash: raw.stack, skip: raw.skip}, func() []gobinary.Frame { return program.Stack(c.stacks[raw.stack], int(raw.skip)) })
		}
		if raw.pc != 0 {
			e.NewStack = indexOf(stackKey{pc: raw.pc}, func() []gobinary.Frame { return program.EntryStack(raw.pc - c.target.base) })
		}
		r.Events = append(r.Events, e)
	}
	return r
}
