package kernelprobe

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/capture/kernelevents"
	"github.com/whylate/whylate/internal/experiment/cpugroup"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testchild"
	"github.com/whylate/whylate/internal/testing/testfull"
)

func TestMain(m *testing.M) { testchild.Main(m, child) }

func child(kind, arg string) error {
	switch kind {
	case "busy": // goroutines that never block
		n, _ := strconv.Atoi(arg)
		for range n {
			go func() {
				for x := uint64(1); x != 0; x = x*6364136223846793005 + 1 {
				}
			}()
		}
		fmt.Println("ready")
	case "echo": // what arrives is sent back
		network := "tcp"
		if strings.HasPrefix(arg, "/") {
			network = "unix"
		}
		l, err := net.Listen(network, cmp.Or(arg, "127.0.0.1:0"))
		if err != nil {
			return err
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c}) // not by splice, which no tracepoint reports
			}
		}()
		fmt.Println(l.Addr())
	case "ask": // asks an echo service every 3 ms
		network := "tcp"
		if strings.HasPrefix(arg, "/") {
			network = "unix"
		}
		c, err := net.Dial(network, arg)
		if err != nil {
			return err
		}
		fmt.Println("ready")
		go func() {
			for b := make([]byte, 100); ; time.Sleep(3 * time.Millisecond) {
				if _, err := c.Write(b); err != nil {
					return
				}
				_, _ = io.ReadFull(c, b)
			}
		}()
	case "fault": // touches cold pages of a file, one each 2 ms
		f, err := os.Open(arg)
		if err != nil {
			return err
		}
		const size = 64 << 20
		data, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		_ = unix.Madvise(data, unix.MADV_RANDOM)
		fmt.Println("ready")
		go func() {
			sum := byte(0)
			for i := uint64(0); ; i += 0x9E3779B97F4A7C15 {
				sum += data[i%size]
				time.Sleep(2*time.Millisecond + time.Duration(sum&1))
			}
		}()
	case "start": // without any rights
		pid, _ := strconv.Atoi(arg)
		_, err := Start(pid)
		fmt.Println(err)
	}
	return testchild.Wait()
}

// needKernel skips a test where kernel events cannot be recorded.
func needKernel(t *testing.T) {
	t.Helper()
	testfull.Need(t, "the kernel's events")
	if os.Getuid() != 0 {
		t.Skip("kernel events need root")
	}
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		t.Skip(err)
	}
}

func startChild(t *testing.T, job string, change func(*exec.Cmd)) (line string, pid int) {
	t.Helper()
	cmd := testchild.Command(job)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if change != nil {
		change(cmd)
	}
	line, stop, err := testchild.Start(cmd)
	must.Do(t, err)
	t.Cleanup(stop)
	return line, cmd.Process.Pid
}

// recordWhile records events about a process during f.
func recordWhile(t *testing.T, pid int, f func()) []byte {
	t.Helper()
	p := must.Have(Start(pid))(t)
	f()
	data, facts, warnings := p.Stop()
	check.True(t, facts.Lost == 0 && facts.Late == 0 && len(warnings) == 0,
		"%d events lost, %d late, warnings %v", facts.Lost, facts.Late, warnings)
	return data
}

// schedstat returns the run time and the run delay of a process's threads, in ns.
func schedstat(t *testing.T, pid int) map[int32][3]int64 {
	t.Helper()
	out := map[int32][3]int64{}
	for _, dir := range must.Have(filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid)))(t) {
		tid, _ := strconv.Atoi(filepath.Base(dir))
		var v [3]int64
		if b, err := os.ReadFile(dir + "/schedstat"); err == nil {
			fmt.Sscan(string(b), &v[0], &v[1], &v[2])
			out[int32(tid)] = v
		}
	}
	return out
}

