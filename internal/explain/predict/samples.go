package predict

import (
	"sync"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
)

// Samples keeps a Sample of each group's requests. It implements pass.Sum.
type Samples struct {
	parts  []*sampler
	all    []*Sample // by path.GroupID
	mu     sync.Mutex
	rivals map[path.GroupKey]*rivals
}

// NewSamples returns Samples to which nothing was added.
func NewSamples() *Samples { return &Samples{rivals: make(map[path.GroupKey]*rivals)} }

// rivalsOf returns those of a group, for a worker that sees it for the first time.
func (s *Samples) rivalsOf(g path.GroupKey) *rivals {
	s.mu.Lock()
	defer s.mu.Unlock()
	return entry.In(s.rivals, g)
}

// NewAdder implements pass.Sum.
func (s *Samples) NewAdder(stage *path.Stage) path.Adder {
	p := &sampler{all: s, stage: stage, builder: NewBuilder(stage)}
	s.parts = append(s.parts, p)
	return p
}

// Merge brings together what all workers kept, by the groups of the report.
func (s *Samples) Merge(ts []path.Translation) {
	for i, p := range s.parts {
		for id, of := range p.groups {
			if of != nil {
				s.Of(ts[i].Groups[id]).Merge(of)
			}
		}
	}
	s.parts = nil
}

// Of returns the sample of a group.
func (s *Samples) Of(id path.GroupID) *Sample {
	for int(id) >= len(s.all) {
		s.all = append(s.all, new(Sample))
	}
	return s.all[id]
}

// A sampler is one worker's part of Samples.
type sampler struct {
	all     *Samples
	stage   *path.Stage
	builder *Builder
	groups  []*Sample // by path.GroupID
	unbuilt []*Sample
}

// Add implements pass.Adder.
func (p *sampler) Add(w *path.WalkResult) {
	if !w.IsComplete() {
		return
	}
	at := entry.At(&p.groups, w.Group)
	if *at == nil {
		*at = &Sample{rivals: p.all.rivalsOf(p.stage.IDs.Group(w.Group))}
	}
	s := *at
	if w.Form == path.Joined {
		if s.Count(w.Start, w.Req.End, w.Req.G, w.Weight) {
			s.Add(p.builder.Chain(w.Req.G, w.Start, w.Req.End, w.Segments))
		}
		return
	}
	if s.Want(w.Start, w.Req.End, w.Req.G, w.Weight) {
		p.unbuilt = append(p.unbuilt, s)
	}
}

// Flush builds the graphs of the requests that were added since the last call,
// as far as the sample holds them: the window still has them all.
func (p *sampler) Flush() {
	for _, s := range p.unbuilt {
		s.Fill(p.builder.Build)
	}
	p.unbuilt = p.unbuilt[:0]
}
