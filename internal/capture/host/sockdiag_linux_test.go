package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// message returns a netlink message.
func message(kind uint16, seq uint32, body ...byte) []byte {
	b := make([]byte, unix.SizeofNlMsghdr, unix.SizeofNlMsghdr+len(body)+3)
	binary.NativeEndian.PutUint32(b, uint32(len(b)+len(body)))
	binary.NativeEndian.PutUint16(b[4:], kind)
	binary.NativeEndian.PutUint32(b[8:], seq)
	b = append(b, body...)
	return append(b, make([]byte, align4(len(b))-len(b))...)
}

// TestParseDiag: the sockets of an answer are read up to its end, the rest of an earlier answer is
// skipped, and a truncated message is an error.
func TestParseDiag(t *testing.T) {
	socket := func(inode uint32, attrs ...byte) []byte {
		b := make([]byte, diagMsgLen)
		b[0] = unix.AF_INET
		binary.NativeEndian.PutUint32(b[68:], inode)
		return append(b, attrs...)
	}
	errno := func(e int32) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(e)) }
	sock := func(seq uint32, inode uint32) []byte {
		return message(unix.SOCK_DIAG_BY_FAMILY, seq, socket(inode)...)
	}
	for name, c := range map[string]struct {
		answer []byte
		inodes string
		done   bool
		err    string
	}{
		"nothing":         {nil, "[]", false, ""},
		"less than one":   {make([]byte, unix.SizeofNlMsghdr-1), "[]", false, ""},
		"two, and more":   {slices.Concat(sock(7, 1), sock(7, 2)), "[1 2]", false, ""},
		"the end":         {slices.Concat(sock(7, 1), message(unix.NLMSG_DONE, 7), sock(7, 2)), "[1]", true, ""},
		"an earlier one":  {slices.Concat(sock(6, 1), message(unix.NLMSG_DONE, 6), sock(7, 2)), "[2]", false, ""},
		"short":           {slices.Concat(message(unix.SOCK_DIAG_BY_FAMILY, 7, socket(1)[:diagMsgLen-4]...), sock(7, 2)), "[2]", false, ""},
		"not aligned":     {slices.Concat(message(unix.SOCK_DIAG_BY_FAMILY, 7, socket(1, 1)...), sock(7, 2)), "[1 2]", false, ""},
		"another kind":    {slices.Concat(message(99, 7, socket(1)...), sock(7, 2)), "[2]", false, ""},
		"refused":         {message(unix.NLMSG_ERROR, 7, errno(-int32(unix.EPERM))...), "[]", true, unix.EPERM.Error()},
		"acknowledged":    {message(unix.NLMSG_ERROR, 7, errno(0)...), "[]", true, ""},
		"without a value": {message(unix.NLMSG_ERROR, 7, 1, 2, 3), "[]", true, ""},
		"cut":             {sock(7, 1)[:40], "[]", true, "the answer is cut"},
		"of no length":    {make([]byte, unix.SizeofNlMsghdr), "[]", true, "the answer is cut"},
		"just a head":     {message(98, 7), "[]", false, ""},
	} {
		inodes := []uint64{}
		done, err := parseDiag(c.answer, 7, func(s *diagSocket) { inodes = append(inodes, s.inode) })
		if fmt.Sprint(inodes) != c.inodes || done != c.done || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, %v, %v", name, inodes, done, err)
		}
	}
}

