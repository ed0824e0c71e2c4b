package threadstate

import (
	"slices"
	"sort"
	"strings"

	"github.com/whylate/whylate/internal/capture/kernelevents"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// peers holds the threads and exchanges of processes at the other end of connections that the process opened.
type peers struct {
	threads map[int32]*thread // by number on the host
	pids    map[int32]bool    // those that have used a socket
	states  []peerState
	indexes map[report.PeerState]tracefmt.StringID
	texts   map[report.PeerState]tracefmt.StringID
}

// A peerState is a state of a peer's thread, as the symbols of its text. The second one is for the time before the thread has read
// the bytes that it will answer.
type peerState [2]tracefmt.StringID

// An exchange is the answer of a peer to what arrived at its socket. reader is the thread that read it, sender the one that sent the
// answer.
type exchange struct {
	arrived, read, sent int64
	reader, sender      int32
	isContinued         bool // nothing arrived since the answer before: it is the next part of that
}

// maxReadDelayNS is how much later than the end of a wait a goroutine reads that for which it waited: it may wait for a P.
const maxReadDelayNS = 1e9

// maxHandovers bounds the threads of a peer through which one answer is followed.
const maxHandovers = 32

// initPeers prepares the tracking of peers, and joins the two sockets of each connection within this machine.
func (t *Tracker) initPeers() {
	t.peers = peers{threads: map[int32]*thread{}, pids: map[int32]bool{}, indexes: map[report.PeerState]tracefmt.StringID{}, texts: map[report.PeerState]tracefmt.StringID{}}
	for i := range t.tables.Sockets {
		if x := &t.tables.Sockets[i]; x.Peer != 0 {
			t.socket(x.ID).ownEnd, t.socket(x.Peer).otherEnd = x.Peer, x.ID
		}
	}
}

// HasPeers reports whether anything is known about peers.
func (t *Tracker) HasPeers() bool { return len(t.peers.pids) > 0 }

// thread returns a thread of the process or of a peer, nil for others.
func (t *Tracker) thread(syms *tracefmt.Symbols, tid int32) *thread {
	if th := t.threads[tid]; th != nil || len(t.peers.pids) == 0 {
		return th
	}
	th := t.peers.threads[tid]
	if x := t.names.threads[tid]; th == nil && x != nil && t.peers.pids[x.PID] {
		th = &thread{tid: tid, peer: t.names.processTextOf(x, t.names.peers)}
		t.peers.threads[tid] = th
		for _, state := range []report.PeerStateName{report.PeerRunning, report.PeerThrottled, report.PeerStopped, report.PeerOnTheWay, report.PeerArrived} {
			t.peerState(syms, th, state, "")
		}
	}
	return th
}

// eachThread calls f for all threads, those of peers as well.
func (t *Tracker) eachThread(f func(*thread)) {
	for _, th := range t.threads {
		f(th)
	}
	for _, th := range t.peers.threads {
		f(th)
	}
}

// peerState returns the index of a state of the thread's process, a peer, among the states; a new one gets its texts.
func (t *Tracker) peerState(syms *tracefmt.Symbols, th *thread, state report.PeerStateName, detail string) tracefmt.StringID {
	key := report.PeerState{Process: th.peer, State: state, Detail: detail}
	i, ok := t.peers.indexes[key]
	if !ok {
		i = tracefmt.StringID(len(t.peers.states))
		unread := key
		unread.Unread = !slices.Contains([]report.PeerStateName{report.PeerCPUWait, report.PeerThrottled, report.PeerStopped}, state)
		t.peers.states = append(t.peers.states, peerState{t.peerText(syms, key), t.peerText(syms, unread)})
		t.peers.indexes[key] = i
	}
	return i
}

// peerText interns a state as text, which ParsePeerState reads.
func (t *Tracker) peerText(syms *tracefmt.Symbols, x report.PeerState) tracefmt.StringID {
	id, ok := t.peers.texts[x]
	if !ok {
		unread := ""
		if x.Unread {
			unread = "unread"
		}
		id = syms.Intern(strings.Join([]string{x.Process, string(x.State), x.Detail, unread}, "\x00"))
		t.peers.texts[x] = id
	}
	return id
}

// ParsePeerState returns the state of a peer in a text of EachPeerState. ok is false for other texts.
func ParsePeerState(text string) (x report.PeerState, ok bool) {
	f := strings.Split(text, "\x00")
	if len(f) != 4 {
		return x, false
	}
	return report.PeerState{Process: f[0], State: report.PeerStateName(f[1]), Detail: f[2], Unread: f[3] != ""}, true
}

// usePeerSocket records a read or write by a peer at its end of a connection with the process. A write ends the exchange: the
// peer's answer.
func (t *Tracker) usePeerSocket(syms *tracefmt.Symbols, e *kernelevents.Event) {
	s, x := t.sockets[uint64(e.A)], t.names.threads[e.Thread]
	if s == nil || s.ownEnd == 0 || x == nil || x.Own || e.B <= 0 {
		return
	}
	t.peers.pids[x.PID] = true
	if th := t.thread(syms, e.Thread); th.current == Unknown {
		th.enter(change{time: e.Time, cpu: e.CPU, kind: OnCPU})
	}
	if e.Kind == kernelevents.Read {
		if s.open.read == 0 {
			s.open.read, s.open.reader = e.Time, e.Thread
		}
		return
	}
	answer, before := s.open, s.last
	answer.sent, answer.sender = e.Time, e.Thread
	s.open, s.last = exchange{}, answer
	switch {
	case answer.arrived == 0 && answer.read == 0 && before.sent == 0:
		return // its beginning is not known
	case answer.arrived == 0 && answer.read == 0:
		answer.arrived, answer.read, answer.reader, answer.isContinued = before.sent, before.sent, before.sender, true
	case answer.read == 0:
		answer.read, answer.reader = answer.arrived, e.Thread
	case answer.arrived == 0:
		answer.arrived = answer.read
	}
	s.exchanges = append(s.exchanges, answer)
}

// sleepOfPeer returns the state in which a peer's thread sleeps, before it is known what wakes it.
func (t *Tracker) sleepOfPeer(syms *tracefmt.Symbols, th *thread, state kernelevents.State, stack int32) tracefmt.StringID {
	number, inCall := state.Call()
	call, frames := "", t.names.frames(stack)
	if inCall {
		call = t.tables.Calls[number]
	}
	name, detail := peerSleep(state, call, frames)
	if name == report.PeerOther && detail == "" {
		if detail = call; detail == "" {
			detail = sleepFunction(frames)
		}
	}
	return t.peerState(syms, th, name, detail)
}

// peerSleep returns why a thread sleeps, by its system call and the kernel's functions on its stack. detail is a call or kernel
// function, "" if it adds nothing.
func peerSleep(state kernelevents.State, call string, frames []string) (name report.PeerStateName, detail string) {
	hasFrame := func(parts ...string) bool {
		return slices.ContainsFunc(frames, func(fn string) bool {
			return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(fn, part) })
		})
	}
	switch {
	case state&kernelevents.InIOWait != 0:
		return report.PeerDisk, call
	case hasFrame("rwsem", "mutex_lock", "down_read", "down_write"):
		return report.PeerOther, sleepFunction(frames)
	case state.Class() == kernelevents.DiskWait && (hasFrame("io_schedule", "jbd2", "folio_wait", "wait_on_page", "wait_on_buffer", "blk_", "bio_wait", "writeback", "filemap", "xfs_", "ext4_", "btrfs_", "nfs_") || strings.Contains(call, "sync")):
		return report.PeerDisk, call
	case state.Class() == kernelevents.DiskWait:
		return report.PeerOther, ""
	}
	switch call {
	case "futex", "futex_wait", "semop", "semtimedop", "flock":
		return report.PeerLock, ""
	case "nanosleep", "clock_nanosleep":
		return report.PeerTimer, ""
	case "recvfrom", "recvmsg", "recvmmsg", "accept", "accept4", "connect", "sendto", "sendmsg", "sendmmsg":
		return report.PeerNetwork, ""
	case "wait4", "waitid":
		return report.PeerOther, call
	}
	switch {
	case isPoll(call):
		return report.PeerNetwork, ""
	case hasFrame("pipe_read", "pipe_write", "wait_for_partner"):
		return report.PeerPipe, ""
	case hasFrame("tcp_", "sk_wait", "skb_", "unix_stream", "inet_", "sock_"):
		return report.PeerNetwork, ""
	}
	return report.PeerOther, ""
}

