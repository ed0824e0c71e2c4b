package path

import (
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// TestMergeIDs: keys that two stages numbered in different orders are equal after translation, and different keys
// stay different.
func TestMergeIDs(t *testing.T) {
	syms := tracefmt.NewSymbols().Snapshot()
	var stages []*Stage
	for range 2 {
		stages = append(stages, New(&timeline.Window{}, &syms, Options{}))
	}
	waits := []ChainWait{{critpath.WaitChan, 1, 0}, {critpath.WaitLock, 2, 0}, {critpath.WaitLock, 3, 4}}
	chain := func(x *IDs, list ...int) (id ChainID) {
		for _, i := range list {
			id = x.chainID(chainKey{id, waits[i]})
		}
		return id
	}
	chains := [][]int{{}, {0}, {0, 1}, {1, 0}, {1, 2}, {2}}
	names := make([]map[int]CauseID, 2) // by index of chains
	groups := make([]map[int]GroupID, 2)
	for i, s := range stages {
		names[i], groups[i] = map[int]CauseID{}, map[int]GroupID{}
		for k := range chains {
			if i == 1 {
				k = len(chains) - 1 - k
			}
			if i == 0 && k == 3 || i == 1 && k == 1 {
				continue // a chain that only the other stage has
			}
			names[i][k] = s.IDs.causeID(CauseKey{Code: cause.Pending(cause.CPU, 3), Site: 9, Chain: chain(s.IDs, chains[k]...)})
			groups[i][k] = s.IDs.GroupID(GroupKey{Kind: request.HTTP1, Name: tracefmt.StringID(k)})
		}
	}
	ts := MergeIDs(stages)
	all := stages[0].IDs
	for k, list := range chains {
		var want []ChainWait
		for _, i := range list {
			want = append(want, waits[i])
		}
		var ids []CauseID
		for i := range stages {
			id, ok := names[i][k]
			if !ok {
				continue
			}
			to := ts[i].Causes[id]
			ids = append(ids, to)
			if got := all.Chain(all.Cause(to).Chain); !slices.Equal(got, want) {
				t.Errorf("stage %d: chain %d became %v, want %v", i, k, got, want)
			}
			if got := all.Group(ts[i].Groups[groups[i][k]]); got.Name != tracefmt.StringID(k) {
				t.Errorf("stage %d: group %d became %v", i, k, got)
			}
		}
		check.Equal(t, slices.Min(ids), slices.Max(ids), "chain %d has two ids: %v", k, ids)
	}
	check.Equal(t, len(all.causes.keys), len(chains), "causes")
	check.Equal(t, all.GroupCount(), len(chains), "groups")
}

// TestChains: a repeated wait counts once, and a chain that is too long loses waits between its beginning and the
// last one.
func TestChains(t *testing.T) {
	x := newIDs()
	a, b := ChainWait{critpath.WaitChan, 1, 0}, ChainWait{critpath.WaitLock, 2, 0}
	id := x.chainID(chainKey{0, a})
	if repeated := x.chainID(chainKey{id, a}); repeated != id {
		t.Errorf("a repeated wait has the chain %v", x.Chain(repeated))
	}
	for i := range 20 {
		v := b
		if i%2 == 1 {
			v = a
		}
		id = x.chainID(chainKey{id, v})
	}
	if got := x.Chain(id); !slices.Equal(got, []ChainWait{a, b, a, b, a}) {
		t.Errorf("a chain of 21 waits has become %v", got)
	}
	for site := range tracefmt.FrameID(3) {
		last := ChainWait{critpath.WaitSelect, 3 + site, 0}
		id = x.chainID(chainKey{id, last})
		if got := x.Chain(id); !slices.Equal(got, []ChainWait{a, b, a, b, a, last}) || x.LastSite(id) != last.Site {
			t.Errorf("with one more wait it has become %v", got)
		}
	}
}