// TestRunAndWait: with other processes on all CPUs, the events' run time and wait of each thread are the kernel's, and the others are named.
func TestRunAndWait(t *testing.T) {
	needKernel(t)
	_, pid := startChild(t, "busy 2", nil)
	for range 3 {
		startChild(t, "busy 1", nil)
	}
	var from, to int64
	var before, after map[int32][3]int64
	data := recordWhile(t, pid, func() {
		time.Sleep(300 * time.Millisecond)
		before, from = schedstat(t, pid), host.MonotonicNS()
		time.Sleep(2 * time.Second)
		after, to = schedstat(t, pid), host.MonotonicNS()
	})
	times, tables := timesOf(t, data, from, to)
	if name := processName(pid); tables.PID != int32(pid) || !slices.ContainsFunc(tables.Threads, func(x kernelevents.Thread) bool { return x.Own && x.Process == name && x.NSTID == x.TID }) {
		t.Errorf("process %d, threads %+v", tables.PID, tables.Threads)
	}
	var run, queued, others int64
	for tid, b := range after {
		wantRun, wantQueued, switches := b[0]-before[tid][0], b[1]-before[tid][1], b[2]-before[tid][2]
		got := times[tid]
		if got == nil {
			got = &threadTimes{}
		}
		// The kernel updates its account at ticks, and counts a few us before each switch as run time.
		tolerance := wantRun/20 + 10e6 + switches*15e3
		if diff := got.run - wantRun; max(diff, -diff) > tolerance {
			t.Errorf("thread %d ran %v by its events, %v by the kernel's account", tid, time.Duration(got.run), time.Duration(wantRun))
		}
		// A wait is in the account when it has ended.
		if diff := got.endedWaits - wantQueued; max(diff, -diff) > tolerance+wantQueued/20 {
			t.Errorf("thread %d waited %v by its events, %v by the kernel's account", tid, time.Duration(got.endedWaits), time.Duration(wantQueued))
		}
		run, queued = run+got.run, queued+got.queued
		for name, ns := range got.rivals {
			if name != "idle" && name != "" {
				others += ns
			}
		}
	}
	check.True(t, run != 0 && queued != 0 && float64(others) >= 0.9*float64(queued),
		"ran %v, waited %v, while named processes ran %v of it", time.Duration(run), time.Duration(queued), time.Duration(others))
}

func processName(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSpace(string(b))
}

// TestThrottled: the time without a CPU because of a quota is that of the group's cpu.stat, also if an ancestor has the quota.
func TestThrottled(t *testing.T) {
	needKernel(t)
	for _, name := range []string{"own", "parent"} {
		t.Run(name, func(t *testing.T) {
			group := testchild.NewGroup(t, nil, 0.4)
			inner := group
			if name == "parent" {
				inner = testchild.NewGroup(t, group, 0)
			}
			_, pid := startChild(t, "busy 2", inner.Attach)
			var from, to, lostBefore, lostAfter int64
			data := recordWhile(t, pid, func() {
				time.Sleep(500 * time.Millisecond)
				from, lostBefore = host.MonotonicNS(), must.Have(cpugroup.ReadStat(group.Dir))(t).ThrottledNS
				time.Sleep(2 * time.Second)
				to, lostAfter = host.MonotonicNS(), must.Have(cpugroup.ReadStat(group.Dir))(t).ThrottledNS
				time.Sleep(300 * time.Millisecond) // the last freeze ends, too
			})
			got, want := throttledUnion(t, data, from, to), lostAfter-lostBefore
			// The account of the kernel grows at the end of a freeze.
			if diff := got - want; want == 0 || float64(max(diff, -diff)) > 0.05*float64(want)+2*100e6 {
				t.Errorf("throttled %v by events, %v by cpu.stat", time.Duration(got), time.Duration(want))
			}
			refills := 0
			ids := map[int64]bool{}
			forEachEvent(t, data, func(e *kernelevents.Event, tables *kernelevents.Tables) {
				if e.Kind == kernelevents.Refill {
					refills++
					for _, g := range tables.Cgroups {
						ids[e.A] = ids[e.A] || g.ID == uint64(e.A) && g.QuotaNS == 40e6 && g.PeriodNS == 100e6
					}
				}
			})
			check.True(t, refills >= 15 && len(ids) == 1 && slices.Contains([]bool{true}, anyTrue(ids)),
				"%d refills of groups %v", refills, ids)
		})
	}
}

func anyTrue(m map[int64]bool) bool {
	for _, v := range m {
		if v {
			return true
		}
	}
	return false
}

func forEachEvent(t *testing.T, data []byte, f func(*kernelevents.Event, *kernelevents.Tables)) {
	t.Helper()
	r := must.Have(kernelevents.NewReader(data))(t)
	for events, err := []kernelevents.Event(nil), error(nil); ; {
		if events, err = r.Next(events); err != nil {
			if err != io.EOF {
				t.Error(err)
			}
			return
		}
		for i := range events {
			f(&events[i], &r.Tables)
		}
	}
}

