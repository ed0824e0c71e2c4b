package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
)

// A Sampler reads the counters and limits of one process's group repeatedly. It keeps their
// files open and does not allocate after NewSampler. Its methods must not be called
// concurrently.
//
// If the process moves to another group, the sampler still reads the old one: see Moved.
type Sampler struct {
	src source
	buf []byte

	initiallyUnread int // limit files that could not be read from the start

	membership      handle
	membershipBytes []byte

	version        Version
	hidden         bool
	cpu            []samplerCPU
	localStat      handle
	usage          handle // v1 cpuacct.usage
	memory         []samplerMemory
	memVersion     Version
	ownCharge      samplerCharge // the group that the process is charged to
	ancestorCharge samplerCharge // the ancestor that SampleMemoryAt read last

	cpuPressure, memPressure handle
	machinePressure          bool
}

// samplerCharge holds the files that count a group's memory.
type samplerCharge struct {
	depth                       int
	current, stat, swap, events handle
	failures                    handle // v1
}

type samplerCPU struct {
	Level
	controlled    bool // the cpu controller is enabled in this group
	stat          handle
	quota, period handle // v2: quota is cpu.max
}

type samplerMemory struct {
	Level
	max, high handle
}

// maxSampled limits the levels whose files stay open, so that a deep hierarchy does not use
// up a service's file descriptors. Kubernetes has five levels.
const maxSampled = 16

// NewSampler finds the process's group and opens its files. The error wraps
// ErrNotMeasurable if there is nothing to sample. Close must be called.
func NewSampler(opts Options) (*Sampler, error) {
	f, err := newFinder(opts)
	if err != nil {
		return nil, err
	}
	s := &Sampler{src: f.src, buf: make([]byte, 16<<10)} // the longest file, memory.stat, has about 2 KiB
	cpu := f.locate("cpu")
	s.version, s.hidden = cpu.Version, cpu.Hidden || len(cpu.levels) == 0
	if len(cpu.levels) > maxSampled {
		cpu.levels, s.hidden = cpu.levels[:maxSampled], true
	}
	names := cpuFiles[cpu.Version]
	for _, lv := range cpu.levels {
		c := samplerCPU{Level: lv, stat: s.openFile(lv.Dir, "cpu.stat"), period: s.openFile(lv.Dir, names.period)}
		var err error
		c.quota, err = s.src.open(path.Join(lv.Dir, names.quota))
		c.controlled = err == nil || !errors.Is(err, fs.ErrNotExist) || bytes.Contains(s.read(c.stat), []byte("nr_periods"))
		// If v2's cpu controller is not enabled here, tasks are scheduled as those of the nearest
		// ancestor in which it is.
		if c.controlled && s.localStat == nil {
			s.localStat = s.openFile(lv.Dir, "cpu.stat.local")
		}
		s.cpu = append(s.cpu, c)
	}
	if cpu.Version == V1 {
		// In v1 another controller counts usage. It counts the same processes only if its group
		// is the same.
		if acct := f.locateQuietly("cpuacct"); len(acct.levels) > 0 && acct.Group == cpu.Group && acct.levels[0].Depth == 0 {
			s.usage = s.openFile(acct.levels[0].Dir, "cpuacct.usage")
		}
	}
	mem := f.locate("memory")
	s.memVersion = mem.Version
	mem.levels = mem.levels[:min(len(mem.levels), maxSampled)]
	for i, lv := range mem.levels {
		names := memoryFiles[mem.Version]
		s.memory = append(s.memory, samplerMemory{Level: lv, max: s.openFile(lv.Dir, names.max), high: s.openFile(lv.Dir, names.high)})
		// If v2's memory controller is not enabled here, memory is charged to the nearest ancestor
		// in which it is.
		if s.ownCharge.current == nil && (mem.Version == V2 || i == 0) {
			s.ownCharge = s.openCharge(lv)
		}
	}
	s.openPressure(cpu, mem)
	s.membership, _ = s.src.open(f.proc + "/cgroup")
	if s.membership != nil {
		s.membershipBytes = append(s.membershipBytes, s.read(s.membership)...)
	}
	var st Stat
	var b Tightest
	var m MemoryStat
	limitsErr := s.SampleLimits(&b)
	s.initiallyUnread = b.Unread
	if s.Sample(&st) != nil && limitsErr != nil && s.SampleMemory(&m) != nil {
		s.Close()
		return nil, fmt.Errorf("sampling the cgroup: %w: no counter and no limit can be read (%v)", ErrNotMeasurable, f.notes)
	}
	return s, nil
}

