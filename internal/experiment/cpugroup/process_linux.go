package cpugroup

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// A Process is the fields of /proc/PID/stat from the third one on, the state: the second, in parentheses, may hold anything.
type Process []string

// ReadProcess reads about a process; ok is false if there is none.
func ReadProcess(pid int) (p Process, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, false
	}
	p = strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	return p, len(p) >= 24-3+1
}

// State is a letter, such as Z for a process that has ended.
func (p Process) State() string { return p[0] }

// Field is a field by its number in proc_pid_stat(5), up to 24.
func (p Process) Field(field int) int64 {
	n, _ := strconv.ParseInt(p[field-3], 10, 64)
	return n
}
