package text

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// none stands where a value is not known, or where there is nothing.
const (
	none    = "-"
	nothing = "·"
)

// Duration writes ns in Go's syntax with three significant digits, as the report does.
func Duration(ns int64) string { return duration(ns) }

// duration writes ns in Go's syntax (time.ParseDuration reads it back) with three significant digits, in the unit that
// leaves one to three of them before the point.
func duration(ns int64) string {
	switch {
	case ns == math.MinInt64:
		return duration(ns + 1)
	case ns < 0:
		return "-" + duration(-ns)
	case ns == 0:
		return "0s"
	case ns < 1000:
		return strconv.FormatInt(ns, 10) + "ns"
	}
	// What rounds up to the next unit is written in the next unit: 999.6µs is 1.00ms.
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

// digits writes 1 <= v < 1000 with three significant digits.
func digits(v float64) string {
	switch {
	case v >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// maybe is duration for a value that may not be known.
func maybe(ns *int64) string {
	if ns == nil {
		return none
	}
	return duration(*ns)
}

// A unit is what a column of durations is written in, so that its numbers compare at a glance.
type unit struct {
	name string
	ns   float64
}

// unitFor returns the unit in which the largest value of a column has one to three digits before its point. Columns
// never use minutes: 1m12s beside 3.4s compares badly.
func unitFor(largest int64) unit {
	switch {
	case largest >= 999_500_000:
		return unit{"s", 1e9}
	case largest >= 999_500:
		return unit{"ms", 1e6}
	case largest >= 1000:
		return unit{"µs", 1e3}
	}
	return unit{"ns", 1}
}

// format writes ns in the unit with three significant digits, but no more than three after the point.
func (u unit) format(ns int64) string {
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

// percent writes a share of 0..1 in whole percent; what would round to 0% is told apart from nothing.
func percent(share float64) string {
	switch {
	case math.IsNaN(share) || share == 0:
		return nothing
	case share < 0.005:
		return "<1%"
	}
	return strconv.FormatFloat(share*100, 'f', 0, 64) + "%"
}

// number writes n with a comma before every three digits.
func number(n int64) string {
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

// count is a number with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return number(int64(n)) + " " + many
}

// size writes bytes with a decimal prefix.
func size(n int64) string {
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
