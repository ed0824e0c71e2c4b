package host

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/service/cgroup"
)

// A Sampler takes samples of one process in a dedicated goroutine until Stop.
type Sampler struct {
	pid      int
	interval time.Duration
	facts    *bundle.Host

	statFD, snmpFD, machineFD, pressureFD int // open files, -1 if not readable
	freezerFD                             int // cgroup.events or freezer.state, -1 if not readable
	group                                 *cgroup.Sampler
	groupIndex                            int
	levels                                []cgroup.LevelStat
	threads                               *threads
	nextThreadRead                        int64 // earliest time of the next read of threads, which may be expensive
	socketPoller                          *socketPoller
	pageSize                              int64
	buf                                   []byte

	lines            sampleLog
	traceRequestTime time.Time
	lastSample       Sample
	lateSamples      int
	processEnded     bool
	warnings         []bundle.Warning
	startLine        Line

	stopPipe    [2]int // Stop closes the writing end
	stopped     chan struct{}
	stopOnce    sync.Once
	cost        time.Duration
	sampleCount int
	recording   *Recording
}

// Start begins to sample a process, and returns after the first sample. It returns an error only if the process or /proc does not exist. Any other
// counter that cannot be read is a warning of the recording. The caller must call Stop.
func Start(opts Options) (*Sampler, error) {
	if opts.Interval <= 0 {
		opts.Interval = DefaultInterval
	}
	s := &Sampler{pid: opts.PID, interval: opts.Interval, pageSize: int64(os.Getpagesize()), buf: make([]byte, 16<<10), stopped: make(chan struct{})}
	dir := "/proc/" + strconv.Itoa(s.pid)
	var err error
	if s.statFD, err = openRead(dir + "/stat"); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil, fmt.Errorf("there is no process %d", s.pid)
		}
		return nil, fmt.Errorf("reading about process %d: %w", s.pid, err)
	}
	if _, ok := s.readStat(); !ok {
		unix.Close(s.statFD)
		return nil, fmt.Errorf("reading about process %d: its stat file has an unknown format, or it has ended", s.pid)
	}
	if err := unix.Pipe2(s.stopPipe[:], unix.O_CLOEXEC); err != nil {
		unix.Close(s.statFD)
		return nil, fmt.Errorf("preparing to sample: %w", err)
	}
	s.facts = facts(s.pid, s.warn)
	if s.group, err = cgroup.NewSampler(cgroup.Options{PID: s.pid}); err != nil {
		s.warn(WarnHost, "throttling was not sampled: "+err.Error())
	}
	if s.threads, err = openThreads(s.pid); err != nil {
		s.warn(WarnHost, "the run queue's delay was not sampled: "+err.Error())
	}
	s.snmpFD, _ = openRead(dir + "/net/snmp")
	s.machineFD, _ = openRead("/proc/stat")
	s.pressureFD, _ = openRead("/proc/pressure/cpu") // an old kernel has none
	namespace := ""
	if s.facts.OtherNetwork {
		namespace = dir + "/ns/net"
	}
	if s.socketPoller, err = openSockets(s.pid, namespace); err != nil {
		s.warn(WarnSockets, "the TCP sockets were not sampled: "+errorWithHint(err))
	}
	s.freezerFD = openFreezer(s.pid)
	s.startLine = Line{Kind: KindStart, Schema: Schema, PID: s.pid, IntervalNS: int64(s.interval), Facts: s.facts, HasStates: true}
	s.startLine.MonoNS, s.startLine.WallNS = readClocks()
	first := make(chan struct{})
	go s.run(first)
	<-first
	return s, nil
}

// openRead opens a file for repeated reading. With an error the descriptor is -1.
func openRead(name string) (fd int, err error) {
	return unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
}

// errorWithHint returns the error's text, with the advice to run as another user if a permission is missing.
func errorWithHint(err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return err.Error() + " (run as the service's user, or as root)"
	}
	return err.Error()
}

