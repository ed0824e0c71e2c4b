package cli

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestHugePages: the kernel has the advice to use huge pages for the addresses of the growing heap. It fails if the runtime
// removes the advice.
func TestHugePages(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage"); err != nil {
		t.Skip("a kernel without huge pages:", err)
	}
	useHugePages()
	data := must.Have(os.ReadFile("/proc/self/smaps"))(t)
	size, advised := 0, 0 // kB
	for line := range bytes.Lines(data) {
		if _, err := fmt.Sscanf(string(line), "Size: %d kB", &size); err == nil {
			continue
		}
		if flags, ok := bytes.CutPrefix(line, []byte("VmFlags:")); ok && bytes.Contains(flags, []byte(" hg")) {
			advised += size
		}
	}
	check.True(t, advised >= hugeHeap>>10*9/10, "huge pages were asked for in %d kB of %d", advised, hugeHeap>>10)
}
