package host

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/whylate/whylate/internal/capture/bundle"
)

// Bounds on what a reader keeps, whatever the input holds.
const (
	maxLine        = 1 << 20
	maxLines       = 1 << 18 // more than an hour of samples; blank ones count
	maxBytes       = 64 << 20
	maxPoints      = 1 << 17
	maxConnections = 1 << 14
	maxEvents      = 1 << 14
	maxText        = 300
	maxWaited      = 256     // threads of a sample
	maxLevels      = 32      // groups of a second
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

	Points      []Sample // of KindSample
	Seconds     []Sample // of KindSecond
	Connections map[Ends]*Connection
	Events      []Event
	Most        int     // most connections at a time
	Looks       int     // lists of sockets
	Traced      *Sample // when the trace was asked for
	States      bool    // samples tell when no thread might run
	Itself      Itself
}

// Itself is what looks at the sockets said of whether the process is connected to itself.
type Itself struct {
	// First and Last are when all sockets were looked at first and last, on the samples' monotonic clock; 0: never.
	First, Last int64
	// Own is how many sockets of the process led to itself, at most at a time. Unsure connections may have, between looks.
	Own, Unsure int

	listed map[Ends]bool // by the first look
}

// A connection is what became of one socket over all lists.
type Connection struct {
	Peer                      bool
	Last                      Socket // as it was seen last
	Retransmitted, OutOfOrder int64  // since the first look, or since it was made
	Needless                  int64  // of retransmitted, what had arrived already
}

// An event is that a connection sent segments again, or got some out of order,
// between two looks.
type Event struct {
	Since, Mono               int64
	Conn                      Ends
	Peer                      bool
	Retransmitted, OutOfOrder int64
	Needless                  int64 // sent again although nothing was lost: not among Retransmitted
}

// Ends are the two ends of a connection.
type Ends struct{ Local, Remote netip.AddrPort }

// turned are the ends as the other side names them.
func (e Ends) turned() Ends { return Ends{e.Remote, e.Local} }

