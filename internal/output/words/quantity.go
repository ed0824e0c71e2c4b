// Package words formats quantities, functions and commands in the same way for the whole tool: on terminals, on pages, in
// findings and in the verdict. It follows the conventions of the field:
//
//   - durations in Go's syntax with three significant digits: 1.50ms, 2m3s; time.ParseDuration parses them. In sentences
//     without the zeros that a column needs: 1.5ms
//   - bytes with decimal prefixes and a space: 1.50 kB, 20.0 MB, as sizes of files and network counters. Amounts that users
//     set in GiB and MiB (GOMEMLIMIT, limits of cgroups), and heaps that are compared with them, have these units: see Binary
//   - shares in whole percent, without a space before the sign: 12%; "<1%" is more than zero
//   - changes with their sign, from tenfold on as a factor: +12%, x11
//   - counts with a comma before every three digits: 1,234
//   - CPUs with up to four digits and their noun: 0.5 CPUs, 1 CPU
//   - functions without the directories of their package: store.(*DB).get
//
// Package names formats the sites, groups and peers of a report. page/format.js has the same formats for the page, and
// service/internal/quantity for texts of services; tests compare them.
package words

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Unknown replaces an unknown value, and Zero a zero.
const (
	Unknown = "-"
	Zero    = "·"
)

// Duration writes ns in Go's syntax (time.ParseDuration parses it) with three significant digits, in the unit that leaves one
// to three digits before the point.
func Duration(ns int64) string {
	switch {
	case ns == math.MinInt64:
		return Duration(ns + 1)
	case ns < 0:
		return "-" + Duration(-ns)
	case ns == 0:
		return "0s"
	case ns < 1000:
		return strconv.FormatInt(ns, 10) + "ns"
	}
	// A value that rounds up to the next unit is written in that unit: 999.6µs is 1.00ms.
	d := time.Duration(ns)
	switch {
	case d.Round(time.Second/10) >= time.Minute:
		s := d.Round(time.Second).String()
		if d.Round(time.Second) >= time.Hour {
			s = d.Round(time.Minute).String()
			s = strings.TrimSuffix(s, "0s")
		}
		return s
	case ns >= 999_500_000:
		return digits(float64(ns)/1e9) + "s"
	case ns >= 999_500:
		return digits(float64(ns)/1e6) + "ms"
	}
	return digits(float64(ns)/1e3) + "µs"
}

