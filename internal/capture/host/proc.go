package host

import (
	"bytes"
	"strconv"
)

// parseSchedstat reads the first two of schedstat's three numbers, in ns: the time on a CPU, and the time runnable without one. It is false for
// another form.
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

// parseNumber reads a decimal number. The text is short, so the conversion to a string does not
// allocate.
func parseNumber(b []byte) (int64, bool) {
	n, err := strconv.ParseUint(string(b), 10, 63)
	return int64(n), err == nil
}

// A procStat has the fields of /proc/PID/stat that a sample needs (proc_pid_stat(5)).
type procStat struct {
	state                    byte
	taskFlags                int64
	minorFaults, majorFaults int64
	userTicks, systemTicks   int64 // of 10 ms: USER_HZ is 100 on every architecture that Go supports
	threads                  int64
	rssPages                 int64 //
}

// exitingTask is PF_EXITING of the kernel's include/linux/sched.h. The flag is set before the task gives
// up its files, so a process whose connections were closed by its end has it, while its state says that
// it runs until it is a zombie.
const exitingTask = 0x4

// hasEnded reports whether the process has ended or is about to.
func (s *procStat) hasEnded() bool {
	return s.state == 'Z' || s.state == 'X' || s.taskFlags&exitingTask != 0
}

// parseStat reads /proc/PID/stat; false if a field that a sample needs is missing or implausible. The command's name, in parentheses, may contain any
// character, including parentheses and line ends.
func parseStat(b []byte) (s procStat, ok bool) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return s, false
	}
	field := 2 // numbered as in the manual, where the state is field 3
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

// target returns the variable for the n-th field of the file, from 1 as in the manual; nil if a sample does not need the field as a number.
func (s *procStat) target(n int) *int64 {
	switch n {
	case 9:
		return &s.taskFlags
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

const tickNS = 10_000_000

// parseRetransmitted reads, from net/snmp, the number of segments that a network namespace has retransmitted since it was created; false if the file
// does not have it. The file has two lines that begin with "Tcp:", one with names and one with values.
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

// parseMachine reads two sums since the boot from /proc/stat, in ns: the CPU time of all processes and interrupts of the machine, and the time during
// which the hypervisor ran something else although the machine's CPUs had work. It is false if one is missing.
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
		case 3, 4: // idle, iowait
		case 7:
			steal = n * tickNS
		default:
			machine += n * tickNS
		}
	}
	return machine, steal, true
}

// parsePressure reads, from /proc/pressure/cpu, for how long at least one process waited for a CPU since the boot, in ns. It is false for another
// form.
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
