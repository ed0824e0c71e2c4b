package path

import (
	"fmt"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// IDs of causes, chains and groups, dense from 0. Each Stage numbers its own; MergeIDs translates them.
type (
	CauseID int32 // of a CauseKey
	ChainID int32 // of a chain of waits; 0 is the empty chain
	GroupID int32 // of a GroupKey
)

// A CauseKey identifies a cause with its site and wait chain. Times with equal keys are added up.
type CauseKey struct {
	Code       cause.Code
	SiteSource cause.SiteSource
	RunLength  cause.RunLength // of running time whose site comes from the events around it
	Inbound    bool
	Site       tracefmt.FrameID
	Kind       tracefmt.StringID
	Call       tracefmt.StringID
	Chain      ChainID
	Remote     int32 // see cause.Segment
}

// WithSettledCause returns the key with the final cause: a pending code becomes a freeze or the cause without it, as the
// settlement says.
func (k CauseKey) WithSettledCause(settlement *cause.Settlement) CauseKey {
	switch {
	case !k.Code.IsPending():
	case settlement[k.Code] == cause.Throttle:
		return CauseKey{Code: cause.Code(cause.Throttle), Site: k.Site, Chain: k.Chain} // as Segment.AsThrottled does
	default:
		k.Code = cause.Code(k.Code.Cause())
	}
	return k
}

// A GroupKey identifies a group of requests.
type GroupKey struct {
	Kind request.Kind
	Name tracefmt.StringID // task, region or handler; 0 if unknown
	Path request.CallPath  // the calls below the handler that all stacks of the request have in common
}

// Text returns the key as text, which does not depend on the numbering of strings and so is equal in all runs over one trace.
func (k GroupKey) Text(syms *tracefmt.Symbols) string {
	text := fmt.Sprintf("%d %q", k.Kind, syms.String(k.Name))
	for _, p := range k.Path {
		text += fmt.Sprintf(" %q", syms.String(p))
	}
	return text
}

// A ChainWait is one wait of the chain of followed waits that led to a segment.
type ChainWait struct {
	Kind critpath.WaitKind
	Site tracefmt.FrameID
	Call tracefmt.StringID
}

// A chainKey is a wait and the chain of waits before it.
type chainKey struct {
	parent ChainID
	ChainWait
}

// A chain is a wait with the chain before it, and its length.
type chain struct {
	chainKey
	depth         int
	leadsToAnswer bool // it contains a wait for an answer of this process
}

// maxChainLength bounds the waits of a chain that distinguish causes.
const maxChainLength = 6

// IDs gives causes, wait chains and groups ids, dense from 0.
type IDs struct {
	causes   numbering[CauseKey, CauseID]
	chains   []chain
	chainIDs map[chainKey]ChainID
	recent   [256]cachedID[chainKey, ChainID] // results of chainID
	groups   numbering[GroupKey, GroupID]
}

// A numbering gives keys ids, dense from 0. A small cache in front of the map serves most calls: most segments of a
// service have one of a few hundred causes.
type numbering[K comparable, ID ~int32] struct {
	keys  []K
	ids   map[K]ID
	cache [1024]cachedID[K, ID]
}

type cachedID[K comparable, ID ~int32] struct {
	key    K
	id     ID
	isUsed bool
}

// id returns the id of a key, assigning the next one to a new key. hash may be any number that depends on the key; it selects
// the cache entry.
func (n *numbering[K, ID]) id(key K, hash uint32) ID {
	cached := &n.cache[hash%uint32(len(n.cache))]
	if cached.isUsed && cached.key == key {
		return cached.id
	}
	id, ok := n.ids[key]
	if !ok {
		id = ID(len(n.keys))
		n.keys = append(n.keys, key)
		n.ids[key] = id
	}
	*cached = cachedID[K, ID]{key, id, true}
	return id
}

func newIDs() *IDs {
	x := &IDs{chains: []chain{{}}, chainIDs: make(map[chainKey]ChainID)}
	x.causes.ids, x.groups.ids = make(map[CauseKey]CauseID), make(map[GroupKey]GroupID)
	return x
}

// Cause returns the key of a cause.
func (x *IDs) Cause(id CauseID) *CauseKey { return &x.causes.keys[id] }

// Group returns the key of a group.
func (x *IDs) Group(id GroupID) GroupKey { return x.groups.keys[id] }

// GroupCount returns the number of groups.
func (x *IDs) GroupCount() int { return len(x.groups.keys) }

// Chain returns the waits of a chain, the request's own wait first.
func (x *IDs) Chain(id ChainID) (out []ChainWait) {
	for ; id != 0; id = x.chains[id].parent {
		out = append(out, x.chains[id].ChainWait)
	}
	slices.Reverse(out)
	return out
}

// LeadsToAnswer reports whether a chain leads into another request of this process, by a network wait for its answer.
func (x *IDs) LeadsToAnswer(id ChainID) bool { return x.chains[id].leadsToAnswer }

// LastSite returns the site of a chain's last wait, 0 for the empty chain.
func (x *IDs) LastSite(id ChainID) tracefmt.FrameID { return x.chains[id].Site }

// causeID returns the id of a cause, assigning one to a new cause.
func (x *IDs) causeID(key CauseKey) CauseID {
	h := sample.Spread(uint64(key.Site)<<32 | uint64(uint32(key.Chain))<<8 | uint64(key.Code)<<2 | uint64(key.SiteSource) | uint64(key.RunLength)<<5 ^ uint64(key.Remote)<<20)
	return x.causes.id(key, uint32(h>>54))
}

// chainID returns the id of a chain, assigning one to a new chain. A wait that repeats its parent is dropped, as are the middle
// waits of a chain longer than maxChainLength.
func (x *IDs) chainID(key chainKey) ChainID {
	cached := &x.recent[sample.Spread(uint64(key.parent)<<32|uint64(key.Site))>>56]
	if !cached.isUsed || cached.key != key {
		*cached = cachedID[chainKey, ChainID]{key, x.findChain(key), true}
	}
	return cached.id
}

// findChain looks up or assigns the id of a chain, see chainID. In a chain that is too long it drops the last wait but one,
// because the first waits and the last one are more informative.
func (x *IDs) findChain(key chainKey) ChainID {
	parent := &x.chains[key.parent]
	if parent.depth >= maxChainLength && !parent.leadsToAnswer {
		// The first waits and the last one are more informative than those between.
		key.parent, parent = parent.parent, &x.chains[parent.parent]
	}
	if key.parent != 0 && parent.ChainWait == key.ChainWait || parent.depth >= maxChainLength {
		return key.parent
	}
	id, ok := x.chainIDs[key]
	if !ok {
		id = ChainID(len(x.chains))
		x.chains = append(x.chains, chain{key, parent.depth + 1, x.chains[key.parent].leadsToAnswer || key.Kind == critpath.WaitPeer})
		x.chainIDs[key] = id
	}
	return id
}

// GroupID returns the id of a group, and assigns one to a new group.
func (x *IDs) GroupID(key GroupKey) GroupID { return x.groups.id(key, uint32(key.Name)) }

// A Translation maps the ids of one Stage to merged ids.
type Translation struct {
	Causes []CauseID
	Groups []GroupID
}

// MergeIDs adds the ids of all stages to those of the first one. It returns, for each stage including the first, the
// translation of its ids to the merged ones.
func MergeIDs(stages []*Stage) []Translation {
	translations := make([]Translation, len(stages))
	merged := stages[0].IDs
	for i, s := range stages {
		ids, translation := s.IDs, &translations[i]
		chains := make([]ChainID, len(ids.chains))
		for c := 1; c < len(chains); c++ {
			k := ids.chains[c].chainKey
			k.parent = chains[k.parent]
			chains[c] = merged.chainID(k)
		}
		for _, k := range ids.causes.keys {
			k.Chain = chains[k.Chain]
			translation.Causes = append(translation.Causes, merged.causeID(k))
		}
		for _, k := range ids.groups.keys {
			translation.Groups = append(translation.Groups, merged.GroupID(k))
		}
	}
	return translations
}