// TestTCPInfo: fields that the struct of an older kernel lacks are 0, and a truncated attribute ends
// the list.
func TestTCPInfo(t *testing.T) {
	raw := make([]byte, unix.SizeofTCPInfo)
	for i := range len(raw) / 4 {
		binary.NativeEndian.PutUint32(raw[4*i:], uint32(i))
	}
	whole := parseTCPInfo(raw)
	if whole.Retransmitted == 0 || whole.Spurious == 0 || whole.OutOfOrder == 0 || whole.UnackedSegs == 0 || whole.RTTNS < 1000 || whole.MinRTTNS < 1000 || whole.RTTNS%1000 != 0 {
		t.Errorf("%+v", whole)
	}
	for n := range raw {
		for i, v := range []struct{ got, want int64 }{
			{parseTCPInfo(raw[:n]).Retransmitted, whole.Retransmitted}, {parseTCPInfo(raw[:n]).OutOfOrder, whole.OutOfOrder}, {parseTCPInfo(raw[:n]).Spurious, whole.Spurious}, {parseTCPInfo(raw[:n]).UnackedSegs, whole.UnackedSegs},
		} {
			if want := v.want; n < int(want)*4+4 && v.got != 0 || n >= int(want)*4+4 && v.got != want {
				t.Fatalf("%d bytes: number %d is %d", n, i, v.got)
			}
		}
	}
	offset := int(whole.MinRTTNS/1000) * 4
	binary.NativeEndian.PutUint32(raw[offset:], 1<<32-1)
	if got := parseTCPInfo(raw); got.MinRTTNS != 0 || got.RTTNS != whole.RTTNS {
		t.Errorf("none measured: %+v", got)
	}
	attr := func(kind uint16, body ...byte) []byte {
		b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(body)))
		b = append(binary.NativeEndian.AppendUint16(b, kind), body...)
		return append(b, make([]byte, align4(len(b))-len(b))...)
	}
	head := make([]byte, diagMsgLen)
	for name, c := range map[string]struct {
		attrs []byte
		want  int64
	}{
		"alone": {attr(diagInfo, raw...), whole.Retransmitted}, "behind another": {append(attr(7, 1), attr(diagInfo, raw...)...), whole.Retransmitted},
		"cut": {attr(diagInfo, raw...)[:100], 0}, "of no length": {append(make([]byte, 4), attr(diagInfo, raw...)...), 0},
	} {
		if s, ok := parseDiagSocket(append(slices.Clone(head), c.attrs...)); !ok || s.counters.Retransmitted != c.want {
			t.Errorf("%s: %+v", name, s.counters)
		}
	}
}