// isPoll reports whether a system call waits for one of several things.
func isPoll(call string) bool {
	switch call {
	case "epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6", "io_getevents", "io_uring_enter", "rt_sigtimedwait":
		return true
	}
	return false
}

// wakePeer refines why a peer's thread slept by what woke it.
func (t *Tracker) wakePeer(syms *tracefmt.Symbols, th *thread, e *kernelevents.Event) {
	n := len(th.changes)
	if n == 0 || th.current != Asleep {
		return
	}
	c := &th.changes[n-1]
	c.waker = int32(e.A)
	switch waker := t.names.threads[c.waker]; {
	case c.waker == wokenByTimer:
		if c.isPoll || c.isLock {
			c.name = t.peerState(syms, th, report.PeerTimer, "")
		}
	case !c.isPoll || waker == nil || waker.Own:
	case t.isOfOneProcess(th.tid, c.waker):
		c.name = t.peerState(syms, th, report.PeerLock, "")
	default:
		detail := t.names.processText(c.waker)
		if name := processName(waker); name == processName(t.names.threads[th.tid]) {
			detail = "another process of " + name
		}
		c.name = t.peerState(syms, th, report.PeerProcess, detail)
	}
}

// wokenByTimer is a waker: see kernelevents.Wakeup.
const wokenByTimer = -1

