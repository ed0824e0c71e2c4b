package kernelprobe

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"slices"

	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/capture/kernelevents"
)

// Kinds of records that name things, and the lengths of records: enum kind and the structs of bpf/probe.bpf.c.
const (
	threadName = 64
	socketName = 65

	eventBytes      = 48
	threadNameBytes = 40
	socketNameBytes = 72
	stackDepth      = 32
)

// eventKinds translates the numbers of enum kind.
var eventKinds = [...]kernelevents.Kind{
	1: kernelevents.Switch, 2: kernelevents.Wakeup, 3: kernelevents.Migrate, 4: kernelevents.Refill, 5: kernelevents.Throttled,
	6: kernelevents.Arrival, 7: kernelevents.Read, 8: kernelevents.Send, 9: kernelevents.Retransmit,
}

// Bounds of a recording.
const (
	maxEvents = 10_000_000 // unpacked 220 MB of the 256 MiB that a reader accepts
	maxRate   = 2_000_000  // a second
	maxNames  = 1 << 16    // of threads, of sockets
)

// An eventLog collects what the programs send, and writes it.
type eventLog struct {
	pid         int  // of the service, as this process sees it
	hasHostPIDs bool // as the programs see it, too
	data        bytes.Buffer
	writer      *kernelevents.Writer
	tables      kernelevents.Tables
	groups      map[string]uint64
	threads     map[int32]*kernelevents.Thread
	processes   map[int32]process
	sockets     map[uint64]int64 // numbers from 1 by the programs' numbers
	peers       map[int32]bool   // processes that have used a socket with a peer
	stacks      map[int64]int64  // numbers from 1 by the programs' numbers
	stackIDs    []int64
	events      int64
	drained     int64 // events at the last call of addLost
	lost        int64
	lastDrain   int64
	end         int64
	stopReason  string

	hasUnnamedStacks bool
}

// newEventLog returns an empty log for a service. pid is its process id as this process sees it; hasHostPIDs says that the BPF
// programs see the same ids.
func newEventLog(pid int, hasHostPIDs bool) *eventLog {
	l := &eventLog{pid: pid, hasHostPIDs: hasHostPIDs, groups: map[string]uint64{}, threads: map[int32]*kernelevents.Thread{}, processes: map[int32]process{}, sockets: map[uint64]int64{}, peers: map[int32]bool{}, stacks: map[int64]int64{}}
	l.writer, _ = kernelevents.NewWriter(&l.data) // writing to memory cannot fail
	l.lastDrain = host.MonotonicNS()
	l.tables.CPUs = runtime.NumCPU()
	l.addServiceGroups()
	return l
}

// setPID sets the service's process id on the host, once that is known, and marks the service's threads.
func (l *eventLog) setPID(pid int32) {
	l.tables.PID = pid
	for _, t := range l.threads {
		t.Own = t.PID == pid
	}
}

// add adds a record of the ring; it ignores unknown kinds and records that are too short.
func (l *eventLog) add(b []byte) {
	if len(b) < eventBytes && len(b) != threadNameBytes {
		return
	}
	kind := binary.LittleEndian.Uint16(b[8:])
	switch {
	case kind == threadName && len(b) >= threadNameBytes:
		l.addThread(b)
	case kind == socketName && len(b) >= socketNameBytes:
		l.addSocket(b)
	case int(kind) < len(eventKinds) && kind > 0 && len(b) >= eventBytes:
		field := func(i int) int64 { return int64(binary.LittleEndian.Uint64(b[16+8*i:])) }
		l.addEvent(kernelevents.Event{
			Time: int64(binary.LittleEndian.Uint64(b)), Kind: eventKinds[kind], CPU: int32(binary.LittleEndian.Uint16(b[10:])),
			Thread: int32(binary.LittleEndian.Uint32(b[12:])), A: field(0), B: field(1), C: field(2), D: field(3),
		})
	}
}

// addEvent writes an event, with the log's numbers of its stack and its socket; an event of a socket whose name was lost is dropped. After maxEvents
// the log takes no more.
func (l *eventLog) addEvent(e kernelevents.Event) {
	if l.stopReason != "" {
		return
	}
	switch e.Kind {
	case kernelevents.Switch:
		if e.C > 0 {
			e.C = l.stackNumber(e.C - 1)
		}
	case kernelevents.Arrival, kernelevents.Read, kernelevents.Send, kernelevents.Retransmit:
		e.A = l.sockets[uint64(e.A)]
		if e.A == 0 {
			return // its name was lost
		}
		if th := l.threads[e.Thread]; th != nil && l.tables.Sockets[e.A-1].Peer != 0 {
			l.peers[th.PID] = true
		}
	}
	l.events++
	_ = l.writer.Add(e)
	if l.events == maxEvents {
		l.end, l.stopReason = e.Time, fmt.Sprintf("there were %d", maxEvents)
	}
}

// stackNumber returns the number of a stack in the tables, from 1; a new stack gets the next one.
func (l *eventLog) stackNumber(id int64) int64 {
	n := l.stacks[id]
	if n == 0 {
		l.stackIDs = append(l.stackIDs, id)
		n = int64(len(l.stackIDs))
		l.stacks[id] = n
	}
	return n
}

