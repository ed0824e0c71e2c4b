package host

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/capture/bundle"
)

// Bounds on what a reader keeps, whatever the input holds.
const (
	maxLine        = 1 << 20
	maxPoints      = 1 << 17
	maxConnections = 1 << 14
	maxEvents      = 1 << 14
	maxText        = 300
	maxCounter     = 1 << 60 // 36 years in ns
)

// ErrFormat is wrapped by errors about input that holds no host samples.
var ErrFormat = errors.New("no host samples")

// Samples is a recording of samples that was read again.
type Samples struct {
	PID        int
	IntervalNS int64
	Facts      *bundle.Host
	Warnings   []bundle.Warning
	CostNS     int64

	points  []tick
	wide    int // neighbours that were left out, for a bound on memory
	seconds []second
	conns   map[ends]*connection
	events  []event
	count   int   // most connections at a time
	looks   int   // lists of sockets
	traced  *tick // when the trace was asked for
}

// second is what is sampled more rarely.
type second struct {
	mono              int64
	group             int
	levels            []Level
	memory, steal     int64
	machine, pressure int64
}

// A connection is what became of one socket over all lists.
type connection struct {
	peer                      bool
	state                     string
	retransmitted, outOfOrder int64 // since the first look, or since it was made
	needless                  int64 // of retransmitted, what had arrived already
	lastRetrans, lastOrder    int64 // the kernel's counters when last seen
	lastNeedless              int64
	rtt, minRTT               int64
}

// An event is that a connection sent segments again, or got some out of order,
// between two looks.
type event struct {
	since, mono               int64
	conn                      ends
	peer                      bool
	retransmitted, outOfOrder int64
	needless                  int64 // of those sent again, what is known not to have been lost: not among retransmitted
}

// ends are the two ends of a connection.
type ends struct{ local, remote netip.AddrPort }

// Read reads host.jsonl. Damaged lines are left out and counted in a warning;
// the error wraps ErrFormat if nothing can be used. Memory is bounded whatever
// the input holds: of very long recordings neighbouring samples are left out.
func Read(r io.Reader) (*Samples, error) {
	s := &Samples{conns: map[ends]*connection{}}
	in := bufio.NewReaderSize(r, 64<<10)
	bad, first := 0, true
	var cut error
	for {
		b, long, err := readLine(in)
		if len(b) > 0 || long {
			var l Line
			switch {
			case long || json.Unmarshal(b, &l) != nil || !sane(&l):
				if first {
					return nil, fmt.Errorf("%w: the first line is no start of a recording", ErrFormat)
				}
				bad++
			case first:
				if err := s.begin(&l); err != nil {
					return nil, err
				}
			default:
				if !s.add(&l) {
					bad++
				}
			}
			first = false
		}
		if err != nil {
			if err != io.EOF {
				cut = err
			}
			break
		}
	}
	if len(s.points) == 0 {
		if cut != nil {
			return nil, fmt.Errorf("%w: reading them: %w", ErrFormat, cut)
		}
		return nil, fmt.Errorf("%w: not one sample is whole", ErrFormat)
	}
	if bad > 0 {
		s.warn(fmt.Sprintf("%d damaged lines of the host samples were left out", bad))
	}
	if cut != nil {
		s.warn("the host samples end early: " + clip(cut.Error()))
	}
	return s, nil
}

func (s *Samples) warn(text string) {
	s.Warnings = append(s.Warnings, bundle.Warning{Code: WarnHost, Text: text})
}

// readLine returns a line without its end; long says that it was longer than
// any that is written, and left out.
func readLine(in *bufio.Reader) (b []byte, long bool, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if len(b)+len(part) > maxLine {
			b, long = nil, true
		} else if !long {
			b = append(b, part...)
		}
		if err != bufio.ErrBufferFull {
			return trimEnd(b), long, err
		}
	}
}

