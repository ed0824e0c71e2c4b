//go:build !linux

package work

// Limit leaves memory to the verb's own bound: only Linux counts what RLIMIT_DATA bounds.
func Limit() error { return nil }
