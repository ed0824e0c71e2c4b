package cgroup

import (
	"bytes"
	"errors"
	"iter"
	"math"
	"strconv"
	"time"
)

// lines yields the lines of a file without their ends.
func lines(b []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for line := range bytes.Lines(b) {
			if !yield(bytes.TrimSuffix(line, []byte("\n"))) {
				return
			}
		}
	}
}

func firstLine(b []byte) []byte {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	return line
}

// keyValues yields the "key value" lines of a flat keyed file. It skips lines in another form and negative values, and keys alias b.
func keyValues(b []byte) iter.Seq2[[]byte, int64] {
	return func(yield func([]byte, int64) bool) {
		for line := range lines(b) {
			key, value, _ := bytes.Cut(line, []byte(" "))
			if n, ok := parseCount(value); ok && n >= 0 && len(key) > 0 && !yield(key, n) {
				return
			}
		}
	}
}

var errFormat = errors.New("not in the kernel's format")

// parseInt reads a decimal number, without allocating if it is one; false for other text and for what does not fit.
func parseInt(b []byte) (int64, bool) {
	if len(b) == 0 || b[0] == '+' {
		return 0, false // of an absent file, or not of the kernel
	}
	n, err := strconv.ParseInt(string(b), 10, 64)
	return n, err == nil
}

// parseCount is parseInt for the kernel's unsigned 64-bit counters: what does not fit a signed number becomes its maximum (v1 writes 2^64-1 for "no
// limit" in some kernels).
func parseCount(b []byte) (int64, bool) {
	if n, err := strconv.ParseUint(string(b), 10, 64); err == nil {
		return int64(min(n, math.MaxInt64)), true
	}
	return parseInt(b)
}

// micros converts microseconds; an overflow gives the maximum.
func micros(us int64) time.Duration {
	if us > math.MaxInt64/1000 {
		return math.MaxInt64
	}
	return time.Duration(us) * time.Microsecond
}

// parseCPUMax reads v2's cpu.max: "QUOTA PERIOD" or "max PERIOD" in
// microseconds (cgroup-v2.rst). quota is 0 when there is no limit.
func parseCPUMax(b []byte) (quota, period time.Duration, err error) {
	line := firstLine(b)
	q, p, ok := bytes.Cut(line, []byte(" "))
	if !ok {
		return 0, 0, errFormat
	}
	us, ok := parseInt(p)
	if !ok || us <= 0 {
		return 0, 0, errFormat
	}
	period = micros(us)
	if string(q) == "max" {
		return 0, period, nil
	}
	us, ok = parseInt(q)
	if !ok || us <= 0 {
		return 0, 0, errFormat
	}
	return micros(us), period, nil
}

// parseQuota reads v1's cpu.cfs_quota_us: microseconds, -1 for no limit (sched-bwc.rst). It returns 0 without a limit.
func parseQuota(b []byte) (time.Duration, error) {
	us, err := parseNumber(b)
	switch {
	case err != nil:
		return 0, err
	case us < 0:
		return 0, nil
	case us == 0:
		return 0, errFormat
	}
	return micros(us), nil
}

// parsePeriod reads v1's cpu.cfs_period_us: microseconds, above 0.
func parsePeriod(b []byte) (time.Duration, error) {
	us, err := parseNumber(b)
	if err != nil {
		return 0, err
	}
	if us <= 0 {
		return 0, errFormat
	}
	return micros(us), nil
}

// parseNumber reads a file that holds one number, on its first line.
func parseNumber(b []byte) (int64, error) {
	line := firstLine(b)
	n, ok := parseInt(line)
	if !ok {
		return 0, errFormat
	}
	return n, nil
}

// noLimit is the value from which on a v1 memory limit means none: the kernel
// shows no limit as the largest page-aligned signed number, which depends on the
// page size. No machine has 4 EiB.
const noLimit = 1 << 62

// parseMemory reads a memory limit of v1 (bytes) or v2 (bytes or "max"). limited is false without a limit.
func parseMemory(b []byte) (bytes int64, limited bool, err error) {
	line := firstLine(b)
	if string(line) == "max" {
		return 0, false, nil
	}
	n, ok := parseCount(line)
	if !ok {
		return 0, false, errFormat
	}
	if n < 0 || n >= noLimit {
		return 0, false, nil // v1 accepts -1, and some container layers show it
	}
	return n, true, nil
}

// cpusText formats a number of CPUs for a reason.
func cpusText(cpus float64) string {
	return strconv.FormatFloat(cpus, 'g', 4, 64)
}
