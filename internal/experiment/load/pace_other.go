//go:build !linux

package load

import "time"

// sleepFor uses the runtime's timers.
func sleepFor(d time.Duration) { time.Sleep(d) }
