// Package budget checks a report against budgets: latencies, shares of causes, findings, and an earlier report. Scripts depend
// on its result, so an unknown value never passes: a percentile without enough requests, a missing group and a report without
// requests are violations.
package budget

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// A Limit is a latency of at most NS, or a share of a band's time of at most Share.
type Limit struct {
	// Group is the name, short name or id of the limit's groups; "" for all.
	Group string
	// Stat is mean, p50, p90, p99, p999 or max; "" for a limit of a cause.
	Stat string
	NS   int64
	// Cause is a cause or a family of causes, and Band the band of its share.
	Cause report.CauseName
	Band  report.BandName
	Share float64 // 0..1
}

// Metric names the limited number, in the syntax of Parse.
func (l *Limit) Metric() string {
	switch {
	case l.Stat != "":
		return l.Stat
	case l.Band == report.BandAll:
		return string(l.Cause)
	}
	return string(l.Band) + ":" + string(l.Cause)
}

// Stats returns the names of the latencies that can be limited.
func Stats() []string { return []string{"mean", "p50", "p90", "p99", "p999", "max"} }

// Families returns the names of families of causes. They take precedence over a cause of the same name.
func Families() []report.CauseName {
	return []report.CauseName{report.FamilyGC, report.FamilySched}
}

// isOfFamily reports whether a row has a cause or belongs to a family. Of the stops of the world, the family gc contains only
// those of the collector.
func isOfFamily(c *report.Cause, name report.CauseName) bool {
	if name == report.FamilyGC && c.Cause == report.CauseSTW {
		return strings.HasPrefix(c.Kind, "GC")
	}
	return c.In(name)
}

// Parse parses a budget: limits separated by commas, each STAT=DURATION, CAUSE=PERCENT or BAND:CAUSE=PERCENT, and optionally
// group=NAME, which applies to all of them. Commas inside brackets belong to a name, as in main.F[int,string]. An error
// names the expected form.
func Parse(s string) ([]Limit, error) {
	var limits []Limit
	group, grouped := "", false
	for _, item := range splitLimits(s) {
		key, value, ok := strings.Cut(item, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch {
		case !ok || key == "" || value == "":
			return nil, fmt.Errorf("%q is not a limit: write p99=50ms, sched=5%% or group=NAME", item)
		case key == "group" && grouped:
			return nil, fmt.Errorf("%q names two groups: give each its own budget", s)
		case key == "group":
			group, grouped = value, true
			continue
		}
		l, err := parseLimit(key, value)
		if err != nil {
			return nil, err
		}
		limits = append(limits, l)
	}
	if len(limits) == 0 {
		return nil, fmt.Errorf("%q has no limit: write group=NAME,p99=50ms", s)
	}
	for i := range limits {
		limits[i].Group = group
	}
	return limits, nil
}

// splitLimits splits a text at commas outside of brackets. Brackets without a partner end with the text.
func splitLimits(s string) []string {
	var out []string
	depth, from := 0, 0
	for i, c := range s {
		switch {
		case c == '[' || c == '(' || c == '{':
			depth++
		case c == ']' || c == ')' || c == '}':
			depth = max(0, depth-1)
		case c == ',' && depth == 0:
			out = append(out, s[from:i])
			from = i + 1
		}
	}
	return append(out, s[from:])
}

// parseLimit parses one limit of a budget: a percentile with a duration (p99=50ms), or [BAND:]CAUSE with a percentage.
func parseLimit(key, value string) (Limit, error) {
	stat := key
	if stat == "p99.9" {
		stat = "p999"
	}
	if slices.Contains(Stats(), stat) {
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 {
			return Limit{}, fmt.Errorf("%s=%s: want a duration above 0, such as %s=50ms", key, value, key)
		}
		return Limit{Stat: stat, NS: int64(d)}, nil
	}
	band, name := report.BandAll, report.CauseName(key)
	if before, after, ok := strings.Cut(key, ":"); ok {
		band, name = report.BandName(before), report.CauseName(after)
	}
	switch {
	case !slices.Contains(report.BandNames(), band):
		return Limit{}, fmt.Errorf("%s: no band is called %q; the bands are %s", key, band, words.List(report.BandNames()))
	case !slices.Contains(Families(), name) && !slices.Contains(limitableCauses(), name):
		return Limit{}, fmt.Errorf("%q is neither a latency (%s), nor a family (%s), nor a cause (%s)", name, strings.Join(Stats(), ", "),
			words.List(Families()), words.List(limitableCauses()))
	}
	share, err := ParsePercent(value)
	if err != nil {
		return Limit{}, fmt.Errorf("%s=%s: %w", key, value, err)
	}
	if share > 1 {
		return Limit{}, fmt.Errorf("%s=%s: a share is at most 100%%", key, value)
	}
	return Limit{Cause: name, Band: band, Share: share}, nil
}

// limitableCauses returns the causes that can be limited.
func limitableCauses() []report.CauseName {
	return slices.DeleteFunc(report.Causes(), func(c report.CauseName) bool { return c == report.CauseOther })
}

// ParsePercent parses "5%" as 0.05. The sign is required, because 0.05 could mean either; negative numbers are errors.
func ParsePercent(s string) (float64, error) {
	digits, ok := strings.CutSuffix(s, "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	if !ok || err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		return 0, fmt.Errorf("%q is not a percentage: write 5%%", s)
	}
	return v / 100, nil
}
