package kernelprobe

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/capture/kernelevents"
)

// A tracepoint is a place in the kernel with the programs that can record it; the first one that the kernel accepts is used.
type tracepoint struct {
	name     string
	programs []string
	// answer is what cannot be observed without it, "" if nothing is lost but detail.
	answer string
}

// The programs are independent of each other, except that nothing can be said without sched_switch.
var tracepoints = []tracepoint{
	{"sched_switch", []string{"sched_switch", "sched_switch_5_17"}, "waits for a CPU, disk waits, and which process ran instead"},
	{"sched_wakeup", []string{"sched_wakeup"}, "waits for a CPU after a sleep"},
	{"sched_wakeup_new", []string{"sched_wakeup_new"}, "waits for a CPU of new threads"},
	{"sched_waking", []string{"sched_waking"}, ""},
	{"sched_migrate_task", []string{"sched_migrate_task"}, ""},
	{"sched_process_exec", []string{"sched_process_exec"}, ""},
	{"softirq_entry", []string{"softirq_entry"}, "the time of interrupts"},
	{"softirq_exit", []string{"softirq_exit"}, "the time of interrupts"},
	{"hrtimer_expire_entry", []string{"hrtimer_expire_entry"}, "when a quota was refilled"},
	{"hrtimer_expire_exit", []string{"hrtimer_expire_exit"}, "which sleeps of peers a timer ended"},
	{"sk_data_ready", []string{"sk_data_ready"}, "when bytes arrived"},
	{"sock_recv_length", []string{"sock_recv_length"}, "which bytes a request had to wait for"},
	{"sock_send_length", []string{"sock_send_length"}, "when an answer was sent"},
	{"tcp_retransmit_skb", []string{"tcp_retransmit_skb"}, "which connections sent segments again"},
}

// A Probe records events until Stop.
type Probe struct {
	pid int
	// hasHostPIDs means that this process has the numbers of processes that the kernel's programs have.
	hasHostPIDs bool
	maps        *ebpf.Collection
	closers     []func() error
	programs    []bundle.KernelProgram
	reader      *ringbuf.Reader
	log         *eventLog
	start       int64
	heartbeat   int64 // of the last call of beat

	stop chan struct{}
	done chan struct{}
}

// Start begins to record events about a process, in a goroutine, until Stop. The error names the missing capability or feature of the kernel.
func Start(pid int) (*Probe, error) {
	if object == nil {
		return nil, fmt.Errorf("not available on %s", runtime.GOARCH)
	}
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("this kernel has no type information (CONFIG_DEBUG_INFO_BTF)")
	}
	if offset := timeOffset(pid); offset != 0 {
		return nil, fmt.Errorf("the clock of process %d differs from that of the host by %v (a time namespace)", pid, time.Duration(offset))
	}
	p := &Probe{pid: pid, stop: make(chan struct{}), done: make(chan struct{})}
	if err := p.load(); err != nil {
		p.close()
		return nil, err
	}
	p.log = newEventLog(pid, p.hasHostPIDs)
	if p.hasHostPIDs {
		p.log.setPID(int32(pid))
	}
	p.start = host.MonotonicNS()
	go p.run()
	return p, nil
}

// load loads and attaches all programs that the kernel accepts, lists in p.programs those that it refused, and enables them. It fails if the kernel
// refuses the first tracepoint's program, without which the others say nothing.
func (p *Probe) load() error {
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	if err != nil {
		return err
	}
	programs := spec.Programs
	spec.Programs = nil
	// Only kernels before 5.11 count maps as locked memory. Without CAP_SYS_RESOURCE the limit may suffice.
	_ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
	if p.maps, err = ebpf.NewCollection(spec); err != nil {
		return explainRefusal(err)
	}
	p.closers = append(p.closers, func() error { p.maps.Close(); return nil })
	if err := p.setTargets(); err != nil {
		return err
	}
	cache := btf.NewCache()
	attached := 0
	for i := range tracepoints {
		t := &tracepoints[i]
		err := p.attach(spec, programs, t, cache)
		program := bundle.KernelProgram{Name: t.name, IsAttached: err == nil}
		if err != nil {
			if i == 0 { // the others say nothing without it
				return explainRefusal(err)
			}
			program.Reason = oneLine(explainRefusal(err).Error())
		} else {
			attached++
		}
		p.programs = append(p.programs, program)
	}
	if p.reader, err = ringbuf.NewReader(p.maps.Maps["ring"]); err != nil {
		return err
	}
	p.closers = append(p.closers, p.reader.Close)
	if err := p.beat(); err != nil {
		return err
	}
	return p.maps.Variables["enabled"].Set(uint32(1))
}