// throttledUnion returns for how long each CPU held the service's threads back, summed over CPUs.
func throttledUnion(t *testing.T, data []byte, from, to int64) (sum int64) {
	type wait struct{ start, cpu int64 }
	waits := map[int32]wait{}
	type interval struct{ start, end int64 }
	perCPU := map[int64][]interval{}
	forEachEvent(t, data, func(e *kernelevents.Event, _ *kernelevents.Tables) {
		switch e.Kind {
		case kernelevents.Switch:
			waits[e.Thread] = wait{e.Time, int64(e.CPU)}
		case kernelevents.Wakeup:
			waits[e.Thread] = wait{e.Time, e.B}
		case kernelevents.Throttled:
			w := waits[e.Thread]
			perCPU[w.cpu] = append(perCPU[w.cpu], interval{max(w.start, from), min(w.start+e.A, to)})
		}
	})
	for _, list := range perCPU {
		slices.SortFunc(list, func(a, b interval) int { return int(a.start - b.start) })
		end := int64(0)
		for _, x := range list {
			if x.end > max(end, x.start) {
				sum += x.end - max(end, x.start)
				end = x.end
			}
		}
	}
	return sum
}

// TestArrival: bytes arrive when they are sent, on a new connection as well, and the positions join them to the read.
func TestArrival(t *testing.T) {
	needKernel(t)
	addr, pid := startChild(t, "echo", nil)
	type message struct{ before, after int64 }
	var messages []message
	var local netip.AddrPort
	data := recordWhile(t, pid, func() {
		c := must.Have(net.Dial("tcp", addr))(t)
		defer c.Close()
		local = netip.MustParseAddrPort(c.LocalAddr().String())
		r := bufio.NewReader(c)
		for range 20 {
			before := host.MonotonicNS()
			must.Have(c.Write(make([]byte, 100)))(t)
			messages = append(messages, message{before, host.MonotonicNS()})
			must.Have(io.ReadFull(r, make([]byte, 100)))(t)
			time.Sleep(3 * time.Millisecond)
		}
	})
	var arrivals, reads, sends []kernelevents.Event
	forEachEvent(t, data, func(e *kernelevents.Event, tables *kernelevents.Tables) {
		if e.A < 1 || e.A > int64(len(tables.Sockets)) || e.Kind != kernelevents.Arrival && e.Kind != kernelevents.Read && e.Kind != kernelevents.Send {
			return
		}
		if s := tables.Sockets[e.A-1]; s.Local != addr || s.Remote != local.String() || s.Protocol != "tcp" {
			return
		}
		switch e.Kind {
		case kernelevents.Arrival:
			arrivals = append(arrivals, *e)
		case kernelevents.Read:
			reads = append(reads, *e)
		default:
			sends = append(sends, *e)
		}
	})
	must.True(t, len(arrivals) >= len(messages) && len(reads) >= len(messages) && len(sends) == len(messages),
		"%d messages: %d arrivals, %d reads, %d sends", len(messages), len(arrivals), len(reads), len(sends))
	late := 0
	for i, m := range messages {
		a, r := arrivals[i], reads[i]
		if a.Time < m.before || a.Time > m.after+100e3 {
			late++ // the thread that sent it may have lost its CPU inside of the call
		}
		check.True(t, r.B == 100 && r.D == a.C && a.B == 100 && r.Time >= a.Time && sends[i].B == 100 && sends[i].Time >= r.Time,
			"message %d: arrival %+v, read %+v, send %+v", i, a, r, sends[i])
	}
	check.True(t, late <= 2, "%d of %d arrivals are not at the sender's time", late, len(messages))
}

// TestPeer: of a process that serves the service's connections, the reads, writes and switches are recorded, and its sockets name the
// service's ends; a client of the service is no peer.
func TestPeer(t *testing.T) {
	needKernel(t)
	for _, listen := range []string{"", "[::1]:0", filepath.Join(t.TempDir(), "socket")} {
		addr, peer := startChild(t, "echo "+listen, nil)
		_, pid := startChild(t, "ask "+addr, nil)
		data := recordWhile(t, pid, func() { time.Sleep(300 * time.Millisecond) })
		var reads, sends, arrivals, switches int
		forEachEvent(t, data, func(e *kernelevents.Event, tables *kernelevents.Tables) {
			isPeer := slices.ContainsFunc(tables.Threads, func(x kernelevents.Thread) bool { return x.TID == e.Thread && x.PID == int32(peer) && x.IsPeer })
			hasPeer := e.A >= 1 && e.A <= int64(len(tables.Sockets)) && tables.Sockets[e.A-1].Peer != 0
			switch {
			case e.Kind == kernelevents.Read && isPeer && hasPeer:
				reads++
			case e.Kind == kernelevents.Send && isPeer && hasPeer:
				sends++
			case e.Kind == kernelevents.Arrival && hasPeer:
				arrivals++
			case e.Kind == kernelevents.Switch && isPeer:
				switches++
			}
		})
		tables := must.Have(kernelevents.NewReader(data))(t).Tables
		for _, s := range tables.Sockets {
			if s.Peer != 0 && (s.Peer > uint64(len(tables.Sockets)) || tables.Sockets[s.Peer-1].Local != s.Remote || tables.Sockets[s.Peer-1].Peer != 0) {
				t.Errorf("%q: socket %+v of %+v", addr, s, tables.Sockets)
			}
		}
		check.True(t, min(reads, sends, arrivals, switches) >= 30, "%q: %d reads, %d sends, %d arrivals and %d switches of the peer", addr, reads, sends, arrivals, switches)
		// The other way round the asking process is a client.
		for _, x := range must.Have(kernelevents.NewReader(recordWhile(t, peer, func() { time.Sleep(100 * time.Millisecond) })))(t).Tables.Threads {
			check.False(t, x.IsPeer, "%q: a client is a peer: %+v", addr, x)
		}
	}
}

