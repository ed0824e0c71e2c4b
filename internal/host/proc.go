package host

import (
	"bytes"
	"strconv"
)

// parseSchedstat reads the first two of schedstat's three numbers.
func parseSchedstat(b []byte) (v [2]int64, ok bool) {
	for i := range v {
		n, rest, ok := number(b)
		if !ok {
			return v, false
		}
		v[i], b = n, rest
	}
	return v, true
}

// number reads a decimal number and skips the spaces around it.
func number(b []byte) (n int64, rest []byte, ok bool) {
	for len(b) > 0 && b[0] == ' ' {
		b = b[1:]
	}
	i := 0
	for ; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
		if n > (1<<63-1-9)/10 {
			return 0, nil, false
		}
		n = n*10 + int64(b[i]-'0')
	}
	return n, b[i:], i > 0
}

// A procStat is what is used of /proc/PID/stat (proc_pid_stat(5)).
type procStat struct {
	state        byte
	minor, major int64
	user, system int64 // ticks of 10 ms: USER_HZ is 100 on every architecture that Go runs on
	threads      int64
	start        int64 // ticks since the machine started
	rss          int64 // pages
}

// parseStat reads /proc/PID/stat. The command's name, in parentheses, may hold
// anything, parentheses and line ends too.
func parseStat(b []byte) (s procStat, ok bool) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return s, false
	}
	// Fields from the third on; the largest (rsslim) need not fit an int64.
	f := bytes.Fields(b[i+1:])
	if len(f) < 22 || len(f[0]) != 1 {
		return s, false
	}
	s.state = f[0][0]
	for _, v := range []struct {
		to    *int64
		field int // as numbered in the manual
	}{{&s.minor, 10}, {&s.major, 12}, {&s.user, 14}, {&s.system, 15}, {&s.threads, 20}, {&s.start, 22}, {&s.rss, 24}} {
		n, err := strconv.ParseInt(string(f[v.field-3]), 10, 64)
		if err != nil || n < 0 || n > 1<<50 {
			return s, false
		}
		*v.to = n
	}
	return s, true
}

// tickNS is a tick of /proc/PID/stat in nanoseconds.
const tickNS = 10_000_000

// parseRetransmitted reads the segments that a network namespace has sent again
// from its net/snmp: two lines with the same heading, names and values.
func parseRetransmitted(b []byte) (int64, bool) {
	var names [][]byte
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) == 0 || string(f[0]) != "Tcp:" {
			continue
		}
		if names == nil {
			names = f
			continue
		}
		for i, name := range names {
			if string(name) == "RetransSegs" && i < len(f) {
				n, err := strconv.ParseInt(string(f[i]), 10, 64)
				return n, err == nil && n >= 0
			}
		}
	}
	return 0, false
}

// parseSteal reads, from /proc/stat, for how long the hypervisor ran something
// else while this machine's CPUs wanted to run, in ns.
func parseSteal(b []byte) (int64, bool) {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	f := bytes.Fields(line)
	if len(f) < 9 || string(f[0]) != "cpu" {
		return 0, false
	}
	n, err := strconv.ParseInt(string(f[8]), 10, 64)
	if err != nil || n < 0 || n > 1<<40 {
		return 0, false
	}
	return n * tickNS, true
}
