package kernelprobe

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/capture/kernelevents"
)

// A symbol is a function of the kernel.
type symbol struct {
	address uint64
	name    string
}

// nameStacks returns the stacks, in the same order, with the names of functions instead of addresses. If the kernel does not show its symbols,
// isUnnamed is true and each stack is empty, so that the numbers of stacks stay.
func nameStacks(stacks [][]uint64) (named []kernelevents.Stack, isUnnamed bool) {
	if len(stacks) == 0 {
		return nil, false
	}
	var names map[uint64]string
	if f, err := os.Open("/proc/kallsyms"); err == nil {
		defer f.Close()
		names = resolve(f, stacks)
	}
	return namedStacks(names, stacks), len(names) == 0
}

// namedStacks returns the stacks with names, in the same order, without the innermost frames of the scheduler: each begins with the function that put
// the thread to sleep. Addresses without a name are left out.
func namedStacks(names map[uint64]string, stacks [][]uint64) []kernelevents.Stack {
	named := make([]kernelevents.Stack, len(stacks))
	for i, stack := range stacks {
		for _, address := range stack {
			if name := names[address]; name != "" && (len(named[i].Frames) > 0 || !isOfSwitch(name)) {
				named[i].Frames = append(named[i].Frames, name)
			}
		}
	}
	return named
}

// isOfSwitch reports whether a function is part of every stack: the program, the tracepoint and the scheduler.
func isOfSwitch(name string) bool {
	return strings.HasPrefix(name, "bpf_") || strings.HasPrefix(name, "__bpf_") || strings.HasPrefix(name, "__traceiter_") || strings.Contains(name, "__schedule") ||
		name == "schedule" || strings.HasPrefix(name, "__SCT__") || strings.HasPrefix(name, "schedule_preempt_disabled")
}

// resolve returns the names of the functions at the addresses in stacks, by address, from list (/proc/kallsyms). The list has no order, and all its
// addresses are 0 for a reader without CAP_SYSLOG: then the result is empty.
func resolve(list io.Reader, stacks [][]uint64) map[uint64]string {
	var addresses []uint64
	for _, s := range stacks {
		addresses = append(addresses, s...)
	}
	slices.Sort(addresses)
	addresses = slices.Compact(addresses)
	// best has, for each address, the last symbol between the address before and it.
	best := make([]symbol, len(addresses))
	scanner := bufio.NewScanner(list)
	for scanner.Scan() {
		line := scanner.Bytes()
		i := bytes.IndexByte(line, ' ')
		if i < 1 || i+3 >= len(line) || line[i+1]|0x20 != 't' && line[i+1]|0x20 != 'w' {
			continue
		}
		start, ok := parseHex(line[:i])
		if !ok || start == 0 {
			continue
		}
		if n, _ := slices.BinarySearch(addresses, start); n < len(addresses) && best[n].address <= start {
			name, _, _ := bytes.Cut(line[i+3:], []byte{'\t'})
			best[n] = symbol{start, string(name)}
		}
	}
	for i := 1; i < len(best); i++ {
		if best[i].address == 0 {
			best[i] = best[i-1]
		}
	}
	const largest = 1 << 20 // bytes of a function
	names := map[uint64]string{}
	for i, address := range addresses {
		if s := best[i]; s.address != 0 && address-s.address < largest {
			names[address] = s.name
		}
	}
	return names
}

// parseHex parses a hexadecimal number of at most 16 lower-case digits, without 0x. No digits are 0. It is false for other text.
func parseHex(digits []byte) (n uint64, ok bool) {
	for _, c := range digits {
		switch {
		case '0' <= c && c <= '9':
			n = n<<4 | uint64(c-'0')
		case 'a' <= c && c <= 'f':
			n = n<<4 | uint64(c-'a'+10)
		default:
			return 0, false
		}
	}
	return n, len(digits) <= 16
}
