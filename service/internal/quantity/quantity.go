// Package quantity formats shares, bytes and CPUs in the same way as the tool's package words, which a service may not
// import. testdata/cases.txt has the cases for both.
package quantity

import (
	"math"
	"strconv"
	"strings"
)

// Percent writes a share of 0..1 in whole percent; what would round to 0% is distinguished from nothing.
func Percent(share float64) string {
	switch {
	case math.IsNaN(share) || share == 0:
		return "0%"
	case share*100 <= 0.5:
		return "<1%"
	}
	return strconv.FormatFloat(share*100, 'f', 0, 64) + "%"
}

// Share writes a share with a tenth of a percent, so that a value above a limit does not look equal to it: 12%, 12.3%.
func Share(share float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(100*share, 'f', 1, 64), ".0") + "%"
}

// Cost writes a small share with hundredths of a percent: 0.03%.
func Cost(share float64) string { return strconv.FormatFloat(100*share, 'f', 2, 64) + "%" }

// Binary writes bytes with binary prefixes and up to four digits, as limits are set: 512 MiB, 1.5 GiB.
func Binary(n int64) string {
	v, unit := float64(n), "B"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"} {
		if v < 1024 {
			break
		}
		v, unit = v/1024, u
	}
	return strconv.FormatFloat(v, 'g', 4, 64) + " " + unit
}

// CPUs formats a number of CPUs with its noun.
func CPUs(n float64) string {
	if n == 1 {
		return "1 CPU"
	}
	return strconv.FormatFloat(n, 'g', 4, 64) + " CPUs"
}
