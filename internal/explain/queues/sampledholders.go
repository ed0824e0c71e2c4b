package queues

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A goroutine in the background may keep a connection of a pool for much longer than requests wait for one: a blocking command
// keeps it until a message comes. Its release rarely ends a wait, so no hand-over shows it. Its stack does: it waits for the
// network below a later line of the library's function in which requests wait for a connection (see divergingPosition). At sampled
// instants during these waits, all goroutines that wait so hold a connection each.
//
// Calls of net/http that wait for their answers hold a connection each, too, but perhaps of another Transport. All connections of a Transport
// with a limit are in use while requests wait for one. If the calls of the route that waits most are mostly fewer than at times, those of
// other routes have the rest. Calls of these that take far longer are reported as goroutines in the background are.

// A holderSample has the goroutines that held connections of a pool at an instant.
type holderSample struct {
	time    int64
	isHTTP  bool // of an http.Transport
	holders []connectionHolder
	waiters map[tracefmt.FrameID]bool // sites of those that wait for a connection of an http.Transport
}

// A connectionHolder is a goroutine with the site of its wait for the network (net/http: its routeSite), and for how long it has waited.
type connectionHolder struct {
	g, creator  uint64
	site        tracefmt.FrameID
	waitNS      int64
	isOtherKind bool // of net/http: its first function is not that of the waiter
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
		sample = &holderSample{time: key.time, isHTTP: p.stage.Sites.HasRole(wait.Stack, knowledge.ConnectionWait)}
		gen.Goroutines(func(g uint64) {
			p.spans = p.stage.Win.SpansCoarse(g, key.time, key.time+1, p.spans[:0])
			if len(p.spans) == 0 || p.spans[0].State != timeline.Waiting {
				return
			}
			if sample.isHTTP && p.stage.Sites.HasRole(p.spans[0].Stack, knowledge.ConnectionWait) {
				entry.Put(&sample.waiters, p.routeSite(p.spans[0].Stack), true)
			}
			if p.holdsConnection(wait.Stack, p.spans[0].Stack) {
				birth, _ := p.stage.Win.BirthBefore(g, key.time)
				holder := connectionHolder{g: g, creator: birth.Creator, site: p.stage.Sites.SiteOf(p.spans[0].Stack), waitNS: key.time - max(p.spans[0].Start, 0)}
				if sample.isHTTP {
					holder.site, holder.isOtherKind = p.routeSite(p.spans[0].Stack), p.firstFunc(wait.Stack) != p.firstFunc(p.spans[0].Stack)
				}
				sample.holders = append(sample.holders, holder)
			}
		})
	}
	p.holderSamples[key] = sample
	return sample
}

// routeSite returns the outermost frame of a stack outside of the standard library and of what starts goroutines: routes may make their calls at one
// line.
func (p *workerSum) routeSite(stack tracefmt.StackID) tracefmt.FrameID {
	for _, frame := range slices.Backward(p.stage.Syms.Stack(stack)) {
		if roles := p.stage.Sites.RolesOf(frame); roles.Has(knowledge.NonStdlib) && !roles.Has(knowledge.GenericStarter) && !roles.Has(knowledge.Errgroup) {
			return frame
		}
	}
	return 0
}

// firstFunc returns the outermost function of a stack.
func (p *workerSum) firstFunc(stack tracefmt.StackID) tracefmt.StringID {
	frames := p.stage.Syms.Stack(stack)
	return p.stage.Syms.Frame(frames[len(frames)-1]).Func
}

// holdsConnection reports whether a goroutine waits for the network below a later line of the function in which the waiter for a
// connection waits. The function is the library's: the service's own may do anything at its other lines.
func (p *workerSum) holdsConnection(waiter, holder tracefmt.StackID) bool {
	if p.stage.Sites.HasRole(waiter, knowledge.ConnectionWait) {
		return p.stage.Sites.HasRole(holder, knowledge.HTTP1RoundTrip)
	}
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
	all, background           int64 // holders, and those of them that served no request, or made long calls elsewhere
	maxHolders, maxBackground int   // the largest numbers in one sample
	backgroundBySite          map[tracefmt.FrameID]int64
	byOwnCalls                map[int]int64 // of an http.Transport: samples, by the number of calls of the route that waits most
}

