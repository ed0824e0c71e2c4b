package spell

import (
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestVocabulary compares the names of the engine's enumerations with those of the report.
func TestVocabulary(t *testing.T) {
	var causes []report.CauseName
	for i := range cause.Count {
		causes = append(causes, report.CauseName(cause.Cause(i).String()))
	}
	checkEqual(t, "causes", causes, slices.DeleteFunc(report.Causes(), func(c report.CauseName) bool { return c == report.CauseOther }))
	var waits []report.WaitKind
	for w := critpath.WaitOther; w <= critpath.WaitPeer; w++ {
		waits = append(waits, report.WaitKind(w.String()))
	}
	checkEqual(t, "kinds of wait", waits, report.WaitKinds())
	var kinds []report.Kind
	for k := request.Mark; k <= request.Run; k++ {
		kinds = append(kinds, report.Kind(k.String()))
		if k.IsCall() && !k.HasProtocol() || k.HasProtocol() && !k.IsServed() {
			t.Errorf("%s: is a call %t, has a protocol %t, is served %t", k, k.IsCall(), k.HasProtocol(), k.IsServed())
		}
	}
	checkEqual(t, "kinds of group", kinds, report.Kinds())
}

func checkEqual[S ~string](t *testing.T, list string, a, b []S) {
	t.Helper()
	slices.Sort(a)
	slices.Sort(b)
	check.True(t, slices.Equal(a, b), "%s: the engine has %q, the report %q", list, a, b)
}
