package probe

import (
	"bytes"
	"math"
	"strconv"
	"syscall"
	"time"
)

// A stealReader reads how long the hypervisor did not run this machine's CPUs although
// they were busy, summed over all of them.
type stealReader struct {
	fd  int
	buf [512]byte
}

// newStealReader opens /proc/stat; nil, which reads nothing, if that fails.
func newStealReader() *stealReader {
	fd, err := syscall.Open("/proc/stat", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return &stealReader{fd: fd}
}

func (s *stealReader) close() {
	if s != nil {
		syscall.Close(s.fd)
	}
}

// read returns the CPU time that the hypervisor took from the whole machine since boot;
// false if it is not known.
func (s *stealReader) read() (time.Duration, bool) {
	if s == nil {
		return 0, false
	}
	n, err := syscall.Pread(s.fd, s.buf[:], 0)
	if err != nil || n <= 0 {
		return 0, false
	}
	return parseSteal(s.buf[:n])
}

// parseSteal reads the eighth number of /proc/stat's first line, in hundredths of a second (proc_stat(5); USER_HZ is 100 on every architecture Go
// runs on). It is false for kernels before 2.6.11, which have fewer.
func parseSteal(b []byte) (time.Duration, bool) {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	numbers, ok := bytes.CutPrefix(line, []byte("cpu "))
	if !ok {
		return 0, false
	}
	i := 0
	for f := range bytes.FieldsSeq(numbers) {
		if i++; i == 8 {
			n, err := strconv.ParseUint(string(f), 10, 63)
			const unit = 10 * time.Millisecond
			return time.Duration(n) * unit, err == nil && n <= math.MaxInt64/uint64(unit)
		}
	}
	return 0, false
}
