package path

import (
	"testing"

	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestIsComplete: two of the five forms are complete, if the request ended and was not an observer.
func TestIsComplete(t *testing.T) {
	want := map[Form]bool{Whole: true, Joined: true}
	for _, form := range []Form{Whole, Piece, Joined, CutAtStart, NotWalked} {
		for _, w := range []WalkResult{{}, {Observer: true}, {Req: &request.Request{Open: true}}} {
			isPlain := !w.Observer && w.Req == nil
			if w.Form = form; w.Req == nil {
				w.Req = new(request.Request)
			}
			check.Equal(t, w.IsComplete(), want[form] && isPlain, "form %d, observer %t, open %t", form, w.Observer, w.Req.Open)
		}
	}
}

// TestSampleInterval: a short interval is returned whole. Of a long one a part of the maximal length is returned, at
// an offset that depends on the beginning.
func TestSampleInterval(t *testing.T) {
	if from, to := SampleInterval(50, 100, 50); from != 50 || to != 100 {
		t.Errorf("a short interval became [%d, %d)", from, to)
	}
	offsets := map[int64]bool{}
	for start := range int64(1000) {
		from, to := SampleInterval(start, start+5000, 50)
		must.True(t, from >= start && to <= start+5000 && to-from == 50, "[%d, %d) became [%d, %d)", start, start+5000, from, to)
		offsets[from-start] = true
	}
	check.True(t, len(offsets) >= 800, "the parts of 1000 intervals begin at %d offsets", len(offsets))
}