// isOfOneProcess reports whether threads a and b are of one process, false if one is not known.
func (t *Tracker) isOfOneProcess(a, b int32) bool {
	x, y := t.names.threads[a], t.names.threads[b]
	return x != nil && y != nil && x.PID == y.PID
}

// nameWait names, in each wait for a CPU of a peer's thread that ends now, what had the CPU for most of it.
func (t *Tracker) nameWait(syms *tracefmt.Symbols, th *thread, now int64) {
	for i := max(th.readyIndex, 0); i < len(th.changes); i++ {
		c := &th.changes[i]
		if c.kind != Waiting {
			continue
		}
		x := Interval{Start: c.time, End: now, Kind: Waiting}
		if i+1 < len(th.changes) {
			x.End = th.changes[i+1].time
		}
		longest := Interval{}
		t.divideWait(c.cpu, x, func(part Interval) {
			if part.End-part.Start > longest.End-longest.Start {
				longest = part
			}
		})
		c.name = t.peerState(syms, th, report.PeerCPUWait, syms.String(longest.Name))
	}
}

// EachPeerState calls f for the parts of a goroutine's network wait in [from, to) by what the process at the other end of the
// connection did, in order of time. The connection is the one that the goroutine reads from after the wait. Nothing is known of
// processes of other hosts.
func (t *Tracker) EachPeerState(g uint64, from, to int64, f func(start, end int64, state tracefmt.StringID)) {
	ownEnd := t.sockets[t.socketReadAfter(g, to)]
	if ownEnd == nil || ownEnd.otherEnd == 0 {
		return
	}
	list := t.sockets[ownEnd.otherEnd].exchanges
	emit := func(start, end int64, state tracefmt.StringID) {
		if start, end = max(start, from), min(end, to); start < end && state != 0 {
			f(start, end, state)
			from = end
		}
	}
	i := sort.Search(len(list), func(i int) bool { return list[i].sent > from })
	for ; i < len(list) && list[i].arrived < to; i++ {
		x := &list[i]
		way := t.peers.texts[report.PeerState{Process: t.peerName(x.sender), State: report.PeerOnTheWay}]
		if sent := timeBefore(ownEnd.sends, x.arrived); !x.isContinued && (i == 0 || sent > list[i-1].sent) {
			emit(sent, x.arrived, way)
		}
		end := x.sent
		k := sort.Search(len(ownEnd.arrivals), func(k int) bool { return ownEnd.arrivals[k].time >= x.arrived })
		if k < len(ownEnd.arrivals) {
			end = min(end, ownEnd.arrivals[k].time)
		}
		t.eachOfPeer(x.reader, x.arrived, min(x.read, end), 1, emit)
		t.eachOfAnswer(x, min(x.read, end), end, emit)
		if k < len(ownEnd.arrivals) && (i+1 == len(list) || list[i+1].arrived >= to) {
			emit(end, ownEnd.arrivals[k].time, way)
			emit(ownEnd.arrivals[k].time, to, t.peers.texts[report.PeerState{Process: t.peerName(x.sender), State: report.PeerArrived}])
		}
	}
}

