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

// A Sampler takes samples of one process until it is stopped, from a goroutine
// of its own.
type Sampler struct {
	pid      int
	interval time.Duration
	facts    *bundle.Host

	stat, snmp, machine, pressure int // open files, -1 if not readable
	freezer                       int // the same, of the process's cgroup
	group                         *cgroup.Sampler
	groups                        int
	levels                        []cgroup.LevelStat
	threads                       *threads
	threadsNext                   int64 // not before this time, where reading them costs much
	socks                         *sockets
	page                          int64
	buf                           []byte

	log      log
	asked    time.Time
	last     Sample
	late     int
	ended    bool
	warnings []bundle.Warning
	start    Line

	wake     [2]int // a pipe: closed at its far end to stop
	stopped  chan struct{}
	stopOnce sync.Once
	cost     time.Duration
	samples  int
	result   *Recording
}

// Start begins to sample a process. It fails only if there is nothing to
// sample: no such process, or no /proc. What else cannot be read is a warning
// of the recording. Stop must be called.
func Start(opts Options) (*Sampler, error) {
	if opts.Interval <= 0 {
		opts.Interval = DefaultInterval
	}
	s := &Sampler{pid: opts.PID, interval: opts.Interval, page: int64(os.Getpagesize()), buf: make([]byte, 16<<10), stopped: make(chan struct{})}
	dir := "/proc/" + strconv.Itoa(s.pid)
	var err error
	if s.stat, err = openRead(dir + "/stat"); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil, fmt.Errorf("there is no process %d", s.pid)
		}
		return nil, fmt.Errorf("reading about process %d: %w", s.pid, err)
	}
	if _, ok := s.readStat(); !ok {
		unix.Close(s.stat)
		return nil, fmt.Errorf("reading about process %d: its stat file has an unknown format, or it has ended", s.pid)
	}
	if err := unix.Pipe2(s.wake[:], unix.O_CLOEXEC); err != nil {
		unix.Close(s.stat)
		return nil, fmt.Errorf("preparing to sample: %w", err)
	}
	s.facts = facts(s.pid, s.warn)
	if s.group, err = cgroup.NewSampler(cgroup.Options{PID: s.pid}); err != nil {
		s.warn(WarnHost, "throttling was not sampled: "+err.Error())
	}
	if s.threads, err = openThreads(s.pid); err != nil {
		s.warn(WarnHost, "the run queue's delay was not sampled: "+err.Error())
	}
	s.snmp, _ = openRead(dir + "/net/snmp")
	s.machine, _ = openRead("/proc/stat")
	s.pressure, _ = openRead("/proc/pressure/cpu") // an old kernel has none
	namespace := ""
	if s.facts.OtherNetwork {
		namespace = dir + "/ns/net"
	}
	if s.socks, err = openSockets(s.pid, namespace); err != nil {
		s.warn(WarnSockets, "the TCP sockets were not sampled: "+why(err))
	}
	s.freezer = openFreezer(s.pid)
	s.start = Line{Kind: KindStart, Schema: Schema, PID: s.pid, IntervalNS: int64(s.interval), Facts: s.facts, States: true}
	s.start.MonoNS, s.start.WallNS = clocks()
	first := make(chan struct{})
	go s.run(first)
	<-first
	return s, nil
}

// openRead opens a file to be read repeatedly; the descriptor is -1 with an error.
func openRead(name string) (fd int, err error) {
	return unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
}

// why names the permission that is missing where that is the reason.
func why(err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return err.Error() + " (run as the service's user, or as root)"
	}
	return err.Error()
}

func (s *Sampler) warn(code, text string) {
	s.warnings = append(s.warnings, bundle.Warning{Code: code, Text: text})
}

// TraceAsked says when the trace was asked for, by the clock of this process. It
// must not be called concurrently with Stop.
func (s *Sampler) TraceAsked(t time.Time) { s.asked = t }

// PID is the process that is sampled.
func (s *Sampler) PID() int { return s.pid }

func clocks() (mono, wall int64) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err == nil {
		mono = ts.Nano()
	}
	return mono, time.Now().UnixNano()
}

