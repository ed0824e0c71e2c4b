//go:build !linux

package work

// LimitProcess leaves memory to the verb's own bound: only Linux counts what RLIMIT_DATA bounds.
func LimitProcess() error { return nil }