// TestSocketLines: which connections a line counts, lists and reports as connections of the process to
// itself, poll by poll.
func TestSocketLines(t *testing.T) {
	a := netip.MustParseAddrPort
	conn := func(inode uint64, local, remote string, retransmitted int64) diagSocket {
		return diagSocket{Ends: Ends{a(local), a(remote)}, state: 1, inode: inode, counters: Socket{Retransmitted: retransmitted, Spurious: 1, OutOfOrder: 2, UnackedSegs: 3, RTTNS: 4, MinRTTNS: 5}}
	}
	s := &socketPoller{lastCounters: map[uint64]Socket{}, knownEnds: map[Ends]bool{}, lastSelfSockets: -1, listenAddrs: []netip.AddrPort{a("0.0.0.0:80"), a("10.0.0.1:81")},
		processInodes: map[uint64]bool{1: true, 2: true, 3: true, 4: true}, samplerInodes: map[uint64]bool{9: true}, foreignInodes: map[uint64]bool{5: true, 6: true}}
	list := []diagSocket{
		conn(1, "10.0.0.1:80", "10.0.0.9:1000", 0),                                             // with another host
		conn(2, "10.0.0.1:80", "10.0.0.1:2000", 0), conn(5, "10.0.0.1:2000", "10.0.0.1:80", 0), // with another process
		conn(3, "127.0.0.1:80", "127.0.0.1:3000", 0), conn(4, "127.0.0.1:3000", "127.0.0.1:80", 0), // with itself
		conn(6, "10.0.0.1:99", "10.0.0.7:5", 0),                                                     // of another process
		conn(10, "127.0.0.1:80", "127.0.0.1:4000", 0), conn(9, "127.0.0.1:4000", "127.0.0.1:80", 0), // with the recorder
	}
	s.processInodes[10] = true
	lineText := func(l *Line) string {
		if l == nil {
			return "nothing"
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%d all=%v unsure=%d", l.SocketCount, l.ListsAll, l.UnsureConnections)
		if l.SelfSockets != nil {
			fmt.Fprintf(&b, " own=%d", *l.SelfSockets)
		}
		for _, v := range l.Sockets {
			fmt.Fprintf(&b, " %s-%s", v.Local, v.Remote)
			if v.Peer {
				b.WriteString("(peer)")
			}
		}
		return b.String() + " " + strings.Join(l.ListenAddrs, ",")
	}
	check := func(description string, final bool, want string) {
		t.Helper()
		if got := strings.TrimSpace(lineText(s.nextLine(final))); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", description, got, want)
		}
	}
	const all = "10.0.0.1:80-10.0.0.9:1000 10.0.0.1:80-10.0.0.1:2000 10.0.0.1:2000-10.0.0.1:80(peer) 127.0.0.1:80-127.0.0.1:3000 127.0.0.1:3000-127.0.0.1:80"
	s.ownedSockets = list
	check("first", false, "4 all=true unsure=0 own=2 "+all+" 0.0.0.0:80,10.0.0.1:81")
	check("the same", false, "nothing")
	for name, change := range map[string]func(i *Socket){
		"sent again": func(i *Socket) { i.Retransmitted++ }, "needless": func(i *Socket) { i.Spurious++ }, "out of order": func(i *Socket) { i.OutOfOrder++ },
	} {
		change(&s.ownedSockets[0].counters)
		check(name, false, "4 all=false unsure=0 10.0.0.1:80-10.0.0.9:1000")
	}
	s.ownedSockets[0].counters.RTTNS++
	check("a round trip is no change", false, "nothing")
	setOwnerless := func(local, remote string) { s.ownerlessEnds = []Ends{{a(local), a(remote)}} }
	setOwnerless("10.0.0.1:80", "10.0.0.1:2000")
	check("one that is known has ended", false, "nothing")
	setOwnerless("10.0.0.1:2000", "10.0.0.1:80")
	check("its other end", false, "nothing")
	setOwnerless("10.0.0.1:80", "10.0.0.1:2001")
	check("one that was never seen, at an address it listens on", false, "4 all=false unsure=1 own=2")
	check("known since", false, "nothing")
	setOwnerless("10.0.0.1:2002", "10.0.0.1:81")
	check("its other end there", false, "4 all=false unsure=1 own=2")
	setOwnerless("10.0.0.2:2002", "10.0.0.3:81")
	check("at another address with that port", false, "nothing")
	setOwnerless("10.0.0.2:2002", "10.0.0.3:82")
	check("elsewhere", false, "nothing")
	s.ownerlessEnds, s.ownedSockets = nil, list[:3]
	check("its connection with itself has ended", false, "2 all=false unsure=0 own=0")
	check("last", true, "2 all=true unsure=0 own=0 10.0.0.1:80-10.0.0.9:1000 10.0.0.1:80-10.0.0.1:2000 10.0.0.1:2000-10.0.0.1:80(peer) 0.0.0.0:80,10.0.0.1:81")

	crowded := &socketPoller{lastCounters: map[uint64]Socket{}, knownEnds: map[Ends]bool{}, lastSelfSockets: -1, processInodes: map[uint64]bool{}}
	for i := range maxListed + 2 {
		crowded.processInodes[uint64(i)] = true
		c := conn(uint64(i), "10.0.0.1:80", fmt.Sprintf("10.0.%d.%d:7", i/256, i%256), int64(i%2))
		c.counters.OutOfOrder = int64(i)
		crowded.ownedSockets = append(crowded.ownedSockets, c)
	}
	l := crowded.nextLine(false)
	odd := int64(maxListed+1) - int64(maxListed%2)
	if len(l.Sockets) != maxListed || l.ListsAll || l.SocketCount != maxListed+2 || l.Sockets[0].Retransmitted != 1 || l.Sockets[0].OutOfOrder != odd || l.Sockets[maxListed-1].Retransmitted != 0 {
		t.Errorf("%d of %d, all %v, the first %+v", len(l.Sockets), l.SocketCount, l.ListsAll, l.Sockets[0])
	}
	if v := l.Sockets[0]; v.RTTNS != 4 || v.MinRTTNS != 5 || v.UnackedSegs != 3 || v.Spurious != 1 || v.State != "ESTABLISHED" {
		t.Errorf("%+v", v)
	}
}

func TestStateNames(t *testing.T) {
	for state, want := range map[uint8]string{0: "", 1: "ESTABLISHED", tcpListen: "LISTEN", 6: "TIME_WAIT", 12: "NEW_SYN_RECV", 13: "", 255: ""} {
		check.Equal(t, stateName(state), want, "state %d", state)
	}
}

