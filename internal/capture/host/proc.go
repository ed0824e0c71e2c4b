package host

import (
	"bytes"
	"strconv"
)

// parseSchedstat reads the first two of schedstat's three numbers.
func parseSchedstat(b []byte) (v [2]int64, ok bool) {
	i := 0
	for f := range bytes.FieldsSeq(b) {
		if v[i], ok = parseNumber(f); !ok {
			return v, false
		}
		if i++; i == len(v) {
			return v, true
		}
	}
	return v, false
}

// parseNumber reads a decimal number. The text is short, so that it needs no memory of its own.
func parseNumber(b []byte) (int64, bool) {
	n, err := strconv.ParseUint(string(b), 10, 63)
	return int64(n), err == nil
}

// A procStat is what is used of /proc/PID/stat (proc_pid_stat(5)).
type procStat struct {
	state                    byte
	minorFaults, majorFaults int64
	userTicks, systemTicks   int64 // ticks of 10 ms: USER_HZ is 100 on every architecture that Go runs on
	threads                  int64
	rssPages                 int64 // pages
}

// parseStat reads /proc/PID/stat. The command's name, in parentheses, may hold
// anything, parentheses and line ends too.
func parseStat(b []byte) (s procStat, ok bool) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return s, false
	}
	field := 2 // as numbered in the manual: the state is the third
	for f := range bytes.FieldsSeq(b[i+1:]) {
		field++
		target := s.target(field)
		if field == 3 && len(f) == 1 {
			s.state = f[0]
		}
		if target == nil {
			continue
		}
		n, ok := parseNumber(f)
		if !ok || n > 1<<50 {
			return s, false
		}
		*target = n
		if field == 24 {
			return s, s.state != 0
		}
	}
	return s, false
}

// target is where a field of the file goes, nil if it is not used.
func (s *procStat) target(n int) *int64 {
	switch n {
	case 10:
		return &s.minorFaults
	case 12:
		return &s.majorFaults
	case 14:
		return &s.userTicks
	case 15:
		return &s.systemTicks
	case 20:
		return &s.threads
	case 24:
		return &s.rssPages
	}
	return nil
}

// tickNS is a tick of /proc/PID/stat in nanoseconds.
const tickNS = 10_000_000

// parseRetransmitted reads the segments that a network namespace has sent again
// from its net/snmp: two lines with the same heading, names and values.
func parseRetransmitted(b []byte) (int64, bool) {
	column := -1
	for line := range bytes.Lines(b) {
		if !bytes.HasPrefix(line, []byte("Tcp: ")) {
			continue
		}
		i := 0
		for f := range bytes.FieldsSeq(line) {
			switch {
			case column < 0 && string(f) == "RetransSegs":
				column = i
			case column == i:
				return parseNumber(f)
			}
			i++
		}
	}
	return 0, false
}

// parseMachine reads, from /proc/stat, how much CPU time all processes and interrupts
// of the machine had, and for how long the hypervisor ran something else while its
// CPUs wanted to run, in ns.
func parseMachine(b []byte) (machine, steal int64, ok bool) {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	f := bytes.Fields(line)
	if len(f) < 9 || string(f[0]) != "cpu" {
		return 0, 0, false
	}
	for i, text := range f[1:9] {
		n, ok := parseNumber(text)
		if !ok || n > 1<<40 {
			return 0, 0, false
		}
		switch i {
		case 3, 4: // idle, or nothing to do but wait for a disk
		case 7:
			steal = n * tickNS
		default:
			machine += n * tickNS
		}
	}
	return machine, steal, true
}

// parsePressure reads, from /proc/pressure/cpu, for how long anybody waited for a
// CPU that another had, in ns.
func parsePressure(b []byte) (int64, bool) {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	_, text, ok := bytes.Cut(line, []byte("total="))
	if !ok || !bytes.HasPrefix(line, []byte("some ")) {
		return 0, false
	}
	us, ok := parseNumber(bytes.TrimSpace(text))
	if !ok || us > 1<<50 {
		return 0, false
	}
	return us * 1000, true
}