// digits writes a number of at least 1 and below 1000 with three significant digits.
func digits(v float64) string {
	switch {
	case v >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// DurationOrUnknown is Duration for a value that may be unknown.
func DurationOrUnknown(ns *int64) string {
	if ns == nil {
		return Unknown
	}
	return Duration(*ns)
}

// A Unit is the unit of a column of durations, which makes its numbers easy to compare.
type Unit struct {
	name string
	ns   float64
}

// UnitFor returns the unit in which the largest value of a column, in ns, has one to three digits before its point. Columns never use minutes: 1m12s
// next to 3.4s is hard to compare.
func UnitFor(largest int64) Unit {
	switch {
	case largest >= 999_500_000:
		return Unit{"s", 1e9}
	case largest >= 999_500:
		return Unit{"ms", 1e6}
	case largest >= 1000:
		return Unit{"µs", 1e3}
	}
	return Unit{"ns", 1}
}

// Format writes ns in the unit with three significant digits, but no more than three after the point.
func (u Unit) Format(ns int64) string {
	v := float64(ns) / u.ns
	a := math.Abs(v)
	places := 3
	switch {
	case u.ns == 1 || a >= 99.95:
		places = 0
	case a >= 9.995:
		places = 1
	case a >= 0.9995 || v == 0:
		places = 2
	}
	if v == 0 {
		return "0" + u.name
	}
	return strconv.FormatFloat(v, 'f', places, 64) + u.name
}

// Percent writes a share of 0..1 in whole percent. It distinguishes a share that rounds to 0 % from 0. 0.25 is "25%".
func Percent(share float64) string {
	switch {
	case math.IsNaN(share) || share == 0:
		return Zero
	case share*100 <= 0.5:
		return "<1%"
	}
	return strconv.FormatFloat(share*100, 'f', 0, 64) + "%"
}

// Number writes n with a comma before every three digits.
func Number(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// Count returns a number with its noun, of which both forms are given.
func Count(n int, singular, plural string) string {
	if n == 1 {
		return "1 " + singular
	}
	return Number(int64(n)) + " " + plural
}

// Bytes writes a number of bytes with a decimal prefix and three digits: 1.25 MB.
func Bytes(n int64) string {
	switch {
	case n < 1000:
		return strconv.FormatInt(n, 10) + " B"
	case n < 999_500:
		return digits(float64(n)/1e3) + " kB"
	case n < 999_500_000:
		return digits(float64(n)/1e6) + " MB"
	}
	v := float64(n) / 1e9
	if v >= 999.5 {
		return strconv.FormatFloat(v, 'f', 0, 64) + " GB"
	}
	return digits(v) + " GB"
}

// Brief is Duration for sentences, without zeros at the end of a fraction: 10ms, 1.5ms.
func Brief(ns int64) string { return trimZeros(Duration(ns)) }

// Rough is Duration with two digits and without zeros at the end of its fraction.
func Rough(ns int64) string {
	step := int64(1)
	for ns/step >= 100 {
		step *= 10
	}
	return trimZeros(Duration((min(ns, math.MaxInt64-step/2) + step/2) / step * step))
}

// trimZeros removes zeros at the end of a duration's fraction.
func trimZeros(text string) string {
	unit := strings.TrimLeft(text, "-0123456789.")
	if number := strings.TrimSuffix(text, unit); strings.Contains(number, ".") {
		return strings.TrimRight(strings.TrimRight(number, "0"), ".") + unit
	}
	return text
}

// PercentOr0 is Percent for sentences, in which 0 is 0%.
func PercentOr0(share float64) string {
	if s := Percent(share); s != Zero {
		return s
	}
	return "0%"
}

// ShortNumber writes a number in at most six columns: 12,345, 123k, 1.5M.
func ShortNumber(n int) string {
	switch {
	case n < 100_000:
		return Number(int64(n))
	case n < 1_000_000:
		return strconv.Itoa(n/1000) + "k"
	case n < 1_000_000_000:
		return strconv.FormatFloat(float64(n)/1e6, 'f', 1, 64) + "M"
	}
	return strconv.FormatFloat(float64(n)/1e9, 'f', 0, 64) + "G"
}

// Share writes a share with a tenth of a percent, so that a value slightly over a limit does not appear equal to it: 12%,
// 12.3%.
func Share(share float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(100*share, 'f', 1, 64), ".0") + "%"
}

// Change writes a relative change with its sign, 0.1 as "+10%"; from tenfold on (9) it is a factor, "x10".
func Change(ratio float64) string {
	places := 0
	switch {
	case ratio >= 9:
		return "x" + strconv.FormatFloat(ratio+1, 'f', 0, 64)
	case math.Abs(ratio) < 0.0995:
		places = 1
	}
	s := strconv.FormatFloat(100*ratio, 'f', places, 64) + "%"
	if s[0] != '-' {
		s = "+" + s
	}
	return s
}

// Figure writes a measured number, as a rate, with three significant digits: 0.125, 17.3, 1,234.
func Figure(v float64) string {
	if a := math.Abs(v); a >= 999.5 || math.IsNaN(a) {
		return Number(int64(math.Round(v)))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// Binary writes bytes with binary prefixes and up to four digits: 512 MiB, 1.5 GiB. It is for amounts that users set in such
// units.
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

// CPUs returns a number of CPUs with its noun: "1 CPU", "1.5 CPUs".
func CPUs(n float64) string {
	if n == 1 {
		return "1 CPU"
	}
	return strconv.FormatFloat(n, 'g', 4, 64) + " CPUs"
}

// units are the units that ParseBytes accepts, without the B.
var units = map[string]float64{"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}

// ParseBytes parses a size in bytes with a decimal (kB, MB, GB, TB) or binary unit (KiB, MiB, ...). The B may be missing, and
// letters may be upper or lower case. K, M and G alone are decimal.
func ParseBytes(s string) (int64, error) {
	text := strings.TrimSpace(s)
	end := strings.LastIndexAny(text, "0123456789.") + 1
	v, err := strconv.ParseFloat(text[:end], 64)
	unit, ok := units[strings.TrimSuffix(strings.ToLower(strings.TrimSpace(text[end:])), "b")]
	if v *= unit; err != nil || !ok || !(v >= 1) || v > math.MaxInt64/2 {
		return 0, fmt.Errorf("%q is not a size: write it as 300MB, 1.5GiB or 268435456", s)
	}
	return int64(v), nil
}