func trimEnd(b []byte) []byte {
	for len(b) > 0 && (b[len(b)-1] == '\n' || b[len(b)-1] == '\r') {
		b = b[:len(b)-1]
	}
	return b
}

// sane refuses numbers that no kernel gives, which sums could overflow with.
func sane(l *Line) bool {
	for _, v := range []int64{l.MonoNS, l.WallNS, l.SinceNS, l.CostNS, l.IntervalNS, l.Unseen} {
		if v < 0 || v > 1<<62 {
			return false
		}
	}
	for _, v := range []*int64{l.Periods, l.ThrottledPeriods, l.ThrottledNS, l.LocalNS, l.AncestorPeriods, l.AncestorNS, l.UsageNS, l.UserNS, l.SystemNS,
		l.RunNS, l.RunDelayNS, l.RSSBytes, l.Retransmitted, l.MemoryBytes, l.StealNS, l.MachineNS, l.PressureNS} {
		if v != nil && (*v < 0 || *v > maxCounter) {
			return false
		}
	}
	for i := range l.Levels {
		v := &l.Levels[i]
		if min(v.Periods, v.ThrottledPeriods, v.ThrottledNS) < 0 || max(v.Periods, v.ThrottledPeriods, v.ThrottledNS) > maxCounter {
			return false
		}
	}
	for i := range l.Sockets {
		v := &l.Sockets[i]
		if min(v.Retransmitted, v.Needless, v.OutOfOrder, v.RTTNS, v.MinRTTNS) < 0 || max(v.Retransmitted, v.Needless, v.OutOfOrder, v.RTTNS, v.MinRTTNS) > maxCounter {
			return false
		}
	}
	return l.MonoNS > 0 || l.WallNS > 0
}

func (s *Samples) begin(l *Line) error {
	switch {
	case l.Kind != KindStart:
		return fmt.Errorf("%w: the first line is of kind %q, not %q", ErrFormat, clip(l.Kind), KindStart)
	case l.Schema == Schema:
	case strings.HasPrefix(l.Schema, "whylate.host/"):
		return fmt.Errorf("%w of a version known here (%q): use a newer whylate", ErrFormat, clip(l.Schema))
	default:
		return fmt.Errorf("%w: their schema is %q, want %q", ErrFormat, clip(l.Schema), Schema)
	}
	s.PID, s.IntervalNS, s.Facts = l.PID, l.IntervalNS, l.Facts
	if f := s.Facts; f != nil {
		for _, t := range []*string{&f.OS, &f.Arch, &f.Kernel, &f.QuotaFrom, &f.MemoryFrom, &f.CgroupVersion, &f.Group, &f.GOMAXPROCS, &f.GOGC, &f.GOMEMLIMIT, &f.Go} {
			*t = clip(*t)
		}
	}
	return nil
}

func clip(s string) string {
	if len(s) > maxText {
		return strings.ToValidUTF8(s[:maxText], "") + "..."
	}
	return s
}

// add takes a line; it reports false for one that makes no sense.
func (s *Samples) add(l *Line) bool {
	switch l.Kind {
	case KindSample:
		t := l.tick()
		if n := len(s.points); n > 0 && t.mono <= s.points[n-1].mono {
			return t.mono == s.points[n-1].mono // time does not go back
		}
		s.points = append(s.points, t)
		if len(s.points) == maxPoints {
			s.points = thin(s.points)
			s.wide++
		}
	case KindSecond:
		v := second{mono: l.MonoNS, group: l.Group, memory: value(l.MemoryBytes), steal: value(l.StealNS), machine: value(l.MachineNS), pressure: value(l.PressureNS)}
		v.levels = l.Levels[:min(len(l.Levels), 32)]
		for i := range v.levels {
			v.levels[i].Group = clip(v.levels[i].Group)
		}
		s.seconds = append(s.seconds, v)
		if len(s.seconds) == maxSeconds*2 {
			s.seconds = thin(s.seconds)
		}
	case KindSockets:
		return s.addSockets(l)
	case KindTrace:
		s.traced = &tick{mono: l.MonoNS, wall: l.WallNS}
	case KindEnd:
		s.CostNS = l.CostNS
		for _, w := range l.Warnings[:min(len(l.Warnings), 50)] {
			s.Warnings = append(s.Warnings, bundle.Warning{Code: clip(w.Code), Text: clip(w.Text)})
		}
	}
	return true
}

