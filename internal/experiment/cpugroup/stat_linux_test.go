package cpugroup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/whylate/whylate/internal/testing/must"
)

// TestReadStat reads the counters of both versions. A file without throttled time is an error, not a
// group without throttling.
func TestReadStat(t *testing.T) {
	for text, want := range map[string]Stat{
		"nr_periods 10\nnr_throttled 3\nthrottled_time 5000\n":            {Periods: 10, Throttled: 3, ThrottledNS: 5000},
		"usage_usec 7\nnr_periods 10\nnr_throttled 3\nthrottled_usec 5\n": {Periods: 10, Throttled: 3, ThrottledNS: 5000},
		"usage_usec 7\nnr_periods 10\nnr_throttled 3\n":                   {},
		"nr_periods ten\nnr_throttled 3\nthrottled_usec 5\n":              {},
		"": {},
	} {
		dir := t.TempDir()
		must.Do(t, os.WriteFile(filepath.Join(dir, "cpu.stat"), []byte(text), 0o600))
		got, err := ReadStat(dir)
		if (err == nil) != (want != Stat{}) || err == nil && got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	if _, err := ReadStat(t.TempDir()); err == nil {
		t.Error("there is no such file")
	}
}
