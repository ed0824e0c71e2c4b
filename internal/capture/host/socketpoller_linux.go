package host

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
)

// A socketPoller reports the TCP connections of a process and how they change between polls.
type socketPoller struct {
	pid           string
	diag          *sockDiag
	processInodes map[uint64]bool // of sockets of the sampled process
	samplerInodes map[uint64]bool // of sockets of this process, which takes the samples
	foreignInodes map[uint64]bool
	lastCounters  map[uint64]Socket
	hasListed     bool
	lastPoll      int64
	nextPoll      int64
	ownedSockets  []diagSocket
	// The last fields find connections of the process to itself: its listening addresses, the ends of
	// connections without an owner in this poll, the ends of all connections seen so far, and the last
	// reported number of sockets.
	listenAddrs     []netip.AddrPort
	ownerlessEnds   []Ends
	knownEnds       map[Ends]bool
	lastSelfSockets int
}

// openSockets prepares to poll a process's sockets. namespace is the path of its network namespace, "" for the namespace of this process.
func openSockets(pid int, namespace string) (*socketPoller, error) {
	name := strconv.Itoa(pid)
	if _, err := socketInodes(procFS(), name); err != nil {
		return nil, fmt.Errorf("which sockets are the process's is not readable: %w", err)
	}
	d, err := openSockDiag(namespace)
	if err != nil {
		return nil, err
	}
	return &socketPoller{pid: name, diag: d, lastCounters: map[uint64]Socket{}, knownEnds: map[Ends]bool{}, lastSelfSockets: -1}, nil
}

func (s *socketPoller) close() { s.diag.close() }

// socketCostFactor is the least ratio of the time between two polls to the duration of a poll: polling
// uses at most 2 % of a CPU.
const socketCostFactor = 50

// poll reads the sockets and returns a line with those that are new or have changed since the previous poll; the first line and the final one list
// all. The line, whose times the caller sets, is nil if nothing changed. polled is false if it is too early for a poll: mono (CLOCK_MONOTONIC, ns) is
// before nextPoll.
func (s *socketPoller) poll(mono int64, final bool) (l *Line, polled bool, err error) {
	if mono < s.nextPoll && !final {
		return nil, false, nil
	}
	begin, _ := readClocks()
	if err := s.collect(); err != nil {
		return nil, false, err
	}
	l = s.nextLine(final)
	end, _ := readClocks()
	if l != nil {
		l.SinceNS = s.lastPoll
	}
	s.lastPoll, s.nextPoll = mono, mono+socketCostFactor*(end-begin)
	return l, true, nil
}

// collect reads the sockets of the namespace and sets listenAddrs (of the process), ownerlessEnds (sockets that no process has open) and ownedSockets
// (the others).
func (s *socketPoller) collect() error {
	var listeners []diagSocket
	unknown := s.processInodes == nil
	s.ownedSockets, s.ownerlessEnds = s.ownedSockets[:0], s.ownerlessEnds[:0]
	err := s.diag.forEachSocket(func(d *diagSocket) {
		switch {
		case d.state == tcpListen:
			listeners = append(listeners, *d)
		case d.inode == 0: // its process has closed it, or none has accepted it yet
			s.ownerlessEnds = append(s.ownerlessEnds, d.Ends)
		default:
			s.ownedSockets = append(s.ownedSockets, *d)
			unknown = unknown || !s.processInodes[d.inode] && !s.samplerInodes[d.inode] && !s.foreignInodes[d.inode]
		}
	})
	if err == nil && unknown {
		err = s.classifyInodes()
	}
	s.listenAddrs = s.listenAddrs[:0]
	for _, d := range listeners {
		if s.processInodes[d.inode] {
			s.listenAddrs = append(s.listenAddrs, d.Local)
		}
	}
	return err
}

// classifyInodes sets processInodes, samplerInodes and foreignInodes: the sockets of the sampled process, of this process, and of others. If the
// sampled process has ended, it sets none and returns no error.
func (s *socketPoller) classifyInodes() (err error) {
	if s.processInodes, err = socketInodes(procFS(), s.pid); err != nil {
		return nil // the process has ended, which the next sample reports
	}
	if s.samplerInodes, err = socketInodes(procFS(), "self"); err != nil {
		return err
	}
	s.foreignInodes = map[uint64]bool{}
	for i := range s.ownedSockets {
		if n := s.ownedSockets[i].inode; !s.processInodes[n] && !s.samplerInodes[n] {
			s.foreignInodes[n] = true
		}
	}
	return nil
}

