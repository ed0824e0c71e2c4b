package timeline

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt/refdata"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// checkAgainstReference compares a whole trace that the reference reader accepts.
func checkAgainstReference(t *testing.T, data []byte) {
	t.Helper()
	stk := newStacks()
	ref := accountOfReference(data, stk, 1<<30)
	must.Do(t, ref.err, "the reference reader")
	in := decodeAll(data, 2)
	must.Do(t, in.err, "we")
	must.True(t, len(in.gens) == ref.gens, "we have %d generations, the reference %d", len(in.gens), ref.gens)
	us := accountOfOurs(in, len(in.gens), stk)
	if diff := differences(us, ref, stk); diff != nil {
		t.Errorf("different from the reference reader:\n%s", strings.Join(diff, "\n"))
	}
	checkWindows(t, in)
	checkChildren(t, in, ref)
	checkSliding(t, in)
	checkRuns(t, data, in)
	checkTrackedStacks(t, in)
	checkTrackedAndWakes(t, in)
	lines := dump(in)
	for _, workers := range []int{1, 5} {
		repeated := decodeAll(data, workers)
		check.Equal(t, firstDifference(lines, dump(repeated)), "", "the results with %d workers differ from those with 2", workers)
	}
}

func TestOracleReferenceTraces(t *testing.T) {
	traces := must.Have(refdata.Traces())(t)
	for _, tr := range traces {
		t.Run(tr.Name, func(t *testing.T) {
			data := must.Have(tracetext.Assemble(tr.Text))(t)
			if tr.FailurePattern != "" {
				t.Skip("the reference reader rejects it")
			}
			checkAgainstReference(t, data)
		})
	}
}