// addThread stores the names and ids of a thread from a record of the BPF programs; further ones are dropped after maxNames.
func (l *eventLog) addThread(b []byte) {
	comm, _, _ := bytes.Cut(b[24:40], []byte{0})
	t := &kernelevents.Thread{TID: int32(binary.LittleEndian.Uint32(b[12:])), PID: int32(binary.LittleEndian.Uint32(b[16:])), Comm: string(comm)}
	if l.threads[t.TID] == nil && len(l.threads) >= maxNames {
		return
	}
	p := l.processOf(t.PID)
	t.Process, t.Cgroup = p.name, p.cgroup
	t.NSTID, t.Own = int32(binary.LittleEndian.Uint32(b[20:])), t.PID == l.tables.PID
	l.threads[t.TID] = t
}

// addSocket stores the addresses, the protocol and the peer of a socket from a record of the BPF programs; further ones are
// dropped after maxNames.
func (l *eventLog) addSocket(b []byte) {
	if len(l.sockets) >= maxNames {
		return
	}
	u16 := func(i int) uint16 { return binary.LittleEndian.Uint16(b[i:]) }
	family, protocol := u16(10), u16(12)
	s := kernelevents.Socket{ID: uint64(len(l.sockets) + 1), Protocol: protocolName(family, protocol)}
	s.Peer = uint64(l.sockets[binary.LittleEndian.Uint64(b[64:])])
	size := map[uint16]int{2: 4, 10: 16}[family]
	if local, ok := netip.AddrFromSlice(b[32 : 32+size]); ok {
		remote, _ := netip.AddrFromSlice(b[48 : 48+size])
		s.Local = netip.AddrPortFrom(local.Unmap(), u16(14)).String()
		s.Remote = netip.AddrPortFrom(remote.Unmap(), u16(16)>>8|u16(16)<<8).String() // in network order
	}
	l.sockets[binary.LittleEndian.Uint64(b[24:])] = int64(s.ID)
	l.tables.Sockets = append(l.tables.Sockets, s)
}

// protocolName returns "unix", "tcp" or "udp" for the kernel's numbers of an address family and an IP protocol, "" for others.
func protocolName(family, protocol uint16) string {
	switch {
	case family == 1:
		return "unix"
	case protocol == 6:
		return "tcp"
	case protocol == 17:
		return "udp"
	}
	return ""
}

// addLost records the loss of events since the last call, and ends the recording if more than maxRate events a second came since then. total is the
// number of events lost since the start, drainTime the time (CLOCK_MONOTONIC, ns) until which events have been read.
func (l *eventLog) addLost(total, drainTime int64) {
	if n := total - l.lost; n > 0 {
		_ = l.writer.Add(kernelevents.Event{Time: drainTime, Kind: kernelevents.Lost, A: n, B: l.lastDrain})
		l.lost = total
	}
	if elapsed := drainTime - l.lastDrain; l.stopReason == "" && elapsed > 0 && float64(l.events-l.drained)/float64(elapsed) > maxRate/1e9 {
		l.end, l.stopReason = drainTime, fmt.Sprintf("there were more than %d a second", maxRate)
	}
	l.lastDrain, l.drained = drainTime, l.events
}

// finish completes the tables and writes them as the end of the log. The probe's maps still have to be open.
func (l *eventLog) finish(p *Probe) {
	l.tables.Start, l.tables.End, l.tables.IsThrottleExact = p.start, l.end, p.hasThrottledClock()
	l.tables.NSPID = host.InnermostPID(l.pid)
	l.tables.Calls = callNames
	l.finishTables(func(id int64) []uint64 {
		var stack [stackDepth]uint64
		if p.maps.Maps["stacks"].Lookup(uint32(id), &stack) != nil {
			return nil
		}
		n := slices.Index(stack[:], 0)
		if n < 0 {
			n = len(stack)
		}
		return stack[:n]
	})
	_ = l.writer.Close(l.tables)
}

// finishTables adds the threads, in the order of their ids, and the stacks. stackOf returns the addresses of a stack by the kernel's id, innermost
// first, in memory that it may reuse; nil if the kernel has lost it.
func (l *eventLog) finishTables(stackOf func(id int64) []uint64) {
	addresses := make([][]uint64, len(l.stackIDs))
	for i, id := range l.stackIDs {
		addresses[i] = slices.Clone(stackOf(id))
	}
	l.tables.Stacks, l.hasUnnamedStacks = nameStacks(addresses)
	for _, thread := range l.threads {
		if !thread.Own {
			thread.NSTID = 0
		}
		if leader := l.threads[thread.PID]; thread.Process == "" && leader != nil {
			thread.Process = leader.Comm // it has ended, or is outside of this PID namespace
		}
		thread.Process, thread.IsPeer = cmp.Or(thread.Process, thread.Comm), l.peers[thread.PID]
		l.tables.Threads = append(l.tables.Threads, *thread)
	}
	slices.SortFunc(l.tables.Threads, func(a, b kernelevents.Thread) int { return cmp.Compare(a.TID, b.TID) })
}
