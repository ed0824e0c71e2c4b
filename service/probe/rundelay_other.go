//go:build !linux

package probe

import "time"

// No other system counts these.

type threads struct{}

func newThreads() *threads                                       { return nil }
func (t *threads) close()                                        {}
func (t *threads) runDelay() (sum time.Duration, n int, ok bool) { return 0, 0, false }

type stolen struct{}

func newStolen() *stolen                      { return nil }
func (s *stolen) close()                      {}
func (s *stolen) read() (time.Duration, bool) { return 0, false }
