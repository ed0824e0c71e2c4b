package host

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/whylate/whylate/internal/capture/bundle"
)

// Bounds on the memory of a reader, for any input.
const (
	maxLine        = 1 << 20
	maxLines       = 1 << 18 // more than an hour of samples; blank lines count
	maxBytes       = 64 << 20
	maxPoints      = 1 << 17
	maxConnections = 1 << 14
	maxEvents      = 1 << 14
	maxText        = 300
	maxWaited      = 256     // threads in a sample
	maxLevels      = 32      // cgroups in a line of KindSecond
	maxCounter     = 1 << 60 // 36 years in ns
)

// ErrFormat is wrapped by errors about input without host samples.
var ErrFormat = errors.New("no host samples")

// Samples is the content of a host.jsonl.
type Samples struct {
	PID        int
	IntervalNS int64
	Facts      *bundle.Host
	Warnings   []bundle.Warning
	CostNS     int64

	Points         []Sample // lines of KindSample
	Seconds        []Sample // lines of KindSecond
	Connections    map[Ends]*Connection
	Events         []Event
	MaxConnections int     // the largest number of sockets in one poll
	SocketPolls    int     // lines of KindSockets
	TraceRequest   *Sample // the time of the request for the trace; nil if unknown
	HasStates      bool    // the samples have HaltReason
	// ListenPorts has the TCP ports at which the process accepts connections; nil if they were not recorded.
	ListenPorts     map[uint16]bool
	SelfConnections SelfConnections
}

// A Connection sums up the reports about one socket.
type Connection struct {
	Peer                      bool
	Last                      Socket // the last report
	Retransmitted, OutOfOrder int64  // since the first poll, or since the connection was opened
	Spurious                  int64  // those of Retransmitted that the other end had already received
}

// An Event reports segments that a connection retransmitted, or received out of order, between two
// polls.
type Event struct {
	PreviousPoll, Poll        int64
	Ends                      Ends
	Peer                      bool
	Retransmitted, OutOfOrder int64
	Spurious                  int64 // retransmitted although the other end had them; not counted in Retransmitted
}

// Ends are the two ends of a connection.
type Ends struct{ Local, Remote netip.AddrPort }

// reversed returns the ends in the order of the other side.
func (e Ends) reversed() Ends { return Ends{e.Remote, e.Local} }

// Read reads host.jsonl. It skips damaged lines and counts them in a warning. The error wraps
// ErrFormat if the input has no usable sample. Memory is bounded for any input: of a very long
// recording, Read drops every second sample.
func Read(r io.Reader) (*Samples, error) {
	s := &Samples{Connections: map[Ends]*Connection{}}
	input := bufio.NewReaderSize(r, 64<<10)
	damaged, first := 0, true
	var stopErr error
	for lines, bytesRead := 0, 0; ; lines++ {
		if lines == maxLines || bytesRead >= maxBytes {
			stopErr = fmt.Errorf("what follows %d lines, or %d MB, is not read", maxLines, maxBytes>>20)
			break
		}
		b, n, tooLong, err := readLine(input, maxBytes-bytesRead)
		bytesRead += n
		if len(b) > 0 || tooLong {
			var l Line
			switch {
			case tooLong || json.Unmarshal(b, &l) != nil || !isPlausible(&l):
				if first {
					return nil, fmt.Errorf("%w: the first line is not the start of a recording", ErrFormat)
				}
				damaged++
			case first:
				if err := s.readStart(&l); err != nil {
					return nil, err
				}
			default:
				if !s.add(&l) {
					damaged++
				}
			}
			first = false
		}
		if err != nil {
			if err != io.EOF {
				stopErr = err
			}
			break
		}
	}
	if len(s.Points) == 0 {
		if stopErr != nil {
			return nil, fmt.Errorf("%w: reading them: %w", ErrFormat, stopErr)
		}
		return nil, fmt.Errorf("%w: no sample is complete", ErrFormat)
	}
	if damaged > 0 {
		s.warn(fmt.Sprintf("%d damaged lines of the host samples were left out", damaged))
	}
	if stopErr != nil {
		s.warn("the host samples end early: " + clip(stopErr.Error()))
	}
	return s, nil
}

func (s *Samples) warn(text string) {
	s.Warnings = append(s.Warnings, bundle.Warning{Code: WarnHost, Text: text})
}

