package peers

import (
	"math/rand/v2"
	"testing"

	"github.com/whylate/whylate/internal/explain/answers"
	"github.com/whylate/whylate/internal/explain/path"
)

// TestFurtherGroups checks the bound of the groups that serve one group's waits: with one method more than that the waits of the
// last one have no answer, and there is no peer.
func TestFurtherGroups(t *testing.T) {
	for methods := 2; methods <= maxFurtherGroups+3; methods++ {
		sum := &Sum{waits: map[path.GroupID][]answers.Span{}, requests: map[path.GroupID][]answers.Span{}}
		rnd := rand.New(rand.NewPCG(5, 6))
		now := int64(0)
		for i := range uint64(120) {
			now += 3*ms + rnd.Int64N(6*ms)
			sum.waits[1] = append(sum.waits[1], answers.Span{Start: now, End: now + ms, Request: answers.RequestKey{G: i, Start: now}, Parts: []answers.WaitPart{{Start: now, Wake: now + 950*us, G: i}}})
			method := path.GroupID(2 + i%uint64(methods))
			sum.requests[method] = append(sum.requests[method], answers.Span{Start: now + 100*us, End: now + 900*us, Request: answers.RequestKey{G: 1000 + i, Start: now}})
		}
		p, ok := sum.PeerOf(1)
		if want := methods <= maxFurtherGroups+1; ok != want || ok && len(p.FurtherGroups) != methods-1 {
			t.Errorf("%d methods: %+v, %v", methods, p, ok)
		}
	}
}
