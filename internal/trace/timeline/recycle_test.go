package timeline

import (
	"bytes"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// TestMemoryIsReused decodes generations into reused memory and into fresh memory. It detects leftovers of an
// earlier generation in the lists of records, the tallies of pieces and the marks.
func TestMemoryIsReused(t *testing.T) {
	data := testprog.Trace(t, "http1-profile")
	decoder := func() *Decoder {
		rd := must.Have(tracefmt.NewReader(bytes.NewReader(data), tracefmt.Options{}))(t)
		d := NewDecoder(rd, 2)
		d.Classify = classify(d.Symbols)
		t.Cleanup(d.Close)
		return d
	}
	fresh, reusing := decoder(), decoder()
	generations, marks := 0, 0
	for {
		a, err := fresh.Next(t.Context())
		b, errReusing := reusing.Next(t.Context())
		if err != nil || errReusing != nil {
			must.True(t, (err == nil) == (errReusing == nil) && err.Error() == errReusing.Error(), "%v, else %v", err, errReusing)
			check.True(t, len(reusing.spareGens) == 0 && len(reusing.pool.spareSlabs) == 0, "memory for more generations is kept after the last one")
			break
		}
		check.Equal(t, firstDifference(dump(&decoded{d: fresh, gens: []*Gen{a}}), dump(&decoded{d: reusing, gens: []*Gen{b}})), "",
			"generation %d differs in reused memory", a.Num)
		generations, marks = generations+1, marks+len(b.Marks)
		reusing.DropMarks(b)
		b.EachMarked(func(id uint64, marks []Mark) { t.Errorf("goroutine %d has %d marks after DropMarks", id, len(marks)) })
		reusing.Recycle(b)
	}
	check.True(t, generations >= 2 && marks != 0, "%d generations with %d marks prove too little", generations, marks)
}

// TestRewind: a decoder that keeps generations returns them again, then those that it has not decoded yet.
func TestRewind(t *testing.T) {
	rd := must.Have(tracefmt.NewReader(bytes.NewReader(testprog.Trace(t, "http1-profile")), tracefmt.Options{}))(t)
	d := NewDecoder(rd, 2)
	defer d.Close()
	d.KeepsGenerations = true
	first := must.Have(d.Next(t.Context()))(t)
	for range 2 {
		d.Rewind()
		check.Equal(t, must.Have(d.Next(t.Context()))(t), first, "the first generation after Rewind")
	}
	d.KeepsGenerations = false
	d.Rewind()
	check.Equal(t, must.Have(d.Next(t.Context()))(t), first, "the first generation after the last Rewind")
	second := must.Have(d.Next(t.Context()))(t)
	check.True(t, second.Num == first.Num+1 && !second.First, "after generation %d came %d", first.Num, second.Num)
	check.True(t, len(d.kept) == 0, "%d generations are kept", len(d.kept))
}