// TestThreads: the sums include all threads, also ended ones, and only grow; close closes all files.
func TestThreads(t *testing.T) {
	before := openFiles(t)
	th := must.Have(openThreads(os.Getpid()))(t)
	count := func() int { return len(must.Have(os.ReadDir("/proc/self/task"))(t)) }
	run, delay, err := th.read(count())
	if errors.Is(err, errNoSchedstat) {
		t.Skip(err)
	}
	must.Do(t, err)
	// A dedicated thread that computes and ends.
	began, end := make(chan int), make(chan bool)
	var ended sync.WaitGroup
	compute := func() int {
		ended.Go(func() {
			runtime.LockOSThread()
			for begin := threadCPU(); threadCPU() < begin+3*time.Millisecond; {
			}
			began <- unix.Gettid()
			<-end
		})
		return <-began
	}
	tid := compute()
	if tid == os.Getpid() { // the first thread stays when its goroutine ends
		tid = compute()
	}
	if _, _, err = th.read(-1); err != nil || th.byTID[tid] == nil {
		t.Fatalf("%v; the new thread is not read", err)
	}
	threadTimes := th.byTID[tid].lastTimes
	check.True(t, threadTimes[0] >= 2e6, "a thread that ran 3 ms has %d ns", threadTimes[0])
	run1, delay1, err := th.read(-1)
	check.True(t, err == nil && run1 >= run+2e6 && delay1 >= delay,
		"%d then %d ns run, %d then %d waited, %v", run, run1, delay, delay1, err)
	close(end)
	ended.Wait()
	for deadline := time.Now().Add(20 * time.Second); ; runtime.Gosched() {
		if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid)); err != nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatal("the thread does not end")
		}
	}
	run2, delay2, err := th.read(-1)
	check.True(t, err == nil && run2 >= run1 && delay2 >= delay1 && th.byTID[tid] == nil && th.endedTimes[0] >= threadTimes[0],
		"after it ended: %d after %d ns run, %d after %d, %v; the sum of those that ended is %v", run2, run1, delay2, delay1, err, th.endedTimes)
	th.close()
	if after := openFiles(t); after > before {
		t.Errorf("%d files are open, %d were before", after, before)
	}
}

func threadCPU() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// openFiles counts the open files of this process, except those of the runtime's poller.
func openFiles(t *testing.T) (n int) {
	t.Helper()
	for _, f := range must.Have(os.ReadDir("/proc/self/fd"))(t) {
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && !strings.HasPrefix(to, "anon_inode:") && !strings.Contains(to, "/proc/self/fd") {
			n++
		}
	}
	return n
}

// TestSamplerOfItself: a recording has each kind of line and plausible CPU times, and Stop closes all
// files.
func TestSamplerOfItself(t *testing.T) {
	before := openFiles(t)
	requestTime := time.Now()
	s := must.Have(Start(Options{PID: os.Getpid(), Interval: time.Millisecond}))(t)
	check.Equal(t, s.PID(), os.Getpid(), "process")
	s.SetTraceRequest(requestTime)
	rec := s.Stop()
	check.Equal(t, s.Stop(), rec, "a second Stop returns another recording")
	if after := openFiles(t); after > before {
		t.Errorf("%d files are open, %d were before", after, before)
	}
	got, _ := readBack(t, rec)
	first, last := got.Points[0], got.Points[len(got.Points)-1]
	if *first.UserNS+*first.SystemNS < 0 || *last.UserNS+*last.SystemNS > last.MonoNS || first.Threads < 2 || *first.RSSBytes < 1<<20 || *first.MinorFaults < 1 || *first.MajorFaults < 0 || first.Retransmitted == nil {
		t.Errorf("%+v", first)
	}
	if hasSchedstat(t) && (*first.RunNS <= 0 || *last.RunNS < *first.RunNS || *last.RunDelayNS < *first.RunDelayNS || *last.RunNS > int64(runtime.NumCPU()+1)*last.MonoNS) {
		t.Errorf("%+v to %+v", first, last)
	}
	if got.TraceRequest == nil || got.TraceRequest.WallNS < requestTime.UnixNano()-int64(time.Second) || got.TraceRequest.WallNS > requestTime.UnixNano()+int64(time.Second) || got.TraceRequest.MonoNS > first.MonoNS {
		t.Errorf("asked at %d, it says %+v", requestTime.UnixNano(), got.TraceRequest)
	}
	if len(got.Seconds) < 2 || got.Seconds[0].MachineCPUNS == nil || *got.Seconds[0].MachineCPUNS <= 0 || got.CostNS <= 0 || time.Duration(got.CostNS) != rec.Cost || got.PID != os.Getpid() || got.IntervalNS != int64(time.Millisecond) || !got.HasStates {
		t.Errorf("%d seconds, %+v", len(got.Seconds), got)
	}
	check.True(t, got.SocketPolls >= 2 && got.SelfConnections.FirstPoll != 0 && got.SelfConnections.LastPoll > got.SelfConnections.FirstPoll,
		"%d looks at sockets, %+v; %v", got.SocketPolls, got.SelfConnections, got.Warnings)
}

func hasSchedstat(t *testing.T) bool {
	b, err := os.ReadFile("/proc/self/schedstat")
	return err == nil && !strings.HasPrefix(string(b), "0 ")
}
