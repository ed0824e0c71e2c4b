package queues

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A goroutine in the background may keep a connection of a pool for much longer than requests wait for one: a blocking command
// keeps it until a message comes. Its release rarely ends a wait, so no hand-over shows it. Its stack does: it waits for the
// network below a later line of the library's function in which requests wait for a connection (see divergingPosition). At sampled
// instants during these waits, all goroutines that wait so hold a connection each.

// A holderSample has the goroutines that held connections of a pool at an instant.
type holderSample struct {
	time    int64
	holders []connectionHolder
}

// A connectionHolder is a goroutine with the site of its wait for the network.
type connectionHolder struct {
	g    uint64
	site tracefmt.FrameID
}

// Goroutines are sampled at multiples of sampleEveryNS, so that the samples do not depend on the worker, unless a generation has
// more than maxSampled.
const (
	sampleEveryNS = 50e6
	maxSampled    = 5_000
)

// A sampleKey identifies a cached sample by the line of the wait for the pool.
type sampleKey struct {
	line tracefmt.Line
	time int64
}

// sampleHolders returns the sample of a pool's holders during a wait for it at a line; nil if no sampled instant is in the wait.
func (p *workerSum) sampleHolders(wait *critpath.FollowedWait, line tracefmt.Line) *holderSample {
	key := sampleKey{line, wait.End - wait.End%sampleEveryNS}
	if sample, ok := p.holderSamples[key]; ok || key.time < wait.Start {
		return sample
	}
	var sample *holderSample
	if gen := p.stage.Win.Gens[p.stage.Win.GenIndex(key.time)]; gen.GoroutineCount() <= maxSampled {
		sample = &holderSample{time: key.time}
		gen.Goroutines(func(g uint64) {
			p.spans = p.stage.Win.SpansCoarse(g, key.time, key.time+1, p.spans[:0])
			if len(p.spans) > 0 && p.spans[0].State == timeline.Waiting && p.holdsConnection(wait.Stack, p.spans[0].Stack) {
				sample.holders = append(sample.holders, connectionHolder{g, p.stage.Sites.SiteOf(p.spans[0].Stack)})
			}
		})
	}
	p.holderSamples[key] = sample
	return sample
}

// holdsConnection reports whether a goroutine waits for the network below a later line of the function in which the waiter for a
// connection waits. The function is the library's: the service's own may do anything at its other lines.
func (p *workerSum) holdsConnection(waiter, holder tracefmt.StackID) bool {
	if !p.stage.Sites.HasRole(holder, knowledge.Poller) {
		return false
	}
	acquiring := p.divergingPosition(waiter, holder).line
	if acquiring == 0 {
		return false
	}
	return strings.HasPrefix(p.packageAt(p.stage.Sites.SiteOf(waiter)), p.packageAt(acquiring))
}

// sampledHolders adds up samples.
type sampledHolders struct {
	all, background           int64 // holders, and those of them that served no request
	maxHolders, maxBackground int   // the largest numbers in one sample
	backgroundBySite          map[tracefmt.FrameID]int64
}

// addSamples adds the samples of a generation, each once. requests has the goroutines that serve requests.
func (s *sampledHolders) addSamples(list []*handover, requests goroutineSet) {
	samples := map[int64]*holderSample{}
	for _, h := range list {
		if h.holders != nil {
			samples[h.holders.time] = h.holders
		}
	}
	for _, sample := range samples {
		background := 0
		for _, holder := range sample.holders {
			if !requests.contains(holder.g) {
				background++
				addToKey(&s.backgroundBySite, holder.site, 1, plusNS)
			}
		}
		s.all, s.background = s.all+int64(len(sample.holders)), s.background+int64(background)
		s.maxHolders, s.maxBackground = max(s.maxHolders, len(sample.holders)), max(s.maxBackground, background)
	}
}

// merge adds the samples of another generation.
func (s *sampledHolders) merge(addend *sampledHolders) {
	s.all, s.background = s.all+addend.all, s.background+addend.background
	s.maxHolders, s.maxBackground = max(s.maxHolders, addend.maxHolders), max(s.maxBackground, addend.maxBackground)
	addSums(&s.backgroundBySite, addend.backgroundBySite, plusNS)
}

// isMajority reports whether goroutines in the background are at least half of the holders.
func (s *sampledHolders) isMajority() bool { return s.background > 0 && 2*s.background >= s.all }

// site returns where most of the holders in the background wait.
func (s *sampledHolders) site(sp *spell.Speller) *report.Site {
	return sp.Site(slices.MinFunc(slices.Collect(maps.Keys(s.backgroundBySite)), func(a, b tracefmt.FrameID) int {
		return cmp.Or(cmp.Compare(s.backgroundBySite[b], s.backgroundBySite[a]), sp.CompareFrames(a, b))
	}))
}
