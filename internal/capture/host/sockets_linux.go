package host

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
)

// sockets follows the TCP connections of a process.
type sockets struct {
	pid    string
	diag   *diag
	mine   map[uint64]bool // inodes of the process
	ours   map[uint64]bool // of this process, the observer
	others map[uint64]bool
	before map[uint64]Socket
	listed bool
	looked int64
	next   int64
	list   []diagSocket
	// Of who talks to itself: what the process listens on, connections that nobody has any more, those that were somebody's or
	// were gone when they were first seen, and what was said of it last.
	listens []netip.AddrPort
	gone    []Ends
	known   map[Ends]bool
	own     int
}

// openSockets begins to follow a process's connections. Namespace is the file of its network namespace, "" for that of this process.
func openSockets(pid int, namespace string) (*sockets, error) {
	name := strconv.Itoa(pid)
	if _, err := socketsOf(procFS(), name); err != nil {
		return nil, fmt.Errorf("which sockets are the process's is not readable: %w", err)
	}
	d, err := openDiag(namespace)
	if err != nil {
		return nil, err
	}
	return &sockets{pid: name, diag: d, before: map[uint64]Socket{}, known: map[Ends]bool{}, own: -1}, nil
}

func (s *sockets) close() { s.diag.close() }

// maxSocketShare: sockets are looked at no more often than that it takes a
// fiftieth of a CPU.
const maxSocketShare = 50

// sample asks for the sockets and returns those that are new to the reader or
// have changed, nil without any. It does not look if that is too early. The last line, and the
// first, list all.
func (s *sockets) sample(now int64, final bool) (l *Line, looked bool, err error) {
	if now < s.next && !final {
		return nil, false, nil
	}
	begin, _ := clocks()
	if err := s.collect(); err != nil {
		return nil, false, err
	}
	l = s.line(final)
	end, _ := clocks()
	if l != nil {
		l.SinceNS = s.looked
	}
	s.looked, s.next = now, now+maxSocketShare*(end-begin)
	return l, true, nil
}

func (s *sockets) collect() error {
	var listens []diagSocket
	unknown := s.mine == nil
	s.list, s.gone = s.list[:0], s.gone[:0]
	err := s.diag.each(func(d *diagSocket) {
		switch {
		case d.state == tcpListen:
			listens = append(listens, *d)
		case d.inode == 0: // no process has it any more, or none has accepted it yet
			s.gone = append(s.gone, d.Ends)
		default:
			s.list = append(s.list, *d)
			unknown = unknown || !s.mine[d.inode] && !s.ours[d.inode] && !s.others[d.inode]
		}
	})
	if err == nil && unknown {
		err = s.whose()
	}
	s.listens = s.listens[:0]
	for _, d := range listens {
		if s.mine[d.inode] {
			s.listens = append(s.listens, d.Local)
		}
	}
	return err
}

// whose finds out whose the sockets of the list are.
func (s *sockets) whose() (err error) {
	if s.mine, err = socketsOf(procFS(), s.pid); err != nil {
		return nil // the process has ended: the next sample says so
	}
	if s.ours, err = socketsOf(procFS(), "self"); err != nil {
		return err
	}
	s.others = map[uint64]bool{}
	for i := range s.list {
		if n := s.list[i].inode; !s.mine[n] && !s.ours[n] {
			s.others[n] = true
		}
	}
	return nil
}

// line says what is new since the line before, nil if nothing is.
func (s *sockets) line(final bool) *Line {
	first := !s.listed
	s.listed = true
	l := &Line{Kind: KindSockets, All: first || final}
	own := s.connections(l)
	if unsure := s.cameAndWent(); !first {
		l.Unsure = unsure
	}
	news := l.All || own != s.own || l.Unsure > 0
	if len(s.known) > maxConnections {
		clear(s.known)
		l.Unsure++ // it is not known which were known
	}
	if news {
		s.own, l.Own = own, &own
	}
	if l.All {
		for _, a := range s.listens {
			l.Listens = append(l.Listens, a.String())
		}
	}
	if len(l.Sockets) > maxListed {
		slices.SortStableFunc(l.Sockets, func(a, b Socket) int {
			return cmp.Or(cmp.Compare(b.Retransmitted, a.Retransmitted), cmp.Compare(b.OutOfOrder, a.OutOfOrder))
		})
		l.Sockets, l.All = l.Sockets[:maxListed], false
	}
	if len(l.Sockets) == 0 && !news {
		return nil
	}
	return l
}

// connections counts the process's connections and lists those that have changed, or all. It returns how many lead to the process itself.
func (s *sockets) connections(l *Line) (own int) {
	at := make(map[Ends]*diagSocket, len(s.list))
	for i := range s.list {
		at[s.list[i].Ends] = &s.list[i]
	}
	now := make(map[uint64]Socket, len(s.before))
	list := func(d *diagSocket, peer bool) {
		v, old := d.info, s.before[d.inode]
		v.Local, v.Remote, v.State, v.Peer = d.Local.String(), d.Remote.String(), stateName(d.state), peer
		now[d.inode] = v
		if l.All || v.Retransmitted != old.Retransmitted || v.Needless != old.Needless || v.OutOfOrder != old.OutOfOrder {
			l.Sockets = append(l.Sockets, v)
		}
	}
	for i := range s.list {
		d := &s.list[i]
		s.known[d.Ends] = true
		other := at[d.turned()]
		if !s.mine[d.inode] || other != nil && s.ours[other.inode] {
			continue // the recording's own connections are not the service's work
		}
		l.Count++
		list(d, false)
		switch {
		case other == nil:
		case s.mine[other.inode]:
			own++
		default:
			list(other, true)
		}
	}
	s.before = now
	return own
}

// cameAndWent counts connections that were opened and closed since the look before, and may have led to the process itself.
func (s *sockets) cameAndWent() (unsure int) {
	for _, ends := range s.gone {
		if !s.known[ends] && !s.known[ends.turned()] && (s.listensOn(ends.Local) || s.listensOn(ends.Remote)) {
			unsure++
		}
		s.known[ends] = true
	}
	return unsure
}

// listensOn reports whether the process accepts connections at an address.
func (s *sockets) listensOn(a netip.AddrPort) bool {
	return slices.ContainsFunc(s.listens, func(l netip.AddrPort) bool {
		return l.Port() == a.Port() && (l.Addr().IsUnspecified() || l.Addr() == a.Addr())
	})
}

// stateName is a TCP state as ss(8) and netstat(8) call it.
func stateName(state uint8) string {
	names := [...]string{1: "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT", "CLOSE", "CLOSE_WAIT", "LAST_ACK", "LISTEN", "CLOSING", "NEW_SYN_RECV"}
	if int(state) < len(names) {
		return names[state]
	}
	return ""
}
