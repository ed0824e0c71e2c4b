package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// membership is one line of /proc/PID/cgroup: the group that the process is
// in, in one hierarchy.
type membership struct {
	// id is 0 for the v2 hierarchy.
	id          int
	controllers []string // empty for v2; a named v1 hierarchy has "name=..."
	path        string   // always begins with "/"
	deleted     bool     // the group was removed while the process was in it
}

// parseMembership reads /proc/PID/cgroup: "id:controller,controller:path" a line (cgroups(7)). The path is not escaped there and may hold colons. bad
// is the number of lines in another form, which are skipped.
func parseMembership(b []byte) (ms []membership, bad int) {
	for line := range lines(b) {
		if len(line) == 0 {
			continue
		}
		id, rest, ok := bytes.Cut(line, []byte(":"))
		ctrl, p, ok2 := bytes.Cut(rest, []byte(":"))
		n, err := strconv.Atoi(string(id))
		if !ok || !ok2 || err != nil || n < 0 || len(p) == 0 || p[0] != '/' || bytes.IndexByte(p, 0) >= 0 {
			bad++
			continue
		}
		m := membership{id: n, path: string(p)}
		// The kernel adds this to the path of a removed v2 group.
		if s, ok := strings.CutSuffix(m.path, " (deleted)"); ok && s != "" {
			m.path, m.deleted = s, true
		}
		if len(ctrl) > 0 {
			m.controllers = strings.Split(string(ctrl), ",")
		}
		ms = append(ms, m)
	}
	return ms, bad
}

// mount is one line of /proc/PID/mountinfo that mounts a cgroup hierarchy.
type mount struct {
	version     Version
	root        string   // group that the mount point shows
	point       string   // where, in the mount namespace
	controllers []string // v1: super options, which hold the controllers
}

var errEscape = errors.New("invalid escape in path")

// parseMounts reads /proc/PID/mountinfo (proc_pid_mountinfo(5)) and returns the cgroup mounts, in order. Other lines are skipped; bad is the number
// of lines that are not in the format.
func parseMounts(b []byte) (ms []mount, bad int) {
	for line := range lines(b) {
		if len(line) == 0 {
			continue
		}
		m, isCgroup, err := parseMount(line)
		switch {
		case err != nil:
			bad++
		case isCgroup:
			ms = append(ms, m)
		}
	}
	return ms, bad
}

// parseMount parses a line of mountinfo. isCgroup is false, without an error, for a mount
// of another file system or of a removed group.
func parseMount(line []byte) (m mount, isCgroup bool, err error) {
	// "36 35 98:0 /root /point options optional... - type source super"
	head, tail, ok := bytes.Cut(line, []byte(" - "))
	if !ok {
		return m, false, errors.New("no separator")
	}
	t := bytes.Split(tail, []byte(" "))
	if len(t) < 3 {
		return m, false, errors.New("too few fields after the separator")
	}
	switch string(t[0]) {
	case "cgroup2":
		m.version = V2
	case "cgroup":
		m.version = V1
		m.controllers = strings.Split(string(t[2]), ",")
	default:
		return m, false, nil
	}
	h := bytes.Split(head, []byte(" "))
	if len(h) < 6 {
		return m, false, errors.New("too few fields before the separator")
	}
	if m.root, err = unescape(h[3]); err != nil {
		return m, false, err
	}
	if m.point, err = unescape(h[4]); err != nil {
		return m, false, err
	}
	// A bind mount of a removed group shows as "/path//deleted".
	if strings.HasSuffix(m.root, "//deleted") {
		return m, false, nil
	}
	if !strings.HasPrefix(m.root, "/") || !strings.HasPrefix(m.point, "/") {
		return m, false, errors.New("path is not absolute")
	}
	return m, true, nil
}

// unescape turns \040 and the like (blank, tab, newline, backslash, #) back
// into bytes.
func unescape(b []byte) (string, error) {
	if bytes.IndexByte(b, 0) >= 0 {
		return "", errEscape
	}
	if bytes.IndexByte(b, '\\') < 0 {
		return string(b), nil
	}
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' {
			out = append(out, b[i])
			continue
		}
		if i+3 >= len(b) {
			return "", errEscape
		}
		v, err := strconv.ParseUint(string(b[i+1:i+4]), 8, 8)
		if err != nil || v == 0 {
			return "", errEscape
		}
		out = append(out, byte(v))
		i += 3
	}
	return string(out), nil
}

// maxCPUs bounds a CPU number: the kernel's NR_CPUS is at most 8192 today.
const maxCPUs = 1 << 20

// parseCPUList returns the number of CPUs in a list such as "0-3,8,10-11" (the format of cpuset.cpus, Cpus_allowed_list and
// /sys/devices/system/cpu/online). An empty list is none.
func parseCPUList(s string) (int, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return 0, nil
	}
	type span struct{ lo, hi int }
	var spans []span
	for _, part := range strings.Split(s, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		a, err := parseCPU(lo)
		if err != nil {
			return 0, err
		}
		z := a
		if isRange {
			if z, err = parseCPU(hi); err != nil {
				return 0, err
			}
		}
		if z < a {
			return 0, fmt.Errorf("CPU range %q runs backwards", clip(part))
		}
		spans = append(spans, span{a, z})
	}
	slices.SortFunc(spans, func(a, b span) int { return a.lo - b.lo })
	n, next := 0, 0
	for _, sp := range spans {
		lo := max(sp.lo, next)
		if sp.hi >= lo {
			n += sp.hi - lo + 1
			next = sp.hi + 1
		}
	}
	return n, nil
}

// parseCPU parses a CPU number below maxCPUs.
func parseCPU(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n >= maxCPUs {
		return 0, fmt.Errorf("%q is not a CPU number", clip(s))
	}
	return int(n), nil
}

// statusField returns the value of a field in the content of /proc/PID/status; false if it
// has no such field.
func statusField(b []byte, name string) (string, bool) {
	for line := range lines(b) {
		k, v, ok := bytes.Cut(line, []byte(":"))
		if ok && string(k) == name {
			return strings.TrimSpace(string(v)), true
		}
	}
	return "", false
}

// meminfoTotal returns MemTotal of /proc/meminfo in bytes; false if there is none.
func meminfoTotal(b []byte) (int64, bool) {
	v, ok := statusField(b, "MemTotal")
	if !ok {
		return 0, false
	}
	kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(v, "kB")), 10, 64)
	if err != nil || kb <= 0 || kb > 1<<52 {
		return 0, false
	}
	return kb << 10, true
}

// clip returns a file's text as one line of printable characters: escaped as by strconv.Quote, without the final line end, and cut after 80 bytes,
// with dots.
func clip(s string) string {
	s = strings.TrimRight(s, "\n")
	const maxLength = 80
	quoted := strconv.Quote(s[:min(len(s), maxLength)])
	quoted = quoted[1 : len(quoted)-1]
	if len(s) > maxLength {
		quoted += "..."
	}
	return quoted
}
