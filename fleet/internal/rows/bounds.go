package rows

import (
	"strings"
	"unicode"
)

// Bounds of what one recording adds to a sum, and of sums. A service writes its recordings, so clocks and counts in them can
// have any value.
const (
	// maxCount is far more than the number of requests that a recording of 256 MiB can hold.
	maxCount = 1 << 40
	// maxNS is 13 days: ten times the wait of ten thousand requests that wait for ten seconds.
	maxNS = 1 << 50
	// MaxSum is the largest sum. Two of them still fit in 64 bits.
	MaxSum = 1<<62 - 1
)

// AddClamped returns a+b, bounded to 0 and MaxSum. Both operands are bounded first.
func AddClamped(a, b int64) int64 { return Clamp(Clamp(a, MaxSum)+Clamp(b, MaxSum), MaxSum) }

// Clamp returns n, bounded to 0 and limit.
func Clamp(n, limit int64) int64 { return max(0, min(n, limit)) }

// clampFloat is Clamp for a number that may exceed 64 bits. It returns 0 for NaN.
func clampFloat(v float64, limit int64) int64 {
	if !(v > 0) {
		return 0
	}
	return int64(min(v, float64(limit)))
}

// CleanText truncates a text to maxBytes and removes invalid UTF-8, control characters, and characters that change the writing
// direction of a page.
func CleanText(s string, maxBytes int) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || unicode.Is(unicode.Bidi_Control, r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s[:min(len(s), maxBytes)], ""))
}

// maxLimitBytes bounds the texts of a headroom.
const maxLimitBytes = 512
