package answers

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

// TestMatch checks, with synthetic spans, that no request answers itself, that two waits do not get the same request,
// and that of several concurrent waits the right one gets the request.
func TestMatch(t *testing.T) {
	span := func(g uint64, start, end int64) Span {
		return Span{Start: start, End: end, Request: RequestKey{g, start}}
	}
	wait := func(g uint64, start, end int64) Span {
		return Span{Start: start, End: end, Request: RequestKey{g, start - 5}}
	}
	for _, c := range []struct {
		name            string
		waits, requests []Span
		want            map[uint64]uint64 // by the goroutine of the waiting request
	}{
		{"the request is inside the wait", []Span{wait(1, 100, 200)}, []Span{span(9, 110, 190)}, map[uint64]uint64{1: 9}},
		{"a little before and after", []Span{wait(1, 100, 200)}, []Span{span(9, 95, 203)}, map[uint64]uint64{1: 9}},
		{"mostly outside", []Span{wait(1, 100, 200)}, []Span{span(9, 150, 400)}, nil},
		{"the nearest of several that end at once", []Span{wait(1, 100, 300), wait(2, 150, 300), wait(3, 200, 300)},
			[]Span{span(7, 103, 298), span(8, 153, 298), span(9, 203, 298)}, map[uint64]uint64{1: 7, 2: 8, 3: 9}},
		{"each has one", []Span{wait(1, 100, 300), wait(2, 100, 320)}, []Span{span(9, 110, 290)}, map[uint64]uint64{1: 9}},
		{"no request answers itself", []Span{{Start: 110, End: 200, Request: RequestKey{1, 100}}}, []Span{span(1, 100, 210)}, nil},
		{"a handler that calls its own group", []Span{{Start: 110, End: 200, Request: RequestKey{1, 100}}, {Start: 130, End: 180, Request: RequestKey{2, 120}}},
			[]Span{span(1, 100, 210), span(2, 120, 190), span(3, 140, 170)}, map[uint64]uint64{1: 2, 2: 3}},
	} {
		Sort(c.waits)
		Sort(c.requests)
		got := map[uint64]uint64{}
		n := Match(c.waits, c.requests, 0, func(w, r Span) { got[w.Request.G] = r.Request.G })
		check.True(t, n == len(c.want) && len(got) == n, "%s: %d waits have a request: %v, want %v", c.name, n, got, c.want)
		for w, r := range c.want {
			check.Equal(t, got[w], r, "%s: the wait of %d has request", c.name, w)
		}
	}
}
