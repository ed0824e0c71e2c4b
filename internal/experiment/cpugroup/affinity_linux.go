package cpugroup

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Pin restricts a thread, 0 for the calling one, to the given CPUs.
func Pin(tid int, cpus []int) error {
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	if err := unix.SchedSetaffinity(tid, &set); err != nil {
		return fmt.Errorf("pinning to the CPUs %v: %w", cpus, err)
	}
	return nil
}

// PinSelf restricts all threads of this process to the given CPUs. A new thread inherits the CPUs of
// its creator, so a second pass pins threads created during the first.
func PinSelf(cpus []int) error {
	for range 2 {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("pinning the generator: %w", err)
		}
		for _, t := range tasks {
			tid, _ := strconv.Atoi(t.Name())
			if err := Pin(tid, cpus); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
		}
	}
	return nil
}

// AllowedCPUs returns the numbers of the CPUs that the calling thread may run on, in ascending order; nil if unknown.
func AllowedCPUs() []int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil
	}
	var cpus []int
	for c := 0; len(cpus) < set.Count(); c++ {
		if set.IsSet(c) {
			cpus = append(cpus, c)
		}
	}
	return cpus
}