func value(v *int64) int64 {
	if v == nil {
		return absent
	}
	return *v
}

func (l *Line) tick() tick {
	return tick{
		mono: l.MonoNS, wall: l.WallNS, group: l.Group,
		periods: value(l.Periods), throttledPeriods: value(l.ThrottledPeriods), throttled: value(l.ThrottledNS), local: value(l.LocalNS),
		ancestorPeriods: value(l.AncestorPeriods), ancestor: value(l.AncestorNS), complete: l.AncestorsComplete,
		usage: value(l.UsageNS), user: value(l.UserNS), system: value(l.SystemNS), run: value(l.RunNS), delay: value(l.RunDelayNS), threads: l.Threads,
		rss: value(l.RSSBytes), minor: value(l.MinorFaults), major: value(l.MajorFaults), retransmitted: value(l.Retransmitted), unseen: l.Unseen,
	}
}

func (s *Samples) addSockets(l *Line) bool {
	first := s.looks == 0
	s.looks++
	s.count = max(s.count, min(l.Count, 1<<30))
	ok := true
	for i := range l.Sockets {
		v := &l.Sockets[i]
		local, err1 := netip.ParseAddrPort(v.Local)
		remote, err2 := netip.ParseAddrPort(v.Remote)
		if err1 != nil || err2 != nil {
			ok = false
			continue
		}
		key := ends{local, remote}
		c := s.conns[key]
		if c == nil {
			if len(s.conns) >= maxConnections {
				continue
			}
			c = &connection{peer: v.Peer}
			if first { // what it had before is not of this recording
				c.lastRetrans, c.lastOrder, c.lastNeedless = v.Retransmitted, v.OutOfOrder, v.Needless
			}
			s.conns[key] = c
		}
		if v.Retransmitted < c.lastRetrans || v.OutOfOrder < c.lastOrder || v.Needless < c.lastNeedless {
			c.lastRetrans, c.lastOrder, c.lastNeedless = 0, 0, 0 // another connection of the same ends
		}
		again, order := v.Retransmitted-c.lastRetrans, v.OutOfOrder-c.lastOrder
		needless := v.Needless - c.lastNeedless
		c.lastRetrans, c.lastOrder, c.lastNeedless = v.Retransmitted, v.OutOfOrder, v.Needless
		c.retransmitted += again
		c.outOfOrder += order
		c.rtt, c.minRTT, c.state = v.RTTNS, v.MinRTTNS, clip(v.State)
		if (again > 0 || order > 0) && len(s.events) < maxEvents {
			s.events = append(s.events, event{l.SinceNS, l.MonoNS, key, v.Peer, again, order, 0})
		}
		c.needless += s.clear(key, needless)
	}
	return ok
}

// clear takes what had been sent again needlessly out of the connection's last
// events: the other end says so a round trip later. It returns how many there were.
func (s *Samples) clear(conn ends, needless int64) (cleared int64) {
	for i := len(s.events) - 1; i >= 0 && needless > 0; i-- {
		if e := &s.events[i]; e.conn == conn {
			n := min(needless, e.retransmitted)
			e.retransmitted, e.needless = e.retransmitted-n, e.needless+n
			needless, cleared = needless-n, cleared+n
		}
	}
	return cleared
}

// sortedEnds are the connections in an order that does not change.
func (s *Samples) sortedEnds() []ends {
	keys := make([]ends, 0, len(s.conns))
	for k := range s.conns {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b ends) int {
		if c := a.local.Compare(b.local); c != 0 {
			return c
		}
		return a.remote.Compare(b.remote)
	})
	return keys
}
