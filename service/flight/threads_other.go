//go:build !linux

package flight

// threads are not measured here.
type threads struct{}

func newThreads() *threads { return nil }

func (*threads) close() {}

func (*threads) sum() (run, delay int64, n int, ok bool) { return 0, 0, 0, false }