// run samples until stop. The thread is its own, so that its CPU time is the
// cost of sampling.
func (s *Sampler) run(first chan struct{}) {
	defer close(s.stopped)
	runtime.LockOSThread()
	var seconds int64 // when what is read once a second was read last
	next, _ := clocks()
	for n := 0; ; n++ {
		mono, wall := clocks()
		if n > 0 && mono-s.last.MonoNS > 2*int64(s.interval) {
			s.late++
		}
		due := mono-seconds >= int64(time.Second)
		if n > 0 && due {
			s.follow()
		}
		s.sample(mono, wall)
		if due {
			seconds = mono
			s.everySecond(mono, wall)
		}
		if n == 0 {
			close(first)
		}
		if s.ended {
			for s.sleep(math.MaxInt64) {
			}
			break
		}
		now, _ := clocks()
		next = max(next+int64(s.interval), now)
		if !s.sleep(next) {
			break
		}
	}
	mono, wall := clocks()
	if !s.ended {
		s.threadsNext = 0 // again, whatever the last time cost: what there is lasts until the end
		s.sample(mono, wall)
		s.everySecond(mono, wall)
		s.sockets(mono, wall, true)
	}
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &u) == nil {
		s.cost = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	// The thread ends with the goroutine: what it used is not counted twice.
}

// sleep waits until a time of the monotonic clock; it reports false if sampling
// is to end. It waits in the kernel: through the runtime's timers, a goroutine
// with a thread of its own would need two threads to be woken each time.
func (s *Sampler) sleep(until int64) bool {
	for {
		now, _ := clocks()
		ts := unix.NsecToTimespec(max(until-now, 0))
		n, err := unix.Ppoll([]unix.PollFd{{Fd: int32(s.wake[0]), Events: unix.POLLIN}}, &ts, nil)
		if err != unix.EINTR {
			return n == 0 && err == nil
		}
	}
}