// TestDiskWait: page faults of a file that is not in memory are uninterruptible sleeps with the kernel's stack.
func TestDiskWait(t *testing.T) {
	needKernel(t)
	name := filepath.Join(t.TempDir(), "data")
	f := must.Have(os.Create(name))(t)
	must.Have(f.Write(make([]byte, 64<<20)))(t)
	must.Do(t, f.Sync())
	must.Do(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	f.Close()
	_, pid := startChild(t, "fault "+name, nil)
	waits := 0
	data := recordWhile(t, pid, func() { time.Sleep(time.Second) })
	forEachEvent(t, data, func(e *kernelevents.Event, tables *kernelevents.Tables) {
		if s := kernelevents.State(e.B); e.Kind == kernelevents.Switch && s.Class() == kernelevents.DiskWait && e.C > 0 {
			if frames := tables.Stacks[e.C-1].Frames; slices.Contains(frames, "filemap_fault") && frames[0] == "io_schedule" && s&kernelevents.InIOWait != 0 {
				waits++
				if _, inCall := s.Call(); inCall {
					t.Errorf("a page fault is in a system call: %+v", e)
				}
			}
		}
	})
	if waits < 20 {
		if fs := new(unix.Statfs_t); unix.Statfs(filepath.Dir(name), fs) == nil && fs.Type == unix.TMPFS_MAGIC {
			t.Skip("the directory is in memory")
		}
		t.Errorf("%d disk waits", waits)
	}
}

// TestNamespace: threads of a process in another PID namespace have its numbers, as its trace does.
func TestNamespace(t *testing.T) {
	needKernel(t)
	_, pid := startChild(t, "busy 3", func(cmd *exec.Cmd) { cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID })
	data := recordWhile(t, pid, func() { time.Sleep(300 * time.Millisecond) })
	tables := must.Have(kernelevents.NewReader(data))(t).Tables
	serviceThreads := 0
	for _, x := range tables.Threads {
		if !x.Own {
			continue
		}
		serviceThreads++
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/status", pid, x.TID))
		check.False(t, err == nil && !strings.Contains(string(b), fmt.Sprintf("NSpid:\t%d\t%d\n", x.TID, x.NSTID)),
			"thread %+v is not that of\n%s", x, b)
	}
	check.True(t, serviceThreads >= 3 && tables.NSPID == 1 && tables.PID == int32(pid),
		"%d threads, process %d is %d", serviceThreads, tables.PID, tables.NSPID)
}

// TestWithoutRights: the error names the capabilities that are missing.
func TestWithoutRights(t *testing.T) {
	needKernel(t)
	_, pid := startChild(t, "busy 0", nil)
	line, _ := startChild(t, "start "+strconv.Itoa(pid), func(cmd *exec.Cmd) {
		cmd.Path = "/proc/self/exe" // the directory of a test's program may be readable by its owner only
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	})
	check.True(t, strings.Contains(line, "CAP_BPF and CAP_PERFMON"), "it says %q", line)
}

func net16(s string) []byte {
	a := netip.MustParseAddr(s).As16()
	return a[:]
}

// TestStoodStill: when the recorder gives no sign for seconds, for example because a signal stopped it, the programs record nothing
// more, and the recording says so.
func TestStoodStill(t *testing.T) {
	needKernel(t)
	addr, pid := startChild(t, "echo", nil)
	p := must.Have(Start(pid))(t)
	c := must.Have(net.Dial("tcp", addr))(t)
	defer c.Close()
	for isDone := false; !isDone; {
		must.Do(t, p.maps.Variables["heartbeat"].Set(uint64(1)))
		must.Have(c.Write([]byte("x")))(t) // wakes the service
		select {
		case <-p.done:
			isDone = true
		case <-time.After(time.Millisecond):
		}
	}
	_, facts, warnings := p.Stop()
	check.True(t, strings.Contains(facts.StopReason, "stood still") && len(warnings) != 0, "%+v, warnings %v", facts, warnings)
}
