package cli

import (
	"runtime/debug"
	"sync"
	"syscall"
)

// hugeHeap is how much of the heap's address space is in huge pages: more than most traces need. It reserves no memory.
const hugeHeap = 384 << 20

// useHugePages advises the kernel to use huge pages for the growing heap, since page faults took up to a sixth of the CPU:
// 95,000 for a trace of 71 MB, of which 6,000 remain. The runtime has no switch for it. The advice persists when memory is
// released, so a slice that is never written to covers the addresses. A probe asks the kernel first whether it has the address
// space.
var useHugePages = sync.OnceFunc(func() {
	const hugePage = 14 // MADV_HUGEPAGE
	probe, err := syscall.Mmap(-1, 0, hugeHeap, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil || syscall.Munmap(probe) != nil {
		return
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // else the place starts a collection before it is dropped
	if place := make([]byte, hugeHeap); syscall.Madvise(place, hugePage) == nil {
		debug.FreeOSMemory()
	}
})