// addSamples adds the samples of a generation, each once. requests has the goroutines that serve requests.
func (s *sampledHolders) addSamples(list []*handover, requests goroutineSet) {
	samples, waits, ownRoute := map[int64]*holderSample{}, map[tracefmt.FrameID]int{}, tracefmt.FrameID(0)
	isRequest := func(h *handover) bool { return requests.contains(h.requestG) }
	waiters, hasRequests := map[tracefmt.FrameID]bool{}, slices.ContainsFunc(list, isRequest)
	for _, h := range list {
		if !hasRequests || isRequest(h) {
			if waits[h.route]++; waits[h.route] > waits[ownRoute] {
				ownRoute = h.route
			}
		}
		if h.holders != nil {
			samples[h.holders.time] = h.holders
			maps.Copy(waiters, h.holders.waiters)
		}
	}
	for _, sample := range samples {
		background, own, ownNS := 0, 0, int64(0)
		// The sample may be one of several lists, which have other waiters.
		holders := slices.DeleteFunc(slices.Clone(sample.holders), func(h connectionHolder) bool { return h.isOtherKind && !waiters[h.site] })
		for _, holder := range holders {
			if holder.site == ownRoute {
				own, ownNS = own+1, max(ownNS, holder.waitNS)
			}
		}
		for _, holder := range holders {
			isBackground := !requests.contains(holder.g)
			if sample.isHTTP {
				isBackground = holder.site != ownRoute && (holder.waitNS > threshold.FarFactor*ownNS || isBackground && !requests.contains(holder.creator))
			}
			if isBackground {
				background++
				addToKey(&s.backgroundBySite, holder.site, 1, plusNS)
			}
		}
		if sample.isHTTP {
			addToKey(&s.byOwnCalls, own, 1, plusNS)
		}
		s.all, s.background = s.all+int64(len(holders)), s.background+int64(background)
		s.maxHolders, s.maxBackground = max(s.maxHolders, len(holders)), max(s.maxBackground, background)
	}
}

// merge adds the samples of another generation.
func (s *sampledHolders) merge(addend *sampledHolders) {
	s.all, s.background = s.all+addend.all, s.background+addend.background
	s.maxHolders, s.maxBackground = max(s.maxHolders, addend.maxHolders), max(s.maxBackground, addend.maxBackground)
	addSums(&s.backgroundBySite, addend.backgroundBySite, plusNS)
	addSums(&s.byOwnCalls, addend.byOwnCalls, plusNS)
}

// isMajority reports whether goroutines in the background are at least half of the holders, and hold connections of the same pool.
func (s *sampledHolders) isMajority() bool {
	return s.background > 0 && 2*s.background >= s.all && s.ownLimit() == 0
}

// ownLimit returns how many calls of the route that waits most have a connection of an http.Transport while others wait: the largest number, if half
// of the samples have it; else 0, as other calls have the rest.
func (s *sampledHolders) ownLimit() int {
	most, samples := 0, int64(0)
	for own, n := range s.byOwnCalls {
		most, samples = max(most, own), samples+n
	}
	if float64(s.byOwnCalls[most]) < threshold.HalfShare*float64(samples) {
		return 0
	}
	return most
}

// site returns where most of the holders in the background wait.
func (s *sampledHolders) site(sp *spell.Speller) *report.Site {
	return sp.Site(slices.MinFunc(slices.Collect(maps.Keys(s.backgroundBySite)), func(a, b tracefmt.FrameID) int {
		return cmp.Or(cmp.Compare(s.backgroundBySite[b], s.backgroundBySite[a]), sp.CompareFrames(a, b))
	}))
}