// attach attaches one program to a tracepoint: the first of t.programs that the kernel accepts. If it accepts none, the error is that of the first
// one.
func (p *Probe) attach(spec *ebpf.CollectionSpec, programs map[string]*ebpf.ProgramSpec, t *tracepoint, cache *btf.Cache) error {
	var first error
	for _, name := range t.programs {
		c := spec.Copy()
		c.Programs = map[string]*ebpf.ProgramSpec{name: programs[name].Copy()}
		loaded, err := ebpf.NewCollectionWithOptions(c, ebpf.CollectionOptions{MapReplacements: p.maps.Maps, Cache: cache})
		if err == nil {
			defer loaded.Close() // the link holds the program
			var l link.Link
			if l, err = link.AttachTracing(link.TracingOptions{Program: loaded.Programs[name]}); err == nil {
				p.closers = append(p.closers, l.Close)
				return nil
			}
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// setTargets sets the variables by which the BPF programs select events: the process, its network namespace, its PID namespace if that is not the
// host's, and the ports on which it accepts connections.
func (p *Probe) setTargets() error {
	set := func(name string, value any) error { return p.maps.Variables[name].Set(value) }
	network, err := host.NamespaceNumber(p.pid, "net")
	if err != nil {
		return fmt.Errorf("reading about process %d: %w", p.pid, err)
	}
	var targets [4]uint32
	wanted := uint32(0)
	namespace, err := host.NamespaceNumber(os.Getpid(), "pid")
	if err != nil {
		return err
	}
	if p.hasHostPIDs = namespace == host.FirstPIDNamespace; p.hasHostPIDs {
		targets[0] = uint32(p.pid)
	} else {
		wanted = uint32(p.pid)
	}
	if err := errors.Join(set("target_network", network), set("targets", targets), set("wanted_namespace", namespace), set("wanted_pid", wanted), set("cpu_count", uint32(max(1, ebpf.MustPossibleCPU())))); err != nil {
		return err
	}
	for _, port := range host.ListeningPorts(p.pid) {
		if err := p.maps.Maps["ports"].Put(port, uint8(1)); err != nil {
			return err
		}
	}
	return nil
}

// explainRefusal returns an error with the reason for the kernel's refusal: the verifier, or the missing capability; any other error unchanged.
func explainRefusal(err error) error {
	if _, ok := errors.AsType[*ebpf.VerifierError](err); ok {
		return fmt.Errorf("this kernel rejects the program (%w)", err)
	}
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		return err
	}
	if missing := host.MissingBPFCapabilities(); len(missing) > 0 {
		return fmt.Errorf("it needs %s: run as root, or grant them with setcap %s=ep", strings.Join(missing, " and "), strings.ToLower(strings.Join(missing, ",")))
	}
	return fmt.Errorf("this host does not allow it (%w)", errors.Unwrap(err))
}

// drainInterval is the time between two readings of the ring. In it, 32 MiB are full at 2.4 million events a second, which is more than maxRate.
const drainInterval = 250 * time.Millisecond

// run reads events until Stop.
func (p *Probe) run() {
	defer close(p.done)
	timer := time.NewTicker(drainInterval)
	defer timer.Stop()
	for ended := false; !ended; {
		select {
		case <-timer.C:
			p.checkStill()
		case <-p.stop:
			_ = p.maps.Variables["enabled"].Set(uint32(0))
			p.log.end = host.MonotonicNS()
			ended = true
		}
		p.drain()
		if p.log.stopReason != "" {
			_ = p.maps.Variables["enabled"].Set(uint32(0))
			p.drain()
			break
		}
	}
	p.log.finish(p)
}

// hasThrottledClock reports whether the kernel has the clock from which Throttled events come.
func (p *Probe) hasThrottledClock() bool {
	var clock uint32
	return p.maps.Variables["has_throttled_clock"].Get(&clock) == nil && clock != 0
}

// maxStillNS is the time without a call of beat after which the programs record nothing more: MAX_STILL_NS of bpf/probe.bpf.c.
const maxStillNS = 5e9

// beat shows the programs that their events are read.
func (p *Probe) beat() error {
	p.heartbeat = host.MonotonicNS()
	return p.maps.Variables["heartbeat"].Set(uint64(p.heartbeat))
}

// checkStill ends the recording if the BPF programs have disabled themselves, because this process did not renew its heartbeat for maxStillNS. Then
// it renews the heartbeat.
func (p *Probe) checkStill() {
	var enabled uint32
	if p.maps.Variables["enabled"].Get(&enabled) == nil && enabled == 0 && p.log.stopReason == "" {
		p.log.end, p.log.stopReason = p.heartbeat+maxStillNS, "the recorder stood still, so that they were not read"
	}
	_ = p.beat()
}

// drain adds the records of the ring to the log until the ring is empty, without waiting, then the number of lost ones.
func (p *Probe) drain() {
	begin := host.MonotonicNS()
	p.reader.SetDeadline(time.Unix(1, 0))
	var record ringbuf.Record
	for p.reader.ReadInto(&record) == nil {
		p.log.add(record.RawSample)
	}
	if p.log.tables.PID == 0 {
		var targets [4]uint32
		if p.maps.Variables["targets"].Get(&targets) == nil {
			p.log.setPID(int32(targets[0]))
		}
	}
	var lost uint64
	if p.maps.Variables["lost"].Get(&lost) == nil {
		p.log.addLost(int64(lost), begin)
	}
}

// Stop ends recording, waits for the last events, and returns the content of kernel.bin, its description, and warnings about its gaps. Further calls
// return the same; concurrent ones are not allowed.
func (p *Probe) Stop() ([]byte, *bundle.Kernel, []bundle.Warning) {
	select {
	case <-p.stop:
	default:
		close(p.stop)
	}
	<-p.done
	p.close()
	return p.log.data.Bytes(), p.facts(), p.warnings()
}

// close detaches the programs and closes what load opened, last first. Further calls do nothing.
func (p *Probe) close() {
	for _, f := range slices.Backward(p.closers) {
		_ = f()
	}
	p.closers = nil
}

// facts returns the description of the recording for its metadata.
func (p *Probe) facts() *bundle.Kernel {
	return &bundle.Kernel{
		Schema: kernelevents.Schema, Events: p.log.writer.Events, Lost: p.log.lost, Late: p.log.writer.Late, Programs: p.programs,
		CPUs: p.log.tables.CPUs, StartNS: p.start, EndNS: p.log.end, StopReason: p.log.stopReason,
	}
}

// warnings lists the gaps of the recording.
func (p *Probe) warnings() (out []bundle.Warning) {
	warn := func(format string, args ...any) {
		out = append(out, bundle.Warning{Code: WarnKernel, Text: fmt.Sprintf(format, args...)})
	}
	var refused, answers []string
	reason := ""
	for i, program := range p.programs {
		if program.IsAttached || tracepoints[i].answer == "" {
			continue
		}
		refused = append(refused, program.Name)
		if !slices.Contains(answers, tracepoints[i].answer) {
			answers = append(answers, tracepoints[i].answer)
		}
		reason = program.Reason
	}
	if refused != nil {
		warn("this host refused kernel events of %s (%s): not observed, only inferred: %s", strings.Join(refused, ", "), reason, strings.Join(answers, "; "))
	}
	if p.log.stopReason != "" {
		warn("kernel events end %v after their start: %s", time.Duration(p.log.end-p.start).Round(time.Millisecond), p.log.stopReason)
	}
	if p.log.lost > 0 {
		warn("%d of %d kernel events were lost", p.log.lost, p.log.lost+p.log.writer.Events)
	}
	if p.log.hasUnnamedStacks {
		warn("the kernel's stacks have no names: reading /proc/kallsyms needs CAP_SYSLOG or kernel.kptr_restrict=0")
	}
	return out
}

func oneLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s[:min(len(s), 200)]
}
