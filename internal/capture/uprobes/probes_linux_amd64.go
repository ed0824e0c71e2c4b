package uprobes

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
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
