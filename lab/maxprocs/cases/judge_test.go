//go:build linux

package main

import (
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name     string
		other, w outcome
		worse    bool
		says     string
	}{
		{"the same", outcome{Work: []float64{100, 90, 110}}, outcome{Work: []float64{95}}, false, "0.95"},
		{"a fifth less", outcome{Work: []float64{100}}, outcome{Work: []float64{79}}, true, "0.79"},
		{"one is killed more", outcome{Work: []float64{100}}, outcome{Work: []float64{100}, Killed: 1}, true, "killed 1 times against 0"},
		{"one lives", outcome{Killed: 2}, outcome{Work: []float64{10, 10}}, false, "lives"},
		{"none lives", outcome{Killed: 2}, outcome{Killed: 2}, false, "both"},
	} {
		if verdict, worse := judge(&c.other, &c.w); worse != c.worse || !strings.Contains(verdict, c.says) {
			t.Errorf("%s: %q, worse %v", c.name, verdict, worse)
		}
	}
}

// Thirty cases at least, each with a name of its own and a quota chain that the
// kernel takes: an inner quota is never above an outer one.
func TestCases(t *testing.T) {
	names := map[string]bool{}
	for _, c := range cases {
		if names[c.name] {
			t.Errorf("two cases are called %q", c.name)
		}
		names[c.name] = true
	}
	if len(cases) < 30 {
		t.Errorf("%d cases", len(cases))
	}
}