// nextLine returns the changes since the previous line; nil without any. The first and the final line list all sockets.
func (s *socketPoller) nextLine(final bool) *Line {
	first := !s.hasListed
	s.hasListed = true
	l := &Line{Kind: KindSockets, ListsAll: first || final}
	selfSockets := s.listConnections(l)
	if unsureConnections := s.countShortLived(); !first {
		l.UnsureConnections = unsureConnections
	}
	isChanged := l.ListsAll || selfSockets != s.lastSelfSockets || l.UnsureConnections > 0
	if len(s.knownEnds) > maxConnections {
		clear(s.knownEnds)
		l.UnsureConnections++ // knownEnds is empty now: a short-lived connection may be counted twice
	}
	if isChanged {
		s.lastSelfSockets, l.SelfSockets = selfSockets, &selfSockets
	}
	if l.ListsAll {
		for _, a := range s.listenAddrs {
			l.ListenAddrs = append(l.ListenAddrs, a.String())
		}
	}
	if len(l.Sockets) > maxListed {
		slices.SortStableFunc(l.Sockets, func(a, b Socket) int {
			return cmp.Or(cmp.Compare(b.Retransmitted, a.Retransmitted), cmp.Compare(b.OutOfOrder, a.OutOfOrder))
		})
		l.Sockets, l.ListsAll = l.Sockets[:maxListed], false
	}
	if len(l.Sockets) == 0 && !isChanged {
		return nil
	}
	return l
}

// listConnections counts the process's connections and lists the changed ones, or all, in the line. It
// returns how many of the sockets lead to the process itself.
func (s *socketPoller) listConnections(l *Line) (selfSockets int) {
	socketByEnds := make(map[Ends]*diagSocket, len(s.ownedSockets))
	for i := range s.ownedSockets {
		socketByEnds[s.ownedSockets[i].Ends] = &s.ownedSockets[i]
	}
	counters := make(map[uint64]Socket, len(s.lastCounters))
	addSocket := func(d *diagSocket, peer bool) {
		v, old := d.counters, s.lastCounters[d.inode]
		v.Local, v.Remote, v.State, v.Peer = d.Local.String(), d.Remote.String(), stateName(d.state), peer
		counters[d.inode] = v
		if l.ListsAll || v.Retransmitted != old.Retransmitted || v.Spurious != old.Spurious || v.OutOfOrder != old.OutOfOrder {
			l.Sockets = append(l.Sockets, v)
		}
	}
	for i := range s.ownedSockets {
		d := &s.ownedSockets[i]
		s.knownEnds[d.Ends] = true
		otherEnd := socketByEnds[d.reversed()]
		if !s.processInodes[d.inode] || otherEnd != nil && s.samplerInodes[otherEnd.inode] {
			continue // a connection of the recorder is not work of the service
		}
		l.SocketCount++
		addSocket(d, false)
		switch {
		case otherEnd == nil:
		case s.processInodes[otherEnd.inode]:
			selfSockets++
		default:
			addSocket(otherEnd, true)
		}
	}
	s.lastCounters = counters
	return selfSockets
}

// countShortLived returns the number of connections that were opened and closed since the previous poll and may have led to the
// process itself. It records their ends as known, so that no later poll counts them.
func (s *socketPoller) countShortLived() (shortLived int) {
	for _, ends := range s.ownerlessEnds {
		if !s.knownEnds[ends] && !s.knownEnds[ends.reversed()] && (s.listensOn(ends.Local) || s.listensOn(ends.Remote)) {
			shortLived++
		}
		s.knownEnds[ends] = true
	}
	return shortLived
}

// listensOn reports whether the process accepts connections at an address.
func (s *socketPoller) listensOn(a netip.AddrPort) bool {
	return slices.ContainsFunc(s.listenAddrs, func(l netip.AddrPort) bool {
		return l.Port() == a.Port() && (l.Addr().IsUnspecified() || l.Addr() == a.Addr())
	})
}

// stateName returns the name of a TCP state, as ss(8) and netstat(8) write it; "" for an unknown one.
func stateName(state uint8) string {
	names := [...]string{1: "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT", "CLOSE", "CLOSE_WAIT", "LAST_ACK", "LISTEN", "CLOSING", "NEW_SYN_RECV"}
	if int(state) < len(names) {
		return names[state]
	}
	return ""
}
