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
	"github.com/whylate/whylate/report"
)

// explainAlone explains one trace without a fleet and returns its rows.
func explainAlone(t *testing.T, trace []byte) *rows.Rows {
	t.Helper()
	file := filepath.Join(t.TempDir(), "trace")
	if err := os.WriteFile(file, trace, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := work.RunVerb(t.Context(), "explain", "--json", file)
	if err != nil {
		t.Fatal(err)
	}
	rep, err := report.ReadJSON(bytes.NewReader(out))
	if err != nil {
		t.Fatal(err)
	}
	r := rows.FromReport(rows.Labels{}, time.Now(), rep)
	if len(r.Sums) == 0 {
		t.Fatal("a trace has no requests")
	}
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
	if err != nil || got != len(want) {
		t.Errorf("%d sums, want %d, %v", got, len(want), err)
	}
}
