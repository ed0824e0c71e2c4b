package predict

import (
	"iter"
	"sync"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
)

// Samples holds a Sample of each group's requests. It implements pass.Sum.
type Samples struct {
	samplers    []*sampler
	byGroup     []*Sample // by path.GroupID
	mu          sync.Mutex
	keysByGroup map[path.GroupKey]*smallestKeys
}

// NewSamples returns empty Samples.
func NewSamples() *Samples { return &Samples{keysByGroup: make(map[path.GroupKey]*smallestKeys)} }

// smallestKeysOf returns the keys that all workers' samples of a group share.
func (s *Samples) smallestKeysOf(g path.GroupKey) *smallestKeys {
	s.mu.Lock()
	defer s.mu.Unlock()
	return entry.GetOrAdd(s.keysByGroup, g)
}

// NewAdder implements pass.Sum: it returns the sampler of one worker, whose requests stage walks.
func (s *Samples) NewAdder(stage *path.Stage) path.Adder {
	p := &sampler{samples: s, stage: stage, builder: NewBuilder(stage)}
	s.samplers = append(s.samplers, p)
	return p
}

// Merge combines the samples of all workers by the groups of the report. Graphs that are still reserved need Build.
func (s *Samples) Merge(ts []path.Translation) {
	for i, p := range s.samplers {
		for id, sample := range p.groups {
			if sample != nil {
				s.SampleOf(ts[i].Groups[id]).Merge(sample)
			}
		}
	}
	s.samplers = nil
}

// Build begins to build the graphs of some groups that are still reserved, in the background. The window must remain that of the
// trace's end, and the samples must not be used, until the returned function has returned.
func (s *Samples) Build(groups iter.Seq[path.GroupID]) (wait func()) {
	reserved := make(map[*Builder][]*Graph)
	for id := range groups {
		s.SampleOf(id).eachGraph(func(g *Graph, _ float64) {
			if g.builder != nil {
				reserved[g.builder] = append(reserved[g.builder], g)
			}
		})
	}
	var wg sync.WaitGroup
	for _, list := range reserved {
		wg.Go(func() {
			for _, g := range list {
				g.build()
			}
		})
	}
	return wg.Wait
}

// SampleOf returns the sample of a group, creating it on demand.
func (s *Samples) SampleOf(id path.GroupID) *Sample {
	for int(id) >= len(s.byGroup) {
		s.byGroup = append(s.byGroup, new(Sample))
	}
	return s.byGroup[id]
}

// A sampler is one worker's part of Samples.
type sampler struct {
	samples *Samples
	stage   *path.Stage
	builder *Builder
	groups  []*Sample // by path.GroupID
	pending []*Sample
}

// Add adds a request whose complete path is known to the sample of its group. A path that was joined from pieces is stored as a
// chain at once, because the window no longer contains it. It implements path.Adder.
func (p *sampler) Add(w *path.WalkResult) {
	if !w.IsComplete() {
		return
	}
	slot := entry.GetOrGrow(&p.groups, w.Group)
	if *slot == nil {
		*slot = &Sample{smallestKeys: p.samples.smallestKeysOf(p.stage.IDs.Group(w.Group))}
	}
	sample := *slot
	if w.Form == path.Joined {
		if sample.Count(w.Start, w.Req.End, w.Req.G, w.Weight) {
			sample.Add(p.builder.Chain(w.Req.G, w.Start, w.Req.End, w.Segments, w.Unlisted, nil))
		}
		return
	}
	if sample.Reserve(w.Start, w.Req.End, w.Req.G, w.Weight, p.builder) {
		p.pending = append(p.pending, sample)
	}
}

// Flush builds the graphs of the requests that were added since the last call and are still selected. It implements pass.Flusher.
func (p *sampler) Flush() {
	for _, s := range p.pending {
		s.BuildPending()
	}
	p.pending = p.pending[:0]
}
