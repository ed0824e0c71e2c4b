package tune

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/whylate/whylate/service/internal/check"
)

func TestProcsFor(t *testing.T) {
	for _, c := range []struct {
		quota              float64
		cpus               int
		ceil, floor, round int
	}{
		{0, 8, 8, 8, 8},
		{0, 0, 1, 1, 1},
		{0.1, 8, 1, 1, 1},
		{0.25, 8, 1, 1, 1},
		{0.5, 8, 1, 1, 1},
		{1, 8, 1, 1, 1},
		{1.1, 8, 2, 1, 1},
		{1.5, 8, 2, 1, 2},
		{2, 8, 2, 2, 2},
		{2.4, 8, 3, 2, 2},
		{2.9, 8, 3, 2, 3},
		{2.9999, 8, 3, 3, 3},
		{3.0001, 8, 3, 3, 3},
		{8.5, 96, 9, 8, 9},
		{8.5, 4, 4, 4, 4},
		{4, 4, 4, 4, 4},
		{1000, 2, 2, 2, 2},
		{-1, 2, 2, 2, 2},
		{math.NaN(), 2, 2, 2, 2},
		{math.Inf(1), 2, 2, 2, 2},
	} {
		for policy, want := range map[Policy]int{PolicyCeil: c.ceil, PolicyFloor: c.floor, PolicyRound: c.round, PolicyLatency: c.ceil} {
			got, reason := procsFor(procsInput{policy: policy, quota: c.quota, cpus: c.cpus})
			check.Equal(t, got, want, "%v of quota %v on %d CPUs: (%s)", policy, c.quota, c.cpus, reason)
			check.True(t, reason != "", "%v of quota %v on %d CPUs: no reason", policy, c.quota, c.cpus)
		}
	}
}

func TestRuntimeDefault(t *testing.T) {
	for _, c := range []struct {
		quota float64
		cpus  int
		want  int
	}{{0, 8, 8}, {0.5, 8, 2}, {0.5, 1, 1}, {2, 8, 2}, {2.1, 8, 3}, {8.5, 4, 4}} {
		check.Equal(t, runtimeDefault(c.quota, c.cpus), c.want, "quota %v, %d CPUs", c.quota, c.cpus)
	}
}

func TestParse(t *testing.T) {
	for _, p := range []Policy{PolicyCeil, PolicyFloor, PolicyRound, PolicyLatency} {
		if got, err := ParsePolicy(p.String()); err != nil || got != p {
			t.Errorf("%v: %v, %v", p, got, err)
		}
	}
	for _, m := range []Mode{ModeObserve, ModeApply, ModeOff} {
		if got, err := ParseMode(m.String()); err != nil || got != m {
			t.Errorf("%v: %v, %v", m, got, err)
		}
	}
	if _, err := ParsePolicy("fast"); err == nil || !strings.Contains(err.Error(), "fast") {
		t.Errorf("unknown policy: %v", err)
	}
	var o struct {
		Mode   Mode
		Policy Policy
	}
	if err := json.Unmarshal([]byte(`{"Mode":"apply","Policy":"floor"}`), &o); err != nil || o.Mode != ModeApply || o.Policy != PolicyFloor {
		t.Errorf("%+v, %v", o, err)
	}
	if b, err := json.Marshal(o); err != nil || string(b) != `{"Mode":"apply","Policy":"floor"}` {
		t.Errorf("%s, %v", b, err)
	}
	if _, err := json.Marshal(Mode(7)); err == nil {
		t.Error("a mode that does not exist was written")
	}
	if _, err := ParseMode(""); err == nil {
		t.Error("an empty mode was accepted")
	}
}

func with(w latencyWindow, f func(*latencyWindow)) latencyWindow {
	f(&w)
	return w
}

func equalInts(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
