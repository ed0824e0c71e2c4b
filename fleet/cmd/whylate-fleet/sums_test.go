package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/fleet/internal/work"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// explainAlone explains one trace without a fleet and returns its rows.
func explainAlone(t *testing.T, trace []byte) *rows.Rows {
	t.Helper()
	file := filepath.Join(t.TempDir(), "trace")
	must.Do(t, os.WriteFile(file, trace, 0o600))
	out, err := work.RunVerb(t.Context(), "explain", "--json", file)
	must.Do(t, err)
	rep, err := report.ReadJSON(bytes.NewReader(out))
	must.Do(t, err)
	r := rows.FromReport(rows.Labels{}, time.Now(), rep)
	must.True(t, len(r.Sums) != 0, "a trace has no requests")
	return r
}

// checkSums compares the sums of the store with those of explaining each sent recording alone. sent maps ids to indices of
// kinds.
func checkSums(t *testing.T, st *store.Store, sent map[string]int, kinds []*rows.Rows) {
	t.Helper()
	type key struct {
		group, cause string
		bucket       int64
	}
	want := make(map[key][2]int64)
	for _, kind := range sent {
		for _, s := range kinds[kind].Sums {
			k := key{s.Group, s.Cause, s.Bucket}
			want[k] = [2]int64{want[k][0] + s.N, want[k][1] + s.NS}
		}
	}
	got := 0
	err := st.VisitSums(t.Context(), func(group, cause string, bucket, n, ns int64) {
		if k := (key{group, cause, bucket}); want[k] != [2]int64{n, ns} {
			t.Errorf("%+v: %d requests, %d ns, want %v", k, n, ns, want[k])
		}
		got++
	})
	check.True(t, err == nil && got == len(want), "%d sums, want %d, %v", got, len(want), err)
}
