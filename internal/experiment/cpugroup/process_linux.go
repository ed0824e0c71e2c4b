package cpugroup

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// A Process has the fields of /proc/PID/stat from the third one, the state, on. The second field, in
// parentheses, may contain any character.
type Process []string

// ReadProcess reads the stat file of a process; ok is false if the process does not exist.
func ReadProcess(pid int) (p Process, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, false
	}
	p = strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	return p, len(p) >= 24-3+1
}

// State returns the state's letter, such as Z for a process that has ended.
func (p Process) State() string { return p[0] }

// Field returns a field by its number in proc_pid_stat(5), up to 24.
func (p Process) Field(field int) int64 {
	n, _ := strconv.ParseInt(p[field-3], 10, 64)
	return n
}
