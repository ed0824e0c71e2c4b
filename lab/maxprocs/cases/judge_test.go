//go:build linux

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// rounds makes rounds of what go and whylate did; below 0 is killed.
func rounds(other, w []float64) []round {
	var list []round
	for i := range w {
		r := round{}
		for arm, work := range map[string]float64{"go": other[i], "peers": other[i], "whylate": w[i]} {
			r[arm] = &result{Killed: work < 0, answer: answer{Work: max(0, work)}}
		}
		list = append(list, r)
	}
	return list
}

// One slow run is no loss of a fifth, a run more that is killed is worse however
// much work the others did, and each run is held against the one beside it: the
// first case's medians alone would say a loss.
func TestJudge(t *testing.T) {
	const dead = -1
	for _, c := range []struct {
		name     string
		other, w []float64
		worse    bool
		says     string
		again    bool // looks worse, so it is run again
	}{
		{"a machine that becomes slow", []float64{100, 100, 40, 40, 100}, []float64{96, 38, 39, 41, 97}, false, "0.97 (0.38 to 1.02)", false},
		{"a fifth less", []float64{100, 90, 110, 100, 100}, []float64{75, 71, 80, 78, 99}, true, "**0.78", true},
		{"two of five say otherwise", []float64{100, 100, 100, 100, 100}, []float64{70, 70, 75, 110, 110}, false, "not settled", true},
		{"one run is no evidence", []float64{100}, []float64{30}, false, "0.30, not settled", true},
		{"one is killed more", []float64{100, 100}, []float64{100, dead}, true, "killed 1 times against 0; else 1.00", true},
		{"one lives, with less work", []float64{dead, 100, 100, 100}, []float64{10, 10, 10, 10}, false, "lives: killed 0 times against 1; else **0.10", true},
		{"none lives", []float64{dead, dead}, []float64{dead, dead}, false, "killed 2 times each", false},
		{"as many are killed", []float64{dead, 100, 100}, []float64{100, dead, 100}, false, "killed 1 times each; else 1.00", false},
	} {
		list := rounds(c.other, c.w)
		g := compare(list, "go")
		if verdict, worse := g.judge(); worse != c.worse || !strings.Contains(verdict, c.says) {
			t.Errorf("%s: %q, worse %v", c.name, verdict, worse)
		}
		r := row{Rounds: list}
		if r.done(len(list)) == c.again {
			t.Errorf("%s: to be run again %v", c.name, c.again)
		}
	}
}

// A file of results goes on where it ended, and the table says how often each
// place was run.
func TestGoesOn(t *testing.T) {
	var all []*machine
	m := place(&all, machine{Kernel: "6", Cgroup: "v1", First: "a", Last: "a"})
	m.add(row{Case: "quota 1", Rounds: rounds([]float64{10}, []float64{10}), Took: time.Second})
	m = place(&all, machine{Kernel: "6", Cgroup: "v1", First: "b", Last: "b"})
	m.add(row{Case: "quota 1", Rounds: rounds([]float64{10}, []float64{12}), Took: time.Second})
	m.add(row{Case: "quota 1.5", Skip: "why"})
	if len(all) != 1 || len(m.Rows[0].Rounds) != 2 {
		t.Fatalf("%d machines, %v", len(all), m.Rows[0])
	}
	p := plan{Runs: 3, Only: "^quota 1", Want: m.want(3)}
	chosen, err := p.chosen()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range chosen {
		if c.name == "quota 1.5" {
			t.Error("a place that cannot be run is run again")
		}
	}
	var b bytes.Buffer
	if bad := tables(&b, all, 2); bad != 0 {
		t.Errorf("%d bad", bad)
	}
	for _, want := range []string{"| quota 1 | 2 |", "1.10 (1.00 to 1.20)", "1 places, 1 of them with 2 runs", "quota 1.5 (why)", "a to b"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, b.String())
		}
	}
}

// Thirty cases at least, each with a name of its own and a quota chain that the
// kernel takes: an inner quota is never above an outer one.
func TestCases(t *testing.T) {
	names := map[string]bool{}
	emulated := 0
	for _, c := range cases {
		if names[c.name] {
			t.Errorf("two cases are called %q", c.name)
		}
		names[c.name] = true
		if !c.here {
			emulated++
		}
	}
	if len(cases) < 30 || emulated < 30 {
		t.Errorf("%d cases, %d in a virtual machine", len(cases), emulated)
	}
}
