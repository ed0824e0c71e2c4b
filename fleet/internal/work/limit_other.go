//go:build !linux

package work

// LimitProcess sets no limit: only Linux counts all memory towards RLIMIT_DATA. The verb still bounds its own memory.
func LimitProcess() error { return nil }
