package uprobes

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/whylate/whylate/internal/capture/gobinary"
	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/capture/schedtrace"
)

// object is compiled from bpf/uprobes.bpf.c by bpf/rebuild.sh.
//
//go:embed bpf/uprobes.bpf.o
var object []byte

// probes are the loaded BPF programs and their connections to the kernel.
type probes struct {
	collection *ebpf.Collection
	links      []link.Link
	events     []int // descriptors of perf events
	isMulti    bool  // by uprobe_multi, which needs no CAP_SYS_ADMIN
}

// load loads, but does not attach, the BPF programs with these names, adapted to the process and Go release of the target. The error wraps
// ErrPermission or ErrSystem if the kernel refuses them.
func load(t *target, programs []string) (*probes, error) {
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	if err != nil {
		return nil, fmt.Errorf("reading the BPF programs: %w", err)
	}
	l := t.program.Layout
	for name, value := range map[string]int64{
		"tgid": int64(t.pid), "g_m": l.G.M, "g_status": l.G.Status, "g_goid": l.G.GoID, "g_schedlink": l.G.SchedLink, "g_sched_pc": l.G.SchedPC,
		"g_sched_bp": l.G.SchedBP, "g_syscall_pc": l.G.SyscallPC, "g_startpc": l.G.StartPC, "g_coroarg": l.G.CoroArg, "m_curg": l.M.Curg,
		"coro_g": l.Coro.G, "g_syscall_bp": l.G.SyscallBP,
	} {
		if err := spec.Variables[name].Set(int32(value)); err != nil {
			return nil, fmt.Errorf("setting %s of the BPF programs: %w", name, err)
		}
	}
	for name := range spec.Programs {
		if !slices.Contains(programs, name) {
			delete(spec.Programs, name)
		}
	}
	p := &probes{isMulti: true}
	for _, s := range spec.Programs {
		if s.Type == ebpf.Kprobe {
			s.AttachType = ebpf.AttachTraceUprobeMulti
		}
	}
	p.collection, err = ebpf.NewCollection(spec)
	if err != nil && !errors.Is(err, unix.EPERM) {
		// Kernels before 6.6 do not have uprobe_multi.
		for _, s := range spec.Programs {
			if s.Type == ebpf.Kprobe {
				s.AttachType = ebpf.AttachNone
			}
		}
		p.isMulti = false
		p.collection, err = ebpf.NewCollection(spec)
	}
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return nil, fmt.Errorf("%w: the kernel refuses BPF programs: run as root, or give the capabilities CAP_BPF and CAP_PERFMON: %w", ErrPermission, err)
	case err != nil:
		return nil, fmt.Errorf("%w: the kernel does not accept the BPF programs (Linux 5.15 or later is needed): %w", ErrSystem, err)
	}
	return p, nil
}

// attach places a probe at an offset in the file of the target's program. program is the name of the BPF program that runs
// there.
func (p *probes) attach(t *target, program string, offset uint64) error {
	ex, err := link.OpenExecutable(t.exe)
	if err != nil {
		return fmt.Errorf("opening the program of process %d: %w", t.pid, err)
	}
	var l link.Link
	if p.isMulti {
		options := &link.UprobeMultiOptions{Addresses: []uint64{offset}, PID: uint32(t.pid)}
		if kernelBefore(6, 10) {
			options.PID = 0 // the kernel compared the id with that of each thread; the BPF programs check the process too
		}
		l, err = ex.UprobeMulti(nil, p.collection.Programs[program], options)
	} else {
		l, err = ex.Uprobe("", p.collection.Programs[program], &link.UprobeOptions{Address: offset, PID: t.pid})
	}
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		missing := "CAP_PERFMON and CAP_SYS_PTRACE"
		if !p.isMulti {
			missing = "CAP_SYS_ADMIN, which kernels before 6.6 require,"
		}
		return fmt.Errorf("%w to place probes in process %d: run as root, or give %s: %w", ErrPermission, t.pid, missing, err)
	case err != nil:
		return fmt.Errorf("placing a probe in process %d: %w", t.pid, err)
	}
	p.links = append(p.links, l)
	return nil
}

// kernelBefore reports whether this machine's kernel is older than release major.minor; false if its release is not known.
func kernelBefore(major, minor int) bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	parts := strings.FieldsFunc(unix.ByteSliceToString(u.Release[:]), func(r rune) bool { return r < '0' || r > '9' })
	if len(parts) < 2 {
		return false
	}
	a, _ := strconv.Atoi(parts[0])
	b, _ := strconv.Atoi(parts[1])
	return a < major || a == major && b < minor
}

// attachTracepoint attaches a program to a tracepoint of the kernel.
func (p *probes) attachTracepoint(program, tracepoint string) error {
	l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: tracepoint, Program: p.collection.Programs[program]})
	if err == nil {
		p.links = append(p.links, l)
	}
	return err
}

// sampleRate is that of the runtime's CPU profile, in samples a second of CPU time.
const sampleRate = 100

// attachSamples makes the kernel run the program "sample" on each CPU, sampleRate times a second of its CPU time.
func (p *probes) attachSamples() error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	attribute := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Sample: sampleRate, Bits: unix.PerfBitFreq, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{}))}
	for cpu := range cpus {
		fd, err := unix.PerfEventOpen(&attribute, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if errors.Is(err, unix.ENODEV) {
			continue // offline
		}
		if err != nil {
			return err
		}
		p.events = append(p.events, fd)
		if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, p.collection.Programs["sample"].FD()); err != nil {
			return err
		}
		if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
			return err
		}
	}
	return nil
}

// counters returns the number of lost events and of hits of probes since load.
func (p *probes) counters() (lost, hits uint64) {
	for i, sum := range []*uint64{&lost, &hits} {
		var values []uint64
		if err := p.collection.Maps["counters"].Lookup(uint32(i), &values); err == nil {
			for _, v := range values {
				*sum += v
			}
		}
	}
	return lost, hits
}

// detach removes all probes; the counters and the buffer of events remain readable.
func (p *probes) detach() {
	for _, fd := range p.events {
		unix.Close(fd)
	}
	for _, l := range p.links {
		l.Close()
	}
	p.events, p.links = nil, nil
}

func (p *probes) close() {
	p.detach()
	p.collection.Close()
}

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
	res.Share = float64(res.Hits) * (hitCost + stackCost/2).Seconds() / res.Window.Seconds() / t.cpus
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