// read returns what an open file has now; nil if it is not readable.
func (s *Sampler) read(fd int) []byte {
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

// readStat reads the process's stat. The open file stays with the process: once
// that has ended, nothing more is read, whoever gets its number.
func (s *Sampler) readStat() (procStat, bool) {
	st, ok := parseStat(s.read(s.stat))
	return st, ok && st.state != 'Z' && st.state != 'X'
}

func (s *Sampler) sample(mono, wall int64) {
	st, ok := s.readStat()
	if !ok {
		s.end(mono, wall)
		return
	}
	x := Sample{
		MonoNS: mono, WallNS: wall, Group: s.groups, UserNS: new(st.user * tickNS), SystemNS: new(st.system * tickNS), Threads: int(st.threads),
		RSSBytes: new(st.rss * s.page), MinorFaults: new(st.minor), MajorFaults: new(st.major), Held: heldBy(st.state),
	}
	if x.Held == "" && isFrozen(s.read(s.freezer)) {
		x.Held = HeldFrozen
	}
	s.sampleGroup(&x)
	s.sampleThreads(&x)
	if n, ok := parseRetransmitted(s.read(s.snmp)); ok {
		x.Retransmitted, x.Unseen = &n, s.last.Unseen
		if before := s.last.Retransmitted; before != nil && n != *before && !s.sockets(mono, wall, false) {
			x.Unseen += n - *before
		}
	}
	s.last = x
	s.samples++
	s.log.samples.add(x, maxSamples)
}

func (s *Sampler) sampleGroup(x *Sample) {
	var c cgroup.Stat
	if s.group == nil || s.group.Sample(&c) != nil {
		return
	}
	if c.Has&cgroup.HasUsage != 0 {
		x.UsageNS = new(int64(c.Usage))
	}
	if c.Has&cgroup.HasBandwidth != 0 {
		x.Periods, x.ThrottledPeriods, x.ThrottledNS = new(c.Periods), new(c.ThrottledPeriods), new(int64(c.Throttled))
	}
	if c.Has&cgroup.HasLocal != 0 {
		x.LocalNS = new(int64(c.Local))
	}
	x.AncestorPeriods, x.AncestorNS = new(c.AncestorThrottledPeriods), new(int64(c.AncestorThrottled))
	x.AncestorsComplete = c.Has&cgroup.HasAncestors != 0
}

// maxThreadShare is the share of a CPU that reading the threads may take.
const maxThreadShare = 100

func (s *Sampler) sampleThreads(x *Sample) {
	if s.threads == nil || x.MonoNS < s.threadsNext {
		return
	}
	run, delay, err := s.threads.read(x.Threads)
	if err != nil {
		if s.samples == 0 {
			s.warn(WarnHost, "the run queue's delay was not sampled: "+err.Error())
			s.threads.close()
			s.threads = nil
		}
		return
	}
	x.RunNS, x.RunDelayNS, x.Waited = &run, &delay, s.threads.waited
	now, _ := clocks()
	s.threadsNext = x.MonoNS + maxThreadShare*(now-x.MonoNS) - int64(s.interval)/2
}

// follow notices that the process was moved to another group.
func (s *Sampler) follow() {
	if s.group == nil || !s.group.Moved() {
		return
	}
	g, err := cgroup.NewSampler(cgroup.Options{PID: s.pid})
	if err != nil {
		return
	}
	s.group.Close()
	s.group = g
	if s.groups++; s.groups > 1 {
		return // has been said
	}
	s.warn(WarnHost, "the process was moved to another cgroup while it was sampled: throttling at that moment is unknown")
}

func (s *Sampler) everySecond(mono, wall int64) {
	if s.ended {
		return
	}
	x := Sample{MonoNS: mono, WallNS: wall, Group: s.groups}
	if s.group != nil {
		s.levels = s.group.SampleLevels(s.levels[:0])
		for _, v := range s.levels {
			x.Levels = append(x.Levels, Level{v.Depth, v.Group, v.Periods, v.ThrottledPeriods, int64(v.Throttled)})
		}
		var m cgroup.MemoryStat
		if s.group.SampleMemory(&m) == nil {
			x.MemoryBytes, x.InactiveFileBytes, x.OOMKills = &m.Current, &m.InactiveFile, &m.OOMKills
		}
	}
	if machine, steal, ok := parseMachine(s.read(s.machine)); ok {
		x.MachineNS, x.StealNS = &machine, &steal
	}
	if n, ok := parsePressure(s.read(s.pressure)); ok {
		x.PressureNS = &n
	}
	s.log.seconds.add(x, maxSeconds)
	s.sockets(mono, wall, false)
}

// sockets looks at the process's sockets, unless that costs too much now.
func (s *Sampler) sockets(mono, wall int64, final bool) (looked bool) {
	if s.socks == nil || s.log.sockets >= maxSockets && !final {
		return false
	}
	l, looked, err := s.socks.sample(mono, final)
	if err != nil {
		s.warn(WarnSockets, "the TCP sockets were not sampled to the end: "+why(err))
		s.socks.close()
		s.socks = nil
		return false
	}
	if l != nil {
		l.MonoNS, l.WallNS = mono, wall
		s.log.sockets += len(l.Sockets)
		s.log.others = append(s.log.others, *l)
	}
	return looked
}

func (s *Sampler) end(mono, wall int64) {
	s.ended = true
	text := fmt.Sprintf("process %d ended after %v of sampling", s.pid, time.Duration(mono-s.start.MonoNS).Round(time.Millisecond))
	s.warn(WarnEnded, text)
	s.log.others = append(s.log.others, Line{Kind: KindMark, Sample: Sample{MonoNS: mono, WallNS: wall}, Text: text})
}

// Stop takes a last sample and returns the recording. It may be called again,
// for the same.
func (s *Sampler) Stop() *Recording {
	s.stopOnce.Do(func() {
		unix.Close(s.wake[1])
		<-s.stopped
		unix.Close(s.wake[0])
		if s.group != nil {
			s.group.Close()
		}
		if s.threads != nil {
			s.threads.close()
		}
		if s.socks != nil {
			s.socks.close()
		}
		for _, fd := range []int{s.stat, s.snmp, s.machine, s.pressure, s.freezer} {
			if fd >= 0 {
				unix.Close(fd)
			}
		}
	})
	if s.result != nil {
		return s.result
	}
	r := &Recording{Facts: s.facts, Warnings: s.warnings, Samples: s.samples, Cost: s.cost}
	if s.samples > 0 {
		end := Line{Kind: KindEnd, CostNS: int64(s.cost), Late: s.late, Warnings: s.warnings}
		end.MonoNS, end.WallNS = s.last.MonoNS, s.last.WallNS
		if !s.asked.IsZero() {
			mono, wall := clocks()
			ago := int64(time.Since(s.asked))
			s.log.others = append(s.log.others, Line{Kind: KindTrace, Sample: Sample{MonoNS: mono - ago, WallNS: wall - ago}})
		}
		r.Data = s.log.encode(s.start, end)
	}
	s.result = r
	return r
}