// openCharge opens a group's memory counters. Files that cannot be opened are nil in the result.
func (s *Sampler) openCharge(lv Level) samplerCharge {
	names := memoryFiles[s.memVersion]
	c := samplerCharge{depth: lv.Depth, current: s.openFile(lv.Dir, names.current)}
	if c.current == nil && s.memVersion == V2 {
		return c
	}
	c.stat, c.swap = s.openFile(lv.Dir, "memory.stat"), s.openFile(lv.Dir, names.swap)
	c.events, c.failures = s.openFile(lv.Dir, names.events), s.openFile(lv.Dir, names.failures)
	return c
}

// openPressure opens the files of pressure of the process's own groups, cpu and mem, else the machine's: v1 groups have none.
func (s *Sampler) openPressure(cpu, mem Hierarchy) {
	for _, h := range []struct {
		hierarchy Hierarchy
		file      string
		to        *handle
	}{{cpu, "cpu.pressure", &s.cpuPressure}, {mem, "memory.pressure", &s.memPressure}} {
		if h.hierarchy.Version == V2 && len(h.hierarchy.levels) > 0 {
			*h.to = s.openFile(h.hierarchy.levels[0].Dir, h.file)
		}
	}
	if s.cpuPressure == nil && s.memPressure == nil {
		s.machinePressure = true
		s.cpuPressure, s.memPressure = s.openFile("/proc/pressure", "cpu"), s.openFile("/proc/pressure", "memory")
	}
}

// openFile opens a file; nil if that fails, or if name is "".
func (s *Sampler) openFile(dir, name string) handle {
	if name == "" {
		return nil
	}
	h, err := s.src.open(path.Join(dir, name))
	if err != nil {
		return nil
	}
	return h
}

// read returns the content of a file, valid until the next read of any file; nil if h is nil, the file cannot be read, or it is too large for the
// buffer.
func (s *Sampler) read(h handle) []byte {
	if h == nil {
		return nil
	}
	n, err := h.sample(s.buf)
	if err != nil || n == len(s.buf) {
		return nil
	}
	return s.buf[:n]
}

var errNothing = errors.New("no counter can be read")

// Moved reports whether the process has moved to another group since NewSampler, so that a
// new sampler is needed. It does not allocate.
func (s *Sampler) Moved() bool {
	b := s.read(s.membership)
	return b != nil && !bytes.Equal(b, s.membershipBytes)
}

// Close closes the files. Later samples fail.
func (s *Sampler) Close() error {
	err := errors.Join(s.ownCharge.close(), s.ancestorCharge.close(), closeAll(&s.localStat, &s.usage, &s.membership, &s.cpuPressure, &s.memPressure))
	for i := range s.cpu {
		err = errors.Join(err, closeAll(&s.cpu[i].stat, &s.cpu[i].quota, &s.cpu[i].period))
	}
	for i := range s.memory {
		err = errors.Join(err, closeAll(&s.memory[i].max, &s.memory[i].high))
	}
	return err
}

func (c *samplerCharge) close() error {
	return closeAll(&c.current, &c.stat, &c.swap, &c.events, &c.failures)
}

// closeAll closes the open handles and sets them to nil. It returns their errors, joined.
func closeAll(hs ...*handle) (err error) {
	for _, h := range hs {
		if *h != nil {
			err = errors.Join(err, (*h).close())
			*h = nil
		}
	}
	return err
}
