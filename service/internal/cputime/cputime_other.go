//go:build !unix

package cputime

import "time"

// Process is not measurable here finely enough: Windows counts a process's
// CPU time in steps of 15.6 ms.
func Process() (time.Duration, bool) { return 0, false }

// Thread is not measurable here.
func Thread() (time.Duration, bool) { return 0, false }
