package path

import (
	"fmt"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// Ids number what a Stage found, densely from 0, so that adders can hold it in
// slices. They are the Stage's own: Merge translates those of several.
type (
	CauseID int32 // of a CauseKey
	ChainID int32 // of a chain of waits; 0 is the empty one
	GroupID int32 // of a GroupKey
)

// A CauseKey distinguishes what requests spend time on.
type CauseKey struct {
	Code    cause.Code
	From    cause.SiteSource
	Run     cause.RunLength // of running time that shows no stack
	Inbound bool
	Site    tracefmt.FrameID
	Kind    tracefmt.StringID
	Call    tracefmt.StringID
	Chain   ChainID
}

// Settled returns the key with its settled cause.
func (k CauseKey) Settled(by *cause.Settlement) CauseKey {
	switch {
	case !k.Code.IsPending():
	case by[k.Code] == cause.Throttle:
		return CauseKey{Code: cause.Code(cause.Throttle), Site: k.Site, Chain: k.Chain} // as Segment.Throttled does
	default:
		k.Code = cause.Code(k.Code.Cause())
	}
	return k
}

// A GroupKey tells groups of requests apart.
type GroupKey struct {
	Kind request.Kind
	Name tracefmt.StringID // task, region or handler; 0: not named
	Path request.CallPath  // what all stacks of the request have in common below it
}

// Text returns what the key says, equal in all runs over one trace.
func (k GroupKey) Text(syms *tracefmt.Symbols) string {
	text := fmt.Sprintf("%d %q", k.Kind, syms.String(k.Name))
	for _, p := range k.Path {
		text += fmt.Sprintf(" %q", syms.String(p))
	}
	return text
}

// A Via is a wait on the way to a segment.
type Via struct {
	Wait critpath.WaitKind
	Site tracefmt.FrameID
	Call tracefmt.StringID
}

// viaKey is a wait and the chain of waits before it.
type viaKey struct {
	parent ChainID
	Via
}

type chain struct {
	viaKey
	depth  int
	served bool // a wait for an answer of the process is among it
}

// maxChain bounds the chain of waits that causes are distinguished by.
const maxChain = 6

// IDs numbers causes, chains and groups.
type IDs struct {
	causes   numbering[CauseKey, CauseID]
	chains   []chain
	chainIDs map[viaKey]ChainID
	groups   numbering[GroupKey, GroupID]
}

// A numbering gives keys ids, densely from 0. A small cache stands in front of the map: most segments of one service have one of
// a few hundred causes.
type numbering[K comparable, ID ~int32] struct {
	keys   []K
	ids    map[K]ID
	recent [1024]recent[K, ID]
}

type recent[K comparable, ID ~int32] struct {
	key K
	id  ID
	ok  bool
}

// id returns the id of a key, a new one if it has none. hash is any number that tells keys apart.
func (n *numbering[K, ID]) id(k K, hash uint32) ID {
	near := &n.recent[hash%uint32(len(n.recent))]
	if near.ok && near.key == k {
		return near.id
	}
	id, ok := n.ids[k]
	if !ok {
		id = ID(len(n.keys))
		n.keys = append(n.keys, k)
		n.ids[k] = id
	}
	*near = recent[K, ID]{k, id, true}
	return id
}

func newIDs() *IDs {
	x := &IDs{chains: []chain{{}}, chainIDs: make(map[viaKey]ChainID)}
	x.causes.ids, x.groups.ids = make(map[CauseKey]CauseID), make(map[GroupKey]GroupID)
	return x
}

// Cause returns the key of an id.
func (x *IDs) Cause(id CauseID) *CauseKey { return &x.causes.keys[id] }

// Group returns the key of an id.
func (x *IDs) Group(id GroupID) GroupKey { return x.groups.keys[id] }

// Groups returns how many groups there are.
func (x *IDs) Groups() int { return len(x.groups.keys) }

// Chain spells a chain of waits out, the request's own first.
func (x *IDs) Chain(id ChainID) []Via {
	var out []Via
	for ; id != 0; id = x.chains[id].parent {
		out = append(out, x.chains[id].Via)
	}
	slices.Reverse(out)
	return out
}

// Served reports whether a chain leads into another request of the process, which was asked over the network.
func (x *IDs) Served(id ChainID) bool { return x.chains[id].served }

// LastSite returns the site of the last wait of a chain, 0 for the empty one.
func (x *IDs) LastSite(id ChainID) tracefmt.FrameID { return x.chains[id].Site }

func (x *IDs) cause(k CauseKey) CauseID {
	h := (uint64(k.Site)<<32 | uint64(uint32(k.Chain))<<8 | uint64(k.Code)<<2 | uint64(k.From) | uint64(k.Run)<<5) * 0x9e3779b97f4a7c15
	return x.causes.id(k, uint32(h>>54))
}

// chain numbers a chain; the same wait twice in a row counts once, and chains
// have maxChain at most.
func (x *IDs) chain(k viaKey) ChainID {
	p := &x.chains[k.parent]
	if p.depth >= maxChain && !p.served {
		// Who the first ones wait behind, and what the last one does, say more than those between.
		k.parent, p = p.parent, &x.chains[p.parent]
	}
	if k.parent != 0 && p.Via == k.Via || p.depth >= maxChain {
		return k.parent
	}
	id, ok := x.chainIDs[k]
	if !ok {
		id = ChainID(len(x.chains))
		x.chains = append(x.chains, chain{k, p.depth + 1, x.chains[k.parent].served || k.Wait == critpath.WaitPeer})
		x.chainIDs[k] = id
	}
	return id
}

// ID returns the id of a group, a new one if it has none.
func (x *IDs) ID(k GroupKey) GroupID { return x.groups.id(k, uint32(k.Name)) }

// A Translation gives, for ids of one Stage, those of another.
type Translation struct {
	Causes []CauseID
	Groups []GroupID
}

// Merge numbers what all stages found by the ids of the first one, and returns
// how to translate each one's, the first one's among them.
func Merge(stages []*Stage) []Translation {
	out := make([]Translation, len(stages))
	all := stages[0].IDs
	for i, s := range stages {
		x, t := s.IDs, &out[i]
		chains := make([]ChainID, len(x.chains))
		for c := 1; c < len(chains); c++ {
			k := x.chains[c].viaKey
			k.parent = chains[k.parent]
			chains[c] = all.chain(k)
		}
		for _, k := range x.causes.keys {
			k.Chain = chains[k.Chain]
			t.Causes = append(t.Causes, all.cause(k))
		}
		for _, k := range x.groups.keys {
			t.Groups = append(t.Groups, all.ID(k))
		}
	}
	return out
}