// Read reads host.jsonl. Damaged lines are left out and counted in a warning;
// the error wraps ErrFormat if nothing can be used. Memory is bounded whatever
// the input holds: of very long recordings neighbouring samples are left out.
func Read(r io.Reader) (*Samples, error) {
	s := &Samples{Connections: map[Ends]*Connection{}}
	in := bufio.NewReaderSize(r, 64<<10)
	bad, first := 0, true
	var cut error
	for lines, read := 0, 0; ; lines++ {
		if lines == maxLines || read >= maxBytes {
			cut = fmt.Errorf("what follows %d lines, or %d MB, is not read", maxLines, maxBytes>>20)
			break
		}
		b, n, long, err := readLine(in, maxBytes-read)
		read += n
		if len(b) > 0 || long {
			var l Line
			switch {
			case long || json.Unmarshal(b, &l) != nil || !sane(&l):
				if first {
					return nil, fmt.Errorf("%w: the first line is not the start of a recording", ErrFormat)
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
	if len(s.Points) == 0 {
		if cut != nil {
			return nil, fmt.Errorf("%w: reading them: %w", ErrFormat, cut)
		}
		return nil, fmt.Errorf("%w: no sample is complete", ErrFormat)
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

// readLine returns a line without its end, and how many bytes were read for it; long says that it was longer than
// any that is written, and left out. It reads no more than most bytes, and a buffer.
func readLine(in *bufio.Reader, most int) (b []byte, n int, long bool, err error) {
	for {
		part, err := in.ReadSlice('\n')
		n += len(part)
		if len(b)+len(part) > maxLine {
			b, long = nil, true
		} else if !long {
			b = append(b, part...)
		}
		if err == bufio.ErrBufferFull && n >= most {
			return nil, n, true, nil
		}
		if err != bufio.ErrBufferFull {
			return bytes.TrimRight(b, "\r\n"), n, long, err
		}
	}
}

// sane refuses numbers that no kernel gives, which sums could overflow with.
func sane(l *Line) bool {
	for _, v := range []int64{l.MonoNS, l.WallNS, l.SinceNS, l.CostNS, l.IntervalNS, l.Unseen, int64(l.Unsure)} {
		if v < 0 || v > 1<<62 {
			return false
		}
	}
	for _, v := range []*int64{l.Periods, l.ThrottledPeriods, l.ThrottledNS, l.LocalNS, l.AncestorPeriods, l.AncestorNS, l.UsageNS, l.UserNS, l.SystemNS,
		l.RunNS, l.RunDelayNS, l.RSSBytes, l.MinorFaults, l.MajorFaults, l.Retransmitted, l.MemoryBytes, l.InactiveFileBytes, l.OOMKills, l.StealNS, l.MachineNS, l.PressureNS} {
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
	switch l.Held {
	case "", HeldStopped, HeldTraced, HeldFrozen:
	default:
		return false
	}
	for _, v := range l.Waited {
		if min(v[0], v[1], v[2]) < 0 || max(v[1], v[2]) > maxCounter {
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
	s.PID, s.IntervalNS, s.Facts, s.States = l.PID, l.IntervalNS, l.Facts, l.States
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
	l.Waited = l.Waited[:min(len(l.Waited), maxWaited)]
	l.Levels = l.Levels[:min(len(l.Levels), maxLevels)]
	for i := range l.Levels {
		l.Levels[i].Group = clip(l.Levels[i].Group)
	}
	switch l.Kind {
	case KindSample:
		if n := len(s.Points); n > 0 && l.MonoNS <= s.Points[n-1].MonoNS {
			return l.MonoNS == s.Points[n-1].MonoNS // time does not go back
		}
		s.Points = append(s.Points, l.Sample)
		if len(s.Points) == maxPoints {
			s.Points = thin(s.Points)
		}
	case KindSecond:
		s.Seconds = append(s.Seconds, l.Sample)
		if len(s.Seconds) == maxSeconds*2 {
			s.Seconds = thin(s.Seconds)
		}
	case KindSockets:
		return s.addSockets(l)
	case KindTrace:
		s.Traced = &l.Sample
	case KindEnd:
		s.CostNS = l.CostNS
		for _, w := range l.Warnings[:min(len(l.Warnings), 50)] {
			s.Warnings = append(s.Warnings, bundle.Warning{Code: clip(w.Code), Text: clip(w.Text)})
		}
	}
	return true
}

// ends reads a socket's addresses.
func (v *Socket) ends() (Ends, bool) {
	local, err1 := netip.ParseAddrPort(v.Local)
	remote, err2 := netip.ParseAddrPort(v.Remote)
	return Ends{local, remote}, err1 == nil && err2 == nil
}

func (s *Samples) addSockets(l *Line) bool {
	first := s.Looks == 0
	s.Looks++
	s.addItself(l)
	s.Most = max(s.Most, min(l.Count, 1<<30))
	ok := true
	for i := range l.Sockets {
		v := &l.Sockets[i]
		key, valid := v.ends()
		if !valid {
			ok = false
			continue
		}
		c := s.Connections[key]
		if c == nil {
			if len(s.Connections) >= maxConnections {
				continue
			}
			c = &Connection{Peer: v.Peer}
			if first { // what it had before is not of this recording
				c.Last = *v
			}
			s.Connections[key] = c
		}
		if v.Retransmitted < c.Last.Retransmitted || v.OutOfOrder < c.Last.OutOfOrder || v.Needless < c.Last.Needless {
			c.Last = Socket{} // another connection of the same ends
		}
		again, order, needless := v.Retransmitted-c.Last.Retransmitted, v.OutOfOrder-c.Last.OutOfOrder, v.Needless-c.Last.Needless
		v.State = clip(v.State)
		c.Last = *v
		c.Retransmitted += again
		c.OutOfOrder += order
		if (again > 0 || order > 0) && len(s.Events) < maxEvents {
			s.Events = append(s.Events, Event{l.SinceNS, l.MonoNS, key, v.Peer, again, order, 0})
		}
		c.Needless += s.clear(key, needless)
	}
	return ok
}

// addItself takes note of sockets that lead to the process itself. Recordings that do not count them list all sockets twice: those
// that are not in both lists were opened meanwhile, as others may have been.
func (s *Samples) addItself(l *Line) {
	it := &s.Itself
	if l.Own != nil {
		it.Own, it.Unsure = max(it.Own, *l.Own), min(it.Unsure+l.Unsure, maxConnections)
	} else if l.All {
		listed := make(map[Ends]bool)
		for i := range l.Sockets {
			if ends, valid := l.Sockets[i].ends(); !valid {
				it.Unsure++
			} else if !l.Sockets[i].Peer {
				listed[ends] = true
			}
		}
		own := 0
		for ends := range listed {
			if listed[ends.turned()] {
				own++
			}
			if it.listed != nil && !it.listed[ends] {
				it.Unsure++
			}
		}
		it.Own = max(it.Own, own)
		if it.listed == nil {
			it.listed = listed
		}
	}
	if l.All || l.Own != nil {
		it.First = cmp.Or(it.First, l.MonoNS)
		it.Last = l.MonoNS
	}
}

// clear takes what had been sent again needlessly out of the connection's last
// events: the other end says so a round trip later. It returns how many there were.
func (s *Samples) clear(conn Ends, needless int64) (cleared int64) {
	for i := len(s.Events) - 1; i >= 0 && needless > 0; i-- {
		if e := &s.Events[i]; e.Conn == conn {
			n := min(needless, e.Retransmitted)
			e.Retransmitted, e.Needless = e.Retransmitted-n, e.Needless+n
			needless, cleared = needless-n, cleared+n
		}
	}
	return cleared
}