func (s *Sampler) warn(code, text string) {
	s.warnings = append(s.warnings, bundle.Warning{Code: code, Text: text})
}

// SetTraceRequest sets the time of the request for the trace, by the clock of this process. It must
// not be called concurrently with Stop.
func (s *Sampler) SetTraceRequest(t time.Time) { s.traceRequestTime = t }

// PID returns the number of the sampled process.
func (s *Sampler) PID() int { return s.pid }

// readClocks returns CLOCK_MONOTONIC and the time since 1970, in ns.
func readClocks() (mono, wall int64) { return MonotonicNS(), time.Now().UnixNano() }

// run takes samples until Stop. It closes first after the first sample. The thread runs nothing else,
// so its CPU time is the cost of sampling.
func (s *Sampler) run(first chan struct{}) {
	defer close(s.stopped)
	runtime.LockOSThread()
	var lastSecond int64 // time of the last line of KindSecond
	nextSample, _ := readClocks()
	for n := 0; ; n++ {
		mono, wall := readClocks()
		if n > 0 && mono-s.lastSample.MonoNS > 2*int64(s.interval) {
			s.lateSamples++
		}
		due := mono-lastSecond >= int64(time.Second)
		if n > 0 && due {
			s.reopenMovedGroup()
		}
		s.takeSample(mono, wall)
		if due {
			lastSecond = mono
			s.takeSecond(mono, wall)
		}
		if n == 0 {
			close(first)
		}
		if s.processEnded {
			for s.sleepUntil(math.MaxInt64) {
			}
			break
		}
		time, _ := readClocks()
		nextSample = max(nextSample+int64(s.interval), time)
		if !s.sleepUntil(nextSample) {
			break
		}
	}
	mono, wall := readClocks()
	if !s.processEnded {
		s.nextThreadRead = 0 // read again, at any cost: the last sample must be complete
		s.takeSample(mono, wall)
		s.takeSecond(mono, wall)
		s.pollSockets(mono, wall, true)
	}
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &u) == nil {
		s.cost = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	// The thread ends with the goroutine, so no later goroutine adds to its CPU time.
}

// sleepUntil waits until a time of CLOCK_MONOTONIC, in ns. It reports false when Stop was called. It waits in the kernel: with a timer of the
// runtime, a goroutine that is locked to a thread needs two threads to wake each time.
func (s *Sampler) sleepUntil(deadline int64) bool {
	for {
		mono, _ := readClocks()
		ts := unix.NsecToTimespec(max(deadline-mono, 0))
		n, err := unix.Ppoll([]unix.PollFd{{Fd: int32(s.stopPipe[0]), Events: unix.POLLIN}}, &ts, nil)
		if err != unix.EINTR {
			return n == 0 && err == nil
		}
	}
}

// readFile returns the present content of an open file of /proc; nil if the file cannot be read. The content is valid until the next call for any
// file.
func (s *Sampler) readFile(fd int) []byte {
	for {
		n, err := unix.Pread(fd, s.buf, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return nil
		}
		return s.buf[:n]
	}
}

// readStat reads the process's stat. The open file belongs to this process alone: once the process has
// ended, reads fail, even if another process gets its number.
func (s *Sampler) readStat() (procStat, bool) {
	st, ok := parseStat(s.readFile(s.statFD))
	return st, ok && !st.hasEnded()
}

