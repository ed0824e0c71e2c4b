package finding

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/report"
)

// A Threshold is what the fix of a finding must save for a severity: this share of the time, and this many ns of each
// request on average, of all requests, of the slow ones, or of a few (RareNS).
type Threshold struct {
	Severity report.Severity
	Share    float64
	AllNS    int64
	SlowNS   int64
	RareNS   int64
}

// Thresholds returns the default thresholds, the highest severity first.
func Thresholds() []Threshold { return slices.Clone(thresholds) }

// ReadThresholds reads thresholds, one severity a line: its name, and the limits that differ from the default, as in
//
//	high share=20% slow=50ms
//	low  all=1ms slow=5ms few=50ms
//
// Empty lines and lines that begin with # are skipped. No limit of a severity may be below that of the next lower one.
func ReadThresholds(r io.Reader, name string) ([]Threshold, error) {
	thresholds := Thresholds()
	err := forEachLine(r, name, func(f []string) error {
		index := slices.IndexFunc(thresholds, func(t Threshold) bool { return string(t.Severity) == f[0] })
		if index < 0 || len(f) < 2 {
			return errors.New("want a severity (high, medium, low) and its limits, such as: high share=20% slow=50ms")
		}
		for _, word := range f[1:] {
			if err := thresholds[index].setLimit(word); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := 1; i < len(thresholds); i++ {
		if a, b := &thresholds[i-1], &thresholds[i]; a.Share < b.Share || a.AllNS < b.AllNS || a.SlowNS < b.SlowNS || a.RareNS < b.RareNS {
			return nil, fmt.Errorf("%s: %s asks for less than %s", name, a.Severity, b.Severity)
		}
	}
	return thresholds, nil
}

// forEachLine calls f with the words of each line that is neither empty nor begins with #. Errors begin with the file's name and
// the line number.
func forEachLine(r io.Reader, name string, f func(words []string) error) error {
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		if err := f(words); err != nil {
			return fmt.Errorf("%s:%d: %w", name, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	return nil
}

// setLimit parses one NAME=VALUE, such as share=20% or slow=50ms, and sets that limit.
func (t *Threshold) setLimit(word string) error {
	name, value, _ := strings.Cut(word, "=")
	if name == "share" {
		v, err := strconv.ParseFloat(strings.TrimSuffix(value, "%"), 64)
		if err != nil || !strings.HasSuffix(value, "%") || !(v >= 0 && v <= 100) {
			return fmt.Errorf("%q: a share is a percentage, such as share=20%%", word)
		}
		t.Share = v / 100
		return nil
	}
	target := map[string]*int64{"all": &t.AllNS, "slow": &t.SlowNS, "few": &t.RareNS}[name]
	d, err := time.ParseDuration(value)
	if target == nil || err != nil || d < 0 {
		return fmt.Errorf("%q: want share=20%%, all=2ms, slow=10ms, or few=100ms", word)
	}
	*target = int64(d)
	return nil
}
