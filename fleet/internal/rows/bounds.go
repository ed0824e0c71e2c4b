package rows

// Bounds of what one recording adds to a sum, and of sums. A recording is made by a service: its clock and its counts may be anything.
const (
	// maxCount is far more requests than a recording of 256 MiB holds.
	maxCount = 1 << 40
	// maxNS is 13 days. Ten thousand requests that wait for ten seconds are a tenth of it.
	maxNS = 1 << 50
	// MaxSum is where sums stay: two of them are still a number of 64 bits.
	MaxSum = 1<<62 - 1
)

// AddClamped returns the sum of two sums, which is one as well.
func AddClamped(a, b int64) int64 { return Clamp(Clamp(a, MaxSum)+Clamp(b, MaxSum), MaxSum) }

// Clamp bounds a number to 0 and a limit.
func Clamp(n, limit int64) int64 { return max(0, min(n, limit)) }

// clampFloat is Clamp of a number that may be larger than any of 64 bits, or none.
func clampFloat(v float64, limit int64) int64 {
	if !(v > 0) {
		return 0
	}
	return int64(min(v, float64(limit)))
}