// takeSample appends a line of KindSample with the given times (CLOCK_MONOTONIC and since 1970, both in ns), or records the end
// of the process.
func (s *Sampler) takeSample(mono, wall int64) {
	stat, ok := s.readStat()
	if !ok {
		s.recordProcessEnd(mono, wall)
		return
	}
	sample := Sample{
		MonoNS: mono, WallNS: wall, GroupIndex: s.groupIndex, UserNS: new(stat.userTicks * tickNS), SystemNS: new(stat.systemTicks * tickNS), Threads: int(stat.threads),
		RSSBytes: new(stat.rssPages * s.pageSize), MinorFaults: new(stat.minorFaults), MajorFaults: new(stat.majorFaults), HaltReason: haltReasonOf(stat.state),
	}
	if sample.HaltReason == "" && isFrozen(s.readFile(s.freezerFD)) {
		sample.HaltReason = HaltedByFreezer
	}
	s.sampleGroup(&sample)
	s.sampleThreads(&sample)
	if n, ok := parseRetransmitted(s.readFile(s.snmpFD)); ok {
		sample.Retransmitted, sample.UnattributedRetransmits = &n, s.lastSample.UnattributedRetransmits
		if before := s.lastSample.Retransmitted; before != nil && n != *before && !s.pollSockets(mono, wall, false) {
			sample.UnattributedRetransmits += n - *before
		}
	}
	s.lastSample = sample
	s.sampleCount++
	s.lines.samples.add(sample, maxSamples)
}

// sampleGroup sets, in the sample, those counters of the process's cgroup that the kernel has. On an error it sets none.
func (s *Sampler) sampleGroup(sample *Sample) {
	var stat cgroup.Stat
	if s.group == nil || s.group.Sample(&stat) != nil {
		return
	}
	if stat.Has&cgroup.HasUsage != 0 {
		sample.UsageNS = new(int64(stat.Usage))
	}
	if stat.Has&cgroup.HasBandwidth != 0 {
		sample.Periods, sample.ThrottledPeriods, sample.ThrottledNS = new(stat.Periods), new(stat.ThrottledPeriods), new(int64(stat.Throttled))
	}
	if stat.Has&cgroup.HasLocal != 0 {
		sample.LocalThrottledNS = new(int64(stat.Local))
	}
	sample.AncestorThrottledPeriods, sample.AncestorThrottledNS = new(stat.AncestorThrottledPeriods), new(int64(stat.AncestorThrottled))
	sample.AncestorsComplete = stat.Has&cgroup.HasAncestors != 0
}

// threadCostFactor is the least ratio of the time between two reads of the threads to the duration of
// a read: reading them uses at most 1 % of a CPU.
const threadCostFactor = 100

// sampleThreads sets, in the sample, the sums over all threads, unless so little time has passed since the last read that its cost would exceed the
// share that threadCostFactor allows.
func (s *Sampler) sampleThreads(sample *Sample) {
	if s.threads == nil || sample.MonoNS < s.nextThreadRead {
		return
	}
	run, delay, err := s.threads.read(sample.Threads)
	if err != nil {
		if s.sampleCount == 0 {
			s.warn(WarnHost, "the run queue's delay was not sampled: "+err.Error())
			s.threads.close()
			s.threads = nil
		}
		return
	}
	sample.RunNS, sample.RunDelayNS, sample.ThreadWaits = &run, &delay, s.threads.waits
	end, _ := readClocks()
	s.nextThreadRead = sample.MonoNS + threadCostFactor*(end-sample.MonoNS) - int64(s.interval)/2
}

// reopenMovedGroup checks whether the process is in another cgroup now, and then samples that one.
func (s *Sampler) reopenMovedGroup() {
	if s.group == nil || !s.group.Moved() {
		return
	}
	g, err := cgroup.NewSampler(cgroup.Options{PID: s.pid})
	if err != nil {
		return
	}
	s.group.Close()
	s.group = g
	if s.groupIndex++; s.groupIndex > 1 {
		return // one warning is enough
	}
	s.warn(WarnHost, "the process was moved to another cgroup while it was sampled: throttling at that moment is unknown")
}

