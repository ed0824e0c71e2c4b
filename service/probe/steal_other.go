//go:build !linux

package probe

import "time"

// A stealReader reads nothing: other systems do not report stolen time.
type stealReader struct{}

func newStealReader() *stealReader                 { return nil }
func (s *stealReader) close()                      {}
func (s *stealReader) read() (time.Duration, bool) { return 0, false }
