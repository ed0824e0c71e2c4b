package cli

import (
	"runtime/debug"
	"sync"
	"syscall"
)

// hugeHeap is how much of the heap lies in huge pages: more than most traces need. It is room, not memory.
const hugeHeap = 384 << 20

// useHugePages asks the kernel for huge pages where the heap will grow, since page faults took up to a sixth of the CPU: 95,000 for a
// trace of 71 MB, of which 6,000 are left. The runtime has no switch for it. Memory that was asked for once stays advised when it
// is given back, so a slice that is never touched marks the place; the kernel says first whether it has the room.
var useHugePages = sync.OnceFunc(func() {
	const hugePage = 14 // MADV_HUGEPAGE
	probe, err := syscall.Mmap(-1, 0, hugeHeap, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil || syscall.Munmap(probe) != nil {
		return
	}
	if place := make([]byte, hugeHeap); syscall.Madvise(place, hugePage) == nil {
		debug.FreeOSMemory()
	}
})