// readLine returns a line without its line end, and the number of bytes read. Of a line longer than maxLine, b is nil and tooLong is true. At the end
// of the input, err is io.EOF, and b may be a line without line end. readLine reads at most limit bytes and one buffer.
func readLine(in *bufio.Reader, limit int) (b []byte, n int, tooLong bool, err error) {
	for {
		chunk, err := in.ReadSlice('\n')
		n += len(chunk)
		if len(b)+len(chunk) > maxLine {
			b, tooLong = nil, true
		} else if !tooLong {
			b = append(b, chunk...)
		}
		if err == bufio.ErrBufferFull && n >= limit {
			return nil, n, true, nil
		}
		if err != bufio.ErrBufferFull {
			return bytes.TrimRight(b, "\r\n"), n, tooLong, err
		}
	}
}

// isPlausible reports whether the line's numbers are in the range that a kernel produces, so that sums
// cannot overflow.
func isPlausible(l *Line) bool {
	for _, v := range []int64{l.MonoNS, l.WallNS, l.SinceNS, l.CostNS, l.IntervalNS, l.UnattributedRetransmits, int64(l.UnsureConnections)} {
		if v < 0 || v > 1<<62 {
			return false
		}
	}
	for _, v := range []*int64{l.Periods, l.ThrottledPeriods, l.ThrottledNS, l.LocalThrottledNS, l.AncestorThrottledPeriods, l.AncestorThrottledNS, l.UsageNS, l.UserNS, l.SystemNS,
		l.RunNS, l.RunDelayNS, l.RSSBytes, l.MinorFaults, l.MajorFaults, l.Retransmitted, l.MemoryBytes, l.InactiveFileBytes, l.OOMKills, l.StealNS, l.MachineCPUNS, l.PressureNS} {
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
		if min(v.Retransmitted, v.Spurious, v.OutOfOrder, v.RTTNS, v.MinRTTNS) < 0 || max(v.Retransmitted, v.Spurious, v.OutOfOrder, v.RTTNS, v.MinRTTNS) > maxCounter {
			return false
		}
	}
	switch l.HaltReason {
	case "", HaltedBySignal, HaltedByDebugger, HaltedByFreezer:
	default:
		return false
	}
	for _, v := range l.ThreadWaits {
		if min(v[0], v[1], v[2]) < 0 || max(v[1], v[2]) > maxCounter {
			return false
		}
	}
	return l.MonoNS > 0 || l.WallNS > 0
}

// readStart copies the content of the first line into s, with clipped texts. It fails if the line has another kind or schema.
func (s *Samples) readStart(l *Line) error {
	switch {
	case l.Kind != KindStart:
		return fmt.Errorf("%w: the first line is of kind %q, not %q", ErrFormat, clip(l.Kind), KindStart)
	case l.Schema == Schema:
	case strings.HasPrefix(l.Schema, "whylate.host/"):
		return fmt.Errorf("%w of a version known here (%q): use a newer whylate", ErrFormat, clip(l.Schema))
	default:
		return fmt.Errorf("%w: their schema is %q, want %q", ErrFormat, clip(l.Schema), Schema)
	}
	s.PID, s.IntervalNS, s.Facts, s.HasStates = l.PID, l.IntervalNS, l.Facts, l.HasStates
	if f := s.Facts; f != nil {
		for _, t := range []*string{&f.OS, &f.Arch, &f.Kernel, &f.QuotaFile, &f.MemoryFile, &f.CgroupVersion, &f.Group, &f.GOMAXPROCS, &f.GOGC, &f.GOMEMLIMIT, &f.Go} {
			*t = clip(*t)
		}
	}
	return nil
}

// clip returns a text of at most maxText bytes, with dots if it was longer.
func clip(s string) string {
	if len(s) > maxText {
		return strings.ToValidUTF8(s[:maxText], "") + "..."
	}
	return s
}