// EachPeerStateIn calls f as EachPeerState for the part in [from, to) of a goroutine's span, if that is a wait for the network.
func (t *Tracker) EachPeerStateIn(g uint64, span *timeline.Span, from, to int64, f func(start, end int64, state tracefmt.StringID)) {
	if span.State != timeline.Waiting || span.Reason != t.networkReason || !t.HasPeers() {
		return
	}
	t.EachPeerState(g, span.Start, span.End, func(start, end int64, state tracefmt.StringID) {
		if start, end = max(start, from), min(end, to); start < end {
			f(start, end, state)
		}
	})
}

// peerName returns the name of the process of a peer's thread, "" if not known.
func (t *Tracker) peerName(tid int32) string {
	if th := t.peers.threads[tid]; th != nil {
		return th.peer
	}
	return ""
}

// timeBefore returns the last of times in order that is not after t, and t if there is none.
func timeBefore(times []int64, t int64) int64 {
	i := sort.Search(len(times), func(i int) bool { return times[i] > t })
	if i == 0 {
		return t
	}
	return times[i-1]
}

// socketReadAfter returns the socket that a goroutine reads first when it runs after a time, 0 if it does not read.
func (t *Tracker) socketReadAfter(g uint64, time int64) (socket uint64) {
	isOver := false
	t.eachBinding(g, time, time+maxReadDelayNS, func(b *timeline.Binding) {
		th := t.byM[b.M]
		if isOver || th == nil || b.To <= time {
			return
		}
		isOver = true
		begin := max(time, b.From)
		if i := sort.Search(len(th.reads), func(i int) bool { return th.reads[i].time >= begin }); i < len(th.reads) && th.reads[i].time < b.To {
			socket = th.reads[i].socket
		}
	})
	return socket
}

// eachOfPeer calls f for the known states of a peer's thread in [from, to). variant is an index of peerState.
func (t *Tracker) eachOfPeer(tid int32, from, to int64, variant int, f func(start, end int64, state tracefmt.StringID)) {
	th := t.peers.threads[tid]
	if th == nil || from >= to || len(th.changes) == 0 {
		return
	}
	for i := indexBefore(th.changes, from, func(c *change) int64 { return c.time }); i < len(th.changes) && th.changes[i].time < to; i++ {
		c := &th.changes[i]
		start, end, index := max(from, c.time), to, c.name
		if i+1 < len(th.changes) {
			end = min(to, th.changes[i+1].time)
		}
		state := report.PeerStateName("")
		switch c.kind {
		case Unknown:
			continue
		case OnCPU:
			state = report.PeerRunning
		case Throttled:
			state = report.PeerThrottled
		case Stopped:
			state = report.PeerStopped
		}
		if state != "" {
			index = t.peers.indexes[report.PeerState{Process: th.peer, State: state}]
		}
		f(start, end, t.peers.states[index][variant])
	}
}

// eachOfAnswer calls f for the states of a peer in [from, to), between the read and the answer. If another thread sends the answer, each
// thread is followed back to the one of its process that woke it.
func (t *Tracker) eachOfAnswer(x *exchange, from, to int64, f func(start, end int64, state tracefmt.StringID)) {
	type part struct {
		tid        int32
		start, end int64
	}
	tid, end, parts := x.sender, to, []part{}
	for len(parts) < maxHandovers && tid != x.reader && end > from {
		wakeTime, waker := t.handoverBefore(tid, from, end)
		if waker == 0 {
			break
		}
		parts = append(parts, part{tid, wakeTime, end})
		tid, end = waker, wakeTime
	}
	if tid != x.reader && end > from {
		return // who worked for the answer is not known
	}
	parts = append(parts, part{tid, from, end})
	for i := len(parts) - 1; i >= 0; i-- {
		t.eachOfPeer(parts[i].tid, parts[i].start, parts[i].end, 0, f)
	}
}

// handoverBefore returns the last time in [from, to) at which a thread of the same process woke a thread, and that waker; 0 if
// there is none.
func (t *Tracker) handoverBefore(tid int32, from, to int64) (time int64, waker int32) {
	th := t.peers.threads[tid]
	if th == nil {
		return 0, 0
	}
	for i := sort.Search(len(th.changes), func(i int) bool { return th.changes[i].time >= to }) - 1; i > 0 && th.changes[i].time > from; i-- {
		if c := &th.changes[i-1]; c.waker > 0 && c.kind == Asleep && c.waker != tid && t.isOfOneProcess(tid, c.waker) && t.peers.threads[c.waker] != nil {
			return th.changes[i].time, c.waker
		}
	}
	return 0, 0
}
