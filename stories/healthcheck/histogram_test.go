package healthcheck

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestSince: percentiles are of the values between two readings, also if the second has new buckets.
func TestSince(t *testing.T) {
	first := counts{[]float64{0.001, 0.004}, []int64{5, 10}}
	last := counts{[]float64{0.001, 0.002, 0.004, 1}, []int64{5, 65, 109, 110}}
	if p50, p99, n := last.percentilesSince(first); p50 != 2e6 || p99 != 4e6 || n != 100 {
		t.Errorf("p50 %d, p99 %d, n %d", p50, p99, n)
	}
	if p50, p99, n := (counts{}).percentilesSince(first); p50 != 0 || p99 != 0 || n != 0 {
		t.Error("of nothing")
	}
}

// TestPlus: the histograms of two processes add up, also if only one has a bucket.
func TestPlus(t *testing.T) {
	sum := counts{[]float64{0.001, 0.004}, []int64{5, 10}}.plus(counts{[]float64{0.002}, []int64{3}})
	for le, want := range map[float64]int64{0.001: 5, 0.002: 8, 0.004: 13} {
		check.Equal(t, sum.atMost(le), want, "at most %v s", le)
	}
}

// TestWronglyOut: targets that refuse at times are rightly removed and do not count, nor do targets that return.
func TestWronglyOut(t *testing.T) {
	rows := must.Have(csv.NewReader(strings.NewReader("# pxname,svname,status,chkdown,\ntargets,steady0,UP,2,\ntargets,flapping1,DOWN,7,\ntargets,steady2,UP,0,\ntargets,BACKEND,UP,1,\n")).ReadAll())(t)
	if n, err := countDown(rows); n != 2 || err != nil {
		t.Errorf("HAProxy took %d out, %v", n, err)
	}
	journal := filepath.Join(t.TempDir(), "journal")
	text := `{"target":"127.1.0.1:80","in":false,"at":"2026-11-23T00:00:00Z"}` + "\n" + `{"target":"127.1.0.1:80","in":true,"at":"2026-11-23T00:00:03Z"}` + "\n" + `{"target":"127.1.0.2:81","in":false,"at":"2026-11-23T00:00:03Z"}` + "\n"
	must.Do(t, os.WriteFile(journal, []byte(text), 0o666))
	if n, err := removedByJournal(journal, "80"); n != 1 || err != nil {
		t.Errorf("the journal says %d, %v", n, err)
	}
}
