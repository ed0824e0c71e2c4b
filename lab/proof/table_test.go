package main

import (
	"math"
	"testing"
	"time"
)

func TestSpearman(t *testing.T) {
	for _, c := range []struct {
		a, b []float64
		want float64
	}{
		{[]float64{1, 2, 3, 4}, []float64{10, 20, 30, 400}, 1},
		{[]float64{1, 2, 3, 4}, []float64{4, 3, 2, 1}, -1},
		// By hand: ranks 1 2.5 2.5 4 and 1 3 2 4.
		{[]float64{1, 2, 2, 3}, []float64{1, 3, 2, 4}, 4.5 / math.Sqrt(4.5*5)},
	} {
		if got := spearman(c.a, c.b); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("spearman(%v, %v) is %v, not %v", c.a, c.b, got, c.want)
		}
	}
}

func TestMedian(t *testing.T) {
	if m := median([]float64{4, 1, 3, 2}); m != 2.5 {
		t.Errorf("the median of four is %v", m)
	}
}

func TestCheckText(t *testing.T) {
	p50 := estimate{Est: 2 * time.Millisecond, Low: time.Millisecond, High: 3 * time.Millisecond}
	for _, c := range []struct {
		check            *check
		before, measured time.Duration
		want             string
	}{
		{nil, 10 * time.Millisecond, 2 * time.Millisecond, ""},
		{&check{40, 2 * time.Millisecond, true}, 10 * time.Millisecond, 2 * time.Millisecond, "agrees (40 took 2.00 ms), right"},
		{&check{40, 2 * time.Millisecond, true}, 10 * time.Millisecond, 3200 * time.Microsecond, "agrees (40 took 2.00 ms), right"},
		{&check{40, 2 * time.Millisecond, true}, 10 * time.Millisecond, 4 * time.Millisecond, "agrees (40 took 2.00 ms), wrong"},
		{&check{40, 2 * time.Millisecond, true}, 60 * time.Millisecond, 4 * time.Millisecond, "agrees (40 took 2.00 ms), right"},
		{&check{40, 9 * time.Millisecond, false}, 10 * time.Millisecond, 2 * time.Millisecond, "differs (40 took 9.00 ms), wrong"},
		{&check{40, 9 * time.Millisecond, false}, 10 * time.Millisecond, 700 * time.Microsecond, "differs (40 took 9.00 ms), right"},
	} {
		r := row{before: figures{p50: c.before}, p50: p50, check: c.check, after: figures{p50: c.measured}}
		if got := r.checkText(); got != c.want {
			t.Errorf("%+v, measured %v: %q, want %q", c.check, c.measured, got, c.want)
		}
	}
}
