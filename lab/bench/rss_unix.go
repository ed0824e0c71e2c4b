//go:build unix

package main

import (
	"os"
	"runtime"
	"syscall"
)

// maxRSS returns the peak memory of an ended process and its children, in kB.
func maxRSS(st *os.ProcessState) int64 {
	u, ok := st.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	kb := int64(u.Maxrss)
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		kb /= 1024 // bytes there
	}
	return kb
}
