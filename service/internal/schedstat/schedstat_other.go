//go:build !linux

package schedstat

import "time"

// A Reader is always nil: other systems do not have these counters.
type Reader struct{}

func New(int) *Reader { return nil }

func (*Reader) Close() {}

func (*Reader) Read() (run, delay time.Duration, n int, ok bool) { return 0, 0, 0, false }
