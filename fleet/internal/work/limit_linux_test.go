package work

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestChildMemory: the kernel gives a child as much memory as docs/fleet.md promises for each worker, and no more.
func TestChildMemory(t *testing.T) {
	const isChild = "WHYLATE_LIMITED_CHILD"
	if os.Getenv(isChild) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestChildMemory$")
		cmd.Env = append(os.Environ(), isChild+"=1")
		out, err := cmd.CombinedOutput()
		must.True(t, err == nil, "%v\n%s", err, out)
		return
	}
	must.Do(t, LimitProcess())
	for gigabytes, allowed := range map[int]bool{1: true, 2: false} { // next to what the process has already
		data, err := syscall.Mmap(-1, 0, gigabytes<<30, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		check.True(t, (err == nil) == allowed, "%d GiB: %v", gigabytes, err)
		if err == nil {
			must.Do(t, syscall.Munmap(data))
		}
	}
}
