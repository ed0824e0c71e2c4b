package cause

import (
	"testing"

	"github.com/whylate/whylate/internal/explain/freeze"
	"github.com/whylate/whylate/internal/testing/check"
)

// TestSettle: time in a freeze is throttled, time in another candidate keeps its cause.
func TestSettle(t *testing.T) {
	s := Settle(func(c freeze.Class) bool { return c == 7 || c == 255 })
	for c := range Cause(Count) {
		for _, class := range []freeze.Class{1, 7, 254, 255} {
			want := c
			if class == 7 || class == 255 {
				want = Throttle
			}
			code := Pending(c, class)
			check.True(t, code.IsPending() && code.Cause() == c && s[code] == want && s.IsFreeze(class) == (class == 7 || class == 255),
				"%v in class %d: code %d is settled as %v, want %v", c, class, code, s[code], want)
		}
		if code := Code(c); code.IsPending() || s[code] != c {
			t.Errorf("%v without a class is settled as %v", c, s[code])
		}
	}
	seg := Segment{Start: 1, End: 5, G: 2, Code: Pending(CPU, 7), SiteSource: SiteFromSample, Site: 3, FollowedWait: 4, Stack: 5, Kind: 6, Inbound: true, Call: 8}
	if got, want := s.SettleSegment(seg), (Segment{Start: 1, End: 5, G: 2, Code: Code(Throttle), Site: 3, FollowedWait: 4}); got != want {
		t.Errorf("a segment in a freeze is settled as %+v, want %+v", got, want)
	}
	seg.Code = Pending(CPU, 8)
	want := seg
	want.Code = Code(CPU)
	check.Equal(t, s.SettleSegment(seg), want, "a segment outside freezes is settled as")
}

// TestSums: pending times stay separate until they are settled, also after a merge, and no time is lost.
func TestSums(t *testing.T) {
	var a, b TimeByCode
	for i := range int64(40) {
		to := &a
		if i%3 == 0 {
			to = &b
		}
		to.Add(Code(i%int64(Count)), 1)
		to.Add(Pending(Cause(i%2), freeze.Class(1+i%4)), 100)
	}
	a.Merge(&b)
	// Of 40 pending times of 100 ns, half are in classes 2 and 4: those with an odd cause.
	got := a.ByCause(Settle(func(c freeze.Class) bool { return c%2 == 0 }))
	total := int64(0)
	for _, ns := range got {
		total += ns
	}
	check.True(t, total == 40+40*100 && got[Throttle] == 2000+3 && got[Unknown] == 2000+3 && got[CPU] == 3,
		"the settled times are %v, %d in total", got, total)
}