// takeSecond appends a line of KindSecond with the given times (CLOCK_MONOTONIC and since 1970, both in ns), and polls the
// sockets.
func (s *Sampler) takeSecond(mono, wall int64) {
	if s.processEnded {
		return
	}
	sample := Sample{MonoNS: mono, WallNS: wall, GroupIndex: s.groupIndex}
	if s.group != nil {
		s.levels = s.group.SampleLevels(s.levels[:0])
		for _, v := range s.levels {
			sample.Levels = append(sample.Levels, Level{v.Depth, v.Group, v.Periods, v.ThrottledPeriods, int64(v.Throttled)})
		}
		var m cgroup.MemoryStat
		if s.group.SampleMemory(&m) == nil {
			sample.MemoryBytes, sample.InactiveFileBytes, sample.OOMKills = &m.Current, &m.InactiveFile, &m.OOMKills
		}
	}
	if machine, steal, ok := parseMachine(s.readFile(s.machineFD)); ok {
		sample.MachineCPUNS, sample.StealNS = &machine, &steal
	}
	if n, ok := parsePressure(s.readFile(s.pressureFD)); ok {
		sample.PressureNS = &n
	}
	s.lines.seconds.add(sample, maxSeconds)
	s.pollSockets(mono, wall, false)
}

// pollSockets polls the process's sockets and appends a line with the given times (CLOCK_MONOTONIC and since 1970, both in ns)
// if they changed. The final poll lists all of them, also in a full log. It reports false if it did not poll, because it is too
// early, the log is full, or polling failed.
func (s *Sampler) pollSockets(mono, wall int64, final bool) (polled bool) {
	if s.socketPoller == nil || s.lines.listedSockets >= maxSockets && !final {
		return false
	}
	l, polled, err := s.socketPoller.poll(mono, final)
	if err != nil {
		s.warn(WarnSockets, "the TCP sockets were not sampled to the end: "+errorWithHint(err))
		s.socketPoller.close()
		s.socketPoller = nil
		return false
	}
	if l != nil {
		l.MonoNS, l.WallNS = mono, wall
		s.lines.listedSockets += len(l.Sockets)
		s.lines.otherLines = append(s.lines.otherLines, *l)
	}
	return polled
}

// recordProcessEnd appends a mark with the given times (CLOCK_MONOTONIC and since 1970, both in ns) and a warning: the process
// has ended.
func (s *Sampler) recordProcessEnd(mono, wall int64) {
	s.processEnded = true
	text := fmt.Sprintf("process %d ended after %v of sampling", s.pid, time.Duration(mono-s.startLine.MonoNS).Round(time.Millisecond))
	s.warn(WarnEnded, text)
	s.lines.otherLines = append(s.lines.otherLines, Line{Kind: KindMark, Sample: Sample{MonoNS: mono, WallNS: wall}, Text: text})
}

// Stop ends sampling after a last sample and returns the recording. Further calls return the same recording; concurrent ones are not allowed.
func (s *Sampler) Stop() *Recording {
	s.stopOnce.Do(func() {
		unix.Close(s.stopPipe[1])
		<-s.stopped
		unix.Close(s.stopPipe[0])
		if s.group != nil {
			s.group.Close()
		}
		if s.threads != nil {
			s.threads.close()
		}
		if s.socketPoller != nil {
			s.socketPoller.close()
		}
		for _, fd := range []int{s.statFD, s.snmpFD, s.machineFD, s.pressureFD, s.freezerFD} {
			if fd >= 0 {
				unix.Close(fd)
			}
		}
	})
	if s.recording != nil {
		return s.recording
	}
	r := &Recording{Facts: s.facts, Warnings: s.warnings, Samples: s.sampleCount, Cost: s.cost}
	if s.sampleCount > 0 {
		end := Line{Kind: KindEnd, CostNS: int64(s.cost), LateSamples: s.lateSamples, Warnings: s.warnings}
		end.MonoNS, end.WallNS = s.lastSample.MonoNS, s.lastSample.WallNS
		if !s.traceRequestTime.IsZero() {
			mono, wall := readClocks()
			ago := int64(time.Since(s.traceRequestTime))
			s.lines.otherLines = append(s.lines.otherLines, Line{Kind: KindTrace, Sample: Sample{MonoNS: mono - ago, WallNS: wall - ago}})
		}
		r.Data = s.lines.encode(s.startLine, end)
	}
	s.recording = r
	return r
}
