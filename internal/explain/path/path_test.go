package path

import (
	"testing"

	"github.com/whylate/whylate/internal/explain/request"
)

// TestEnded: of the five forms of a request, two say all of it, if it ended and did not look at the process itself.
func TestEnded(t *testing.T) {
	want := map[Form]bool{Whole: true, Joint: true}
	for _, form := range []Form{Whole, Piece, Joint, Cut, Glanced} {
		for _, w := range []Walked{{}, {Observer: true}, {Req: &request.Request{Open: true}}} {
			plain := !w.Observer && w.Req == nil
			if w.Form = form; w.Req == nil {
				w.Req = new(request.Request)
			}
			if got := w.Ended(); got != (want[form] && plain) {
				t.Errorf("form %d, observer %t, open %t: %t", form, w.Observer, w.Req.Open, got)
			}
		}
	}
}

// TestPartOf: a part is a whole interval that is short, or lies in it and is as long as may be; which one changes with the beginning.
func TestPartOf(t *testing.T) {
	if from, to := PartOf(50, 100, 50); from != 50 || to != 100 {
		t.Errorf("of a short interval it is [%d, %d)", from, to)
	}
	seen := map[int64]bool{}
	for at := range int64(1000) {
		from, to := PartOf(at, at+5000, 50)
		if from < at || to > at+5000 || to-from != 50 {
			t.Fatalf("of [%d, %d) it is [%d, %d)", at, at+5000, from, to)
		}
		seen[from-at] = true
	}
	if len(seen) < 800 {
		t.Errorf("of 1000 intervals, parts begin in %d places", len(seen))
	}
}
