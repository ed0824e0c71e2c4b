package sweep

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/whylate/whylate/internal/experiment/cpugroup"
	"github.com/whylate/whylate/internal/output/termtext"
)

// watchUsage starts to measure the service's resource usage, from another goroutine. The returned function ends that and sets the usage, since the
// call of watchUsage, in a run.
func (u *runningService) watchUsage() func(*Run) {
	before := u.readCounters(false)
	stop, ended := make(chan struct{}), make(chan struct{})
	var samples, memory, peak, threads int64
	go func() {
		defer close(ended)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			current := u.readCounters(true)
			samples++
			memory += current.memory
			peak, threads = max(peak, current.memory), max(threads, current.threads)
		}
	}()
	return func(r *Run) {
		close(stop)
		<-ended
		after := u.readCounters(false)
		r.CPUNS, r.ContextSwitches, r.OOMKills = after.cpu-before.cpu, max(0, after.switches-before.switches), after.oomKills
		r.MemoryPeak, r.MemoryMean, r.Threads = max(peak, after.peak), memory/max(1, samples), max(threads, after.threads)
		if before.hasStat && after.hasStat {
			stat := after.stat.Minus(before.stat)
			r.Periods, r.ThrottledPeriods, r.ThrottledNS = &stat.Periods, &stat.Throttled, &stat.ThrottledNS
		}
		if after.gcs > 0 {
			r.GCs, r.GCCPUNS = new(after.gcs-before.gcs), new(after.gcCPU-before.gcCPU)
		}
	}
}

// counters are the kernel's counters of all instances of a service, since their start.
type counters struct {
	cpu, switches   int64
	gcs, gcCPU      int64
	stat            cpugroup.Stat
	hasStat         bool  // stat covers all instances
	memory, threads int64 // present values
	peak            int64
	oomKills        int64
}

// readCounters returns the sums over all instances. skipThreads leaves out counters that need a read for every thread, and the control groups'.
func (u *runningService) readCounters(skipThreads bool) counters {
	c := counters{hasStat: !skipThreads}
	for _, in := range u.instances {
		in.addCounters(&c, skipThreads)
	}
	return c
}

// addCounters adds the counters of the instance's processes and of its control group to c. skipThreads leaves out counters that
// need a read for every thread, and the control group's.
func (in *instance) addCounters(c *counters, skipThreads bool) {
	ticks := int64(0)
	for _, pid := range in.pids() {
		p, ok := cpugroup.ReadProcess(pid)
		if !ok {
			continue
		}
		ticks += p.Field(14) + p.Field(15) // user and system
		c.threads += p.Field(20)
		c.memory += p.Field(24) * int64(os.Getpagesize())
		if skipThreads {
			continue
		}
		dir := "/proc/" + strconv.Itoa(pid)
		c.peak += sumStatus(dir+"/status", "VmHWM") << 10
		tasks, _ := filepath.Glob(dir + "/task/*/status")
		for _, t := range tasks {
			c.switches += sumStatus(t, "_ctxt_switches")
		}
	}
	if skipThreads {
		return
	}
	cpu, stat, hasStat := ticks*10e6, cpugroup.Stat{}, false // USER_HZ is 100 on every architecture that Go supports
	if in.group != nil {
		if used, err := in.group.CPUTime(); err == nil {
			cpu = int64(used)
		}
		var err error
		stat, err = cpugroup.ReadStat(in.group.Dir)
		hasStat = err == nil
		c.oomKills += in.group.OOMKills()
	}
	c.cpu += cpu
	c.stat = c.stat.Plus(stat)
	c.hasStat = c.hasStat && hasStat
	in.output.mu.Lock()
	defer in.output.mu.Unlock()
	c.gcs += in.output.gcs
	c.gcCPU += in.output.gcCPU
}

// pids returns the processes of the instance: those of its control group, if it has one, else the command and its descendants.
func (in *instance) pids() []int {
	if in.group != nil {
		return in.group.PIDs()
	}
	return in.process.PIDs()
}

// sumStatus adds up the numbers of the lines of a status file (/proc/PID/status) whose names end in suffix; 0 if it cannot be read.
func sumStatus(file, suffix string) (sum int64) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if name, value, _ := strings.Cut(line, ":"); strings.HasSuffix(name, suffix) {
			number, _, _ := strings.Cut(strings.TrimSpace(value), " ")
			n, _ := strconv.ParseInt(number, 10, 64)
			sum += n
		}
	}
	return sum
}

// output has the last lines that the service printed, and sums from the runtime's gctrace lines.
type output struct {
	mu    sync.Mutex
	lines []string
	gcs   int64
	gcCPU int64 // ns
}

// addLine counts a line of GODEBUG=gctrace=1, and keeps any other of the last five lines.
func (o *output) addLine(line string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if cpu, ok := parseGC(line); ok {
		o.gcs++
		o.gcCPU += cpu
	} else if o.lines = append(o.lines, line); len(o.lines) > 5 {
		o.lines = o.lines[1:]
	}
}

// lastLines returns the last lines for an error message, "" without any.
func (o *output) lastLines() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := strings.TrimSpace(strings.Join(o.lines, " / "))
	if text == "" {
		return ""
	}
	return "; its last output: " + termtext.Head(text, 300)
}

// parseGC reads a line of GODEBUG=gctrace=1 and returns the collection's CPU time in ns, without that of idle Ps (package runtime, "Environment
// Variables"): gc # @#s #%: #+#+# ms clock, #+#/#/#+# ms cpu, ... It is false for any other line.
func parseGC(line string) (int64, bool) {
	if !strings.HasPrefix(line, "gc ") {
		return 0, false
	}
	_, rest, ok := strings.Cut(line, " ms clock, ")
	if !ok {
		return 0, false
	}
	cpu, _, ok := strings.Cut(rest, " ms cpu")
	if !ok {
		return 0, false
	}
	sum := 0.0
	for _, part := range strings.Split(cpu, "+") {
		for i, v := range strings.Split(part, "/") {
			ms, err := strconv.ParseFloat(v, 64)
			if err != nil {
				return 0, false
			}
			if i < 2 {
				sum += ms
			}
		}
	}
	return int64(sum * 1e6), true
}
