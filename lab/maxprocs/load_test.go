//go:build linux

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
)

func TestQuantile(t *testing.T) {
	var l []time.Duration
	for i := range 1000 {
		l = append(l, time.Duration(1000-i))
	}
	s := sortedCopy(l)
	for q, want := range map[float64]time.Duration{0.5: 501, 0.99: 991, 0.999: 1000} {
		check.Equal(t, quantile(s, q), want, "quantile %v", q)
	}
	if got := quantile(s[:500], 0.999); got != 0 {
		t.Errorf("p99.9 of 500 values: %v, want none", got)
	}
}

// TestCompare runs the whole comparison as short as possible: every arm gets its GOMAXPROCS.
func TestCompare(t *testing.T) {
	if os.Getenv("WHYLATE_FULL") != "1" {
		t.Skip("runs for some seconds in cgroups: only with WHYLATE_FULL=1 (.ci/full)")
	}
	if os.Getuid() != 0 {
		t.Skip("making cgroups needs root")
	}
	g, err := newGroup(0)
	if err != nil {
		t.Skip(err)
	}
	g.KillAndRemove()
	var out, progress bytes.Buffer
	c := config{quotas: []float64{0.5}, open: 300 * time.Millisecond, closed: 100 * time.Millisecond, rounds: 1, load: 0.3}
	if err := compare(c, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.Bytes())
	}
	for _, want := range []string{"| 0.5 | automaxprocs | 1 |", "| 0.5 | whylate | 1 |", "| 0.5 | go | "} {
		check.True(t, strings.Contains(out.String(), want), "no %q in\n%s", want, out.String())
	}
}

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		runRole(role)
		return
	}
	os.Exit(m.Run())
}
