package flight

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestBucket(t *testing.T) {
	now := time.Unix(1000, 0)
	b := newBucket(3, time.Hour, now)
	passed := 0
	for range 5 * 60 { // five hours, a wish a minute
		now = now.Add(time.Minute)
		if b.has(now) {
			b.take()
			passed++
		}
	}
	if passed != 3+14 { // a full bucket gains nothing
		t.Errorf("%d passed in five hours, want 3 at once and then one in 20 minutes", passed)
	}
	now = now.Add(1000 * time.Hour)
	for passed = 0; b.has(now); passed++ {
		b.take()
	}
	if passed != 3 {
		t.Errorf("%d passed at once after a long rest", passed)
	}
	if b.has(now.Add(-time.Hour)) {
		t.Error("a clock that goes back lets one pass")
	}
	if none := newBucket(-1, time.Hour, now); !none.has(now) {
		t.Error("no bound does not let pass")
	}
}

// TestUsual holds the limit of a route to the quantile of what it was given.
func TestUsual(t *testing.T) {
	for b := 1; b < bucketsAll-1; b++ {
		if d := usualUpper(b); usualBucket(d-1) != b || usualBucket(d) != b+1 {
			t.Fatalf("bucket %d ends at %d, which is in %d", b, d, usualBucket(d))
		}
	}
	if b := usualBucket(math.MaxInt64); b != bucketsAll-1 {
		t.Errorf("the longest is in bucket %d", b)
	}
	r := newRoute()
	for range minUsual - 1 {
		if r.add(time.Millisecond) {
			t.Fatal("slow, before anything is known")
		}
	}
	if r.settle(0.99, 3, 0); r.add(time.Hour) {
		t.Error("slow, while too few are known")
	}
	for i := range 10000 {
		r.add(time.Duration(i%1000) * time.Microsecond)
	}
	r.settle(0.99, 3, 0)
	if got := time.Duration(r.limit.Load()); got < 3*990*time.Microsecond || got > 3*1150*time.Microsecond {
		t.Errorf("the limit is %v, want three times 990µs, at most an eighth more", got)
	}
	if r.add(2*time.Millisecond) || !r.add(4*time.Millisecond) {
		t.Error("2 ms is slow, or 4 ms is not")
	}
	if r.settle(0.99, 3, time.Second); time.Duration(r.limit.Load()) != time.Second {
		t.Errorf("the limit is %v, want the least", time.Duration(r.limit.Load()))
	}
	// What is long ago does not count.
	for range windows {
		r.rotate()
		for range minUsual {
			r.add(10 * time.Millisecond)
		}
	}
	if r.settle(0.5, 1, 0); time.Duration(r.limit.Load()) < 10*time.Millisecond {
		t.Errorf("the limit is %v although the last minutes were slower", time.Duration(r.limit.Load()))
	}
}

func TestRoutesAreBounded(t *testing.T) {
	var rs routes
	for i := range 2 * maxRoutes {
		if r := rs.of(fmt.Sprint(i)); (r == nil) != (i >= maxRoutes) {
			t.Fatalf("route %d: %v", i, r)
		}
	}
	if first := rs.of("7"); first == nil || rs.of("7") != first {
		t.Error("a route is not the same twice")
	}
}

func TestSurplus(t *testing.T) {
	at := func(minute int, kind Kind, size int64) file {
		when := time.Unix(int64(60*minute), 0)
		return file{fileName(when, kind, 1, minute), size, when}
	}
	files := []file{at(3, KindSlow, 10), at(1, KindFreeze, 10), at(2, KindSlow, 10), at(5, KindSlow, 10), at(4, KindGC, 10)}
	for budget, want := range map[int64][]int{50: nil, 49: {2}, 40: {2}, 39: {2, 3}, 30: {2, 3}, 0: {2, 3}} {
		var got []int
		for _, f := range surplus(files, budget) {
			got = append(got, int(f.mod.Unix()/60))
		}
		if !slices.Equal(got, want) {
			t.Errorf("budget %d: those of minutes %v go, want %v", budget, got, want)
		}
	}
}

// TestParts tests that what a killed process left is removed, and nothing else.
func TestParts(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	whole := fileName(now, KindSlow, 7, 1)
	for name, age := range map[string]time.Duration{
		whole: time.Hour, whole + ".part-7": 0, whole + ".part-8": 0, whole + ".part-9": 0, whole + ".part-10": time.Hour,
		"notes.txt": time.Hour, "other.part-7": time.Hour, whole + ".part-x": time.Hour,
	} {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(p, now, now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	removeParts(dir, 7, func(pid int) bool { return pid != 8 }, now)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, strings.TrimPrefix(e.Name(), whole))
	}
	if want := []string{"", ".part-9", ".part-x", "notes.txt", "other.part-7"}; !slices.Equal(left, want) {
		t.Errorf("left are %q, want %q", left, want)
	}
}

func TestGovernor(t *testing.T) {
	g := governor{budget: 0.02}
	costs := func(share float64) float64 { return share * 2 / startCost.Seconds() } // starts a second on two Ps
	for i := range 3 * patience {
		if !g.decide(costs(0.015), 2) {
			t.Fatalf("off after %d seconds within the budget", i)
		}
	}
	if !g.decide(costs(0.1), 2) {
		t.Fatal("off after one second over the budget")
	}
	for g.decide(costs(0.015), 2); g.cost > 0.016; {
		if !g.decide(costs(0.015), 2) {
			t.Fatal("off after one burst")
		}
	}
	seconds := 0
	for ; g.decide(costs(0.1), 2); seconds++ {
		if seconds > 3*patience {
			t.Fatal("never off")
		}
	}
	if seconds < patience-1 {
		t.Errorf("off after %d seconds", seconds)
	}
	for range 100 {
		if g.decide(costs(0.019), 2) {
			t.Fatal("on again just below the budget")
		}
	}
	for seconds = 0; !g.decide(costs(0.001), 2); seconds++ {
		if seconds > 60 {
			t.Fatal("never on again")
		}
	}
	if g := (governor{budget: -1}); !g.decide(costs(1), 2) {
		t.Error("no bound is one")
	}
}

func TestQuantile(t *testing.T) {
	bounds := []float64{math.Inf(-1), 0, 1e-6, 1e-3, math.Inf(1)}
	if got := quantile(bounds, []uint64{0, 985, 5, 10}, 1000, 0.99); got != time.Millisecond {
		t.Errorf("%v, want 1ms", got)
	}
	if got := quantile(bounds, []uint64{0, 995, 5, 0}, 1000, 0.99); got != 0 {
		t.Errorf("%v, want 0", got)
	}
	if got := quantile(bounds, []uint64{0, 0, 0, 99}, 99, 0.99); got != 0 {
		t.Errorf("%v of too few", got)
	}
}

func TestDescribe(t *testing.T) {
	env := map[string]string{
		"OTEL_RESOURCE_ATTRIBUTES": "service.name=old, k8s.pod.name=shop-1,password=x", "OTEL_SERVICE_NAME": "shop", "POD_NAME": "other", "NODE_NAME": "n1",
	}
	got := describe(func(k string) string { return env[k] })
	for k, want := range map[string]string{"service.name": "shop", "k8s.pod.name": "shop-1", "k8s.node.name": "n1", "password": ""} {
		if got[k] != want {
			t.Errorf("%s is %q, want %q", k, got[k], want)
		}
	}
	if got["go"] == "" || got["pid"] == "" {
		t.Errorf("described as %v", got)
	}
}