// add adds a line, and clips its texts and lists. It reports false for a line whose time is before that of an earlier one, and for one with an
// invalid address, of which it adds the rest.
func (s *Samples) add(l *Line) bool {
	l.ThreadWaits = l.ThreadWaits[:min(len(l.ThreadWaits), maxWaited)]
	l.Levels = l.Levels[:min(len(l.Levels), maxLevels)]
	for i := range l.Levels {
		l.Levels[i].GroupPath = clip(l.Levels[i].GroupPath)
	}
	switch l.Kind {
	case KindSample:
		if n := len(s.Points); n > 0 && l.MonoNS <= s.Points[n-1].MonoNS {
			return l.MonoNS == s.Points[n-1].MonoNS // time never decreases
		}
		s.Points = append(s.Points, l.Sample)
		if len(s.Points) == maxPoints {
			s.Points = dropEverySecond(s.Points)
		}
	case KindSecond:
		s.Seconds = append(s.Seconds, l.Sample)
		if len(s.Seconds) == maxSeconds*2 {
			s.Seconds = dropEverySecond(s.Seconds)
		}
	case KindSockets:
		return s.addSockets(l)
	case KindTrace:
		s.TraceRequest = &l.Sample
	case KindEnd:
		s.CostNS = l.CostNS
		for _, w := range l.Warnings[:min(len(l.Warnings), 50)] {
			s.Warnings = append(s.Warnings, bundle.Warning{Code: clip(w.Code), Text: clip(w.Text)})
		}
	}
	return true
}

// parseEnds returns both addresses of the socket; false if one is not valid.
func (v *Socket) parseEnds() (Ends, bool) {
	local, err1 := netip.ParseAddrPort(v.Local)
	remote, err2 := netip.ParseAddrPort(v.Remote)
	return Ends{local, remote}, err1 == nil && err2 == nil
}

// addSockets updates the connections and appends an event for each connection that changed. It skips sockets with an invalid address and then reports
// false.
func (s *Samples) addSockets(l *Line) bool {
	first := s.SocketPolls == 0
	s.SocketPolls++
	s.addSelfConnections(l)
	if l.SelfSockets != nil && l.ListsAll {
		s.addListenPorts(l.ListenAddrs)
	}
	s.MaxConnections = max(s.MaxConnections, min(l.SocketCount, 1<<30))
	ok := true
	for i := range l.Sockets {
		socket := &l.Sockets[i]
		ends, valid := socket.parseEnds()
		if !valid {
			ok = false
			continue
		}
		c := s.Connections[ends]
		if c == nil {
			if len(s.Connections) >= maxConnections {
				continue
			}
			c = &Connection{Peer: socket.Peer}
			if first { // segments from before the recording do not count
				c.Last = *socket
			}
			s.Connections[ends] = c
		}
		if socket.Retransmitted < c.Last.Retransmitted || socket.OutOfOrder < c.Last.OutOfOrder || socket.Spurious < c.Last.Spurious {
			c.Last = Socket{} // a new connection between the same ends
		}
		retransmitted, outOfOrder, spurious := socket.Retransmitted-c.Last.Retransmitted, socket.OutOfOrder-c.Last.OutOfOrder, socket.Spurious-c.Last.Spurious
		socket.State = clip(socket.State)
		c.Last = *socket
		c.Retransmitted += retransmitted
		c.OutOfOrder += outOfOrder
		if (retransmitted > 0 || outOfOrder > 0) && len(s.Events) < maxEvents {
			s.Events = append(s.Events, Event{l.SinceNS, l.MonoNS, ends, socket.Peer, retransmitted, outOfOrder, 0})
		}
		c.Spurious += s.markSpurious(ends, spurious)
	}
	return ok
}

// addListenPorts adds the ports of addresses at which the process accepts connections.
func (s *Samples) addListenPorts(addrs []string) {
	if s.ListenPorts == nil {
		s.ListenPorts = map[uint16]bool{}
	}
	for _, text := range addrs[:min(len(addrs), maxListed)] {
		if a, err := netip.ParseAddrPort(text); err == nil {
			s.ListenPorts[a.Port()] = true
		}
	}
}

// markSpurious moves up to the given number of retransmissions of a connection from Retransmitted to Spurious in its last events, because the other
// end reports them as spurious a round trip later. It returns how many it moved.
func (s *Samples) markSpurious(conn Ends, spurious int64) (marked int64) {
	for i := len(s.Events) - 1; i >= 0 && spurious > 0; i-- {
		if e := &s.Events[i]; e.Ends == conn {
			n := min(spurious, e.Retransmitted)
			e.Retransmitted, e.Spurious = e.Retransmitted-n, e.Spurious+n
			spurious, marked = spurious-n, marked+n
		}
	}
	return marked
}
