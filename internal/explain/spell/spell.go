// Package spell converts the engine's values to those of a report: frames to sites, chains of waits, segments, causes
// and ids. The input is dense ids, such as tracefmt.FrameID; the output is structs of package report with names, files
// and modules. It computes no statistics except Shares.
//
// A site of a report may have two frames. If the site is in a library, CalledFrom is the service's own line that led to
// it: by a call, or by a chain of waits on other goroutines (see Speller.ServiceFrame).
package spell

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/threadstate"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/trace/modules"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A PathRewrite replaces the prefix Old of a file name by New.
type PathRewrite struct{ Old, New string }

// A Speller converts values for one report.
type Speller struct {
	Syms  *tracefmt.Symbols
	Sites *cause.Sites
	// Start and End are the bounds of the trace. The report's times are relative to Start.
	Start, End int64
	// Paths are rewrites of file names. The first that matches applies.
	Paths []PathRewrite
	// Modules finds the modules of functions. If it is nil, sites have no module.
	Modules *modules.Set
	// Settlement says which candidates for freezes were freezes.
	Settlement *cause.Settlement
	// Queues are the queues of each group, by id. They are known only after the findings; until then no time has the cause queue.
	Queues map[string][]*report.Queue
	// Remotes are the causes of other services: see RemoteCause. The first is not used.
	Remotes []RemoteCause
}

// Site returns the site of a frame, nil for 0.
func (s *Speller) Site(f tracefmt.FrameID) *report.Site {
	return s.SiteFor(f, s.Syms.Frame(f).Caller, nil)
}

// SiteFor returns the report's site of a frame; nil for 0. serviceFrame, if not 0, is the service's own line that led to the
// frame, and vias the chain of waits between the two.
func (s *Speller) SiteFor(frame, serviceFrame tracefmt.FrameID, vias []report.Via) *report.Site {
	if frame == 0 {
		return nil
	}
	fr := s.Syms.MethodOfWrapper(frame)
	fn, file := s.Syms.String(fr.Func), s.Syms.String(fr.File)
	out := &report.Site{Func: fn, File: s.File(file), Line: int(fr.Line)}
	if serviceFrame != 0 {
		from := s.Syms.MethodOfWrapper(serviceFrame)
		out.CalledFrom = &report.Caller{Func: s.Syms.String(from.Func), File: s.File(s.Syms.String(from.File)), Line: int(from.Line)}
	}
	switch callee := s.Syms.Callee(frame); {
	case callee == 0:
	case s.Syms.Frame(frame).Caller != 0:
		out.CalledFrom.Calls = s.Syms.String(callee)
	default:
		out.Does = knowledge.Activity(fn, s.Syms.String(callee))
	}
	if s.Modules != nil && !s.Modules.IsOwn(fn, file) {
		m := s.Modules.ModuleOf(fn, file)
		out.Module, out.Version = m.Path, m.Version
	}
	if c := out.CalledFrom; c != nil && s.Syms.Frame(frame).Caller == 0 {
		c.OtherGoroutine = !slices.ContainsFunc(vias, func(v report.Via) bool {
			return v.Site.OwnLine().LineKey() == c.Site().LineKey() && callsInto(&v, out)
		})
	}
	return out
}

// callsInto reports whether a wait is in a call of the same library that contains the site. An example is a call of a client
// whose other goroutine reads the answer. All packages of the standard library count as one library.
func callsInto(v *report.Via, site *report.Site) bool {
	if site.Module != "" {
		return v.Site.Module == site.Module
	}
	p := stdlib.Package(v.Call)
	return p != "" && p != "runtime" && p != "sync"
}

// ServiceFrame returns the frame of the service's own code that led to a site in other code: the caller of the site, else that
// of the last wait in the chain that has one, else starter, the line that started the request's goroutine. It is 0 if none is
// known, or if the site itself is service code.
func (s *Speller) ServiceFrame(site tracefmt.FrameID, vias []path.ChainWait, starter tracefmt.FrameID) tracefmt.FrameID {
	if site == 0 || s.Modules == nil {
		return 0
	}
	fr := s.Syms.Frame(site)
	if fr.Caller != 0 {
		return fr.Caller
	}
	if s.isService(fr) {
		return 0
	}
	for i := len(vias) - 1; i >= 0; i-- {
		if vias[i].Kind == critpath.WaitPeer {
			return 0 // earlier waits are of the requests that wait for this one
		}
		switch v := s.Syms.Frame(vias[i].Site); {
		case v.Caller != 0:
			return v.Caller
		case vias[i].Site != 0 && s.isService(v):
			return vias[i].Site
		}
	}
	if starter != 0 && s.isService(s.Syms.Frame(starter)) {
		return starter
	}
	return 0
}

// isService reports whether a frame is in the service's own code.
func (s *Speller) isService(f tracefmt.Frame) bool {
	return s.Modules.IsOwn(s.Syms.String(f.Func), s.Syms.String(f.File))
}

// File returns a file name with its prefix rewritten by the first of Paths that matches.
func (s *Speller) File(name string) string {
	for _, r := range s.Paths {
		if rest, ok := strings.CutPrefix(name, r.Old); ok {
			return r.New + rest
		}
	}
	return name
}

// Cause returns the report's name of a cause.
func Cause(c cause.Cause) report.CauseName { return report.CauseName(c.String()) }

// Vias converts a chain of waits to the form of the report, in the same order; not nil.
func (s *Speller) Vias(vs []path.ChainWait) []report.Via {
	out := []report.Via{}
	for _, x := range vs {
		out = append(out, report.Via{Wait: report.WaitKind(x.Kind.String()), Site: s.Site(x.Site), Call: s.Syms.String(x.Call)})
	}
	return out
}

// Segment converts a segment with a final cause, and the chain of waits that led to it, to the form of the report. starter is
// the line that started the request's goroutine: it is the caller of sites outside the service's code if no other line of the
// service is known.
func (s *Speller) Segment(g *cause.Segment, vias []path.ChainWait, starter tracefmt.FrameID) report.Segment {
	seg := report.Segment{
		StartNS: g.Start - s.Start, DurationNS: g.End - g.Start, Goroutine: g.G, Cause: Cause(g.Code.Cause()), Via: s.Vias(vias),
		Kind: s.Kind(g.Code.Cause(), g.Kind, g.Inbound),
	}
	if seg.Cause == report.CauseNetwork {
		seg.Peer = PeerText(s.Syms.String(g.Kind))
	}
	seg.Site = s.SiteFor(g.Site, s.ServiceFrame(g.Site, vias, starter), seg.Via)
	if remote := s.Remote(g.Remote); remote != nil && remote.IsWay {
		seg.WayTo = remote.Service
	} else if remote != nil {
		seg.Service, seg.Cause, seg.Kind, seg.Site, seg.AheadWork = remote.Service, remote.Cause, remote.Kind, remote.Site, remote.AheadWork
		seg.ServiceGoroutine = g.RemoteG
		seg.Via = s.RemoteVias(vias, g.Site, starter, g.Call, remote)
	}
	return seg
}

// Kind returns the report's kind of time with a cause: the direction of a network wait, calls into C, or the recorded kind.
func (s *Speller) Kind(c cause.Cause, kind tracefmt.StringID, inbound bool) string {
	switch {
	case c == cause.Network && inbound:
		return "inbound"
	case c == cause.Network:
		return "outbound"
	case c == cause.Syscall && kind != 0:
		return report.InC
	}
	return s.Syms.String(kind)
}

// PeerText says what a peer did, from a state of threadstate; "" if the text is none.
func PeerText(state string) string {
	x, ok := threadstate.ParsePeerState(state)
	if !ok {
		return ""
	}
	return x.Process + ": " + names.PeerState(&x)
}

// PeerStates returns the maxPeerStates largest states of peers in a sum by symbol, the largest first, with their shares of a
// whole.
func (s *Speller) PeerStates(nsByState map[tracefmt.StringID]int64, wholeNS int64) (out []report.PeerState) {
	for id, ns := range nsByState {
		if x, ok := threadstate.ParsePeerState(s.Syms.String(id)); ok && ns > 0 {
			if float64(ns) < threshold.NoiseShare*float64(wholeNS) {
				x.Detail = ""
			}
			x.TotalNS = ns
			out = report.AddPeerState(out, x)
		}
	}
	for i := range out {
		out[i].Share, out[i].Text = min(1, float64(out[i].TotalNS)/float64(max(1, wholeNS))), names.PeerState(&out[i])
	}
	slices.SortFunc(out, func(a, b report.PeerState) int {
		return cmp.Or(cmp.Compare(b.TotalNS, a.TotalNS), cmp.Compare(a.Process, b.Process), cmp.Compare(a.State, b.State), cmp.Compare(a.Detail, b.Detail))
	})
	return out[:min(len(out), maxPeerStates)]
}

// maxPeerStates bounds the list that PeerStates returns.
const maxPeerStates = 12

// maxShares bounds the functions that Shares returns.
const maxShares = 5

// Shares returns the maxShares functions with the largest shares of a total, given by frame. A function is shown at its line
// with the most time.
func (s *Speller) Shares(nsByFrame map[tracefmt.FrameID]int64) (out []report.Share) {
	if len(nsByFrame) == 0 {
		return nil
	}
	type fn struct {
		f  tracefmt.FrameID
		ns int64
	}
	// The lines of one function count together.
	byFn := map[tracefmt.StringID]*fn{}
	var total int64
	for f, ns := range nsByFrame {
		total += ns
		id := s.Syms.Frame(f).Func
		e := entry.GetOrMake(byFn, id, func() *fn { return &fn{f: f} })
		e.ns += ns
		if ns > nsByFrame[e.f] || ns == nsByFrame[e.f] && f < e.f {
			e.f = f
		}
	}
	var list []*fn
	for _, e := range byFn {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b *fn) int {
		return cmp.Or(cmp.Compare(b.ns, a.ns),
			cmp.Compare(s.Syms.String(s.Syms.Frame(a.f).Func), s.Syms.String(s.Syms.Frame(b.f).Func)))
	})
	for _, e := range list[:min(len(list), maxShares)] {
		if total > 0 {
			out = append(out, report.Share{Site: s.Site(e.f), Share: float64(e.ns) / float64(total)})
		}
	}
	return out
}

// StartOf returns the start function of the goroutine that has this stack; "" if the stack is empty.
func (s *Speller) StartOf(id tracefmt.StackID) string {
	frames := s.Syms.Stack(id)
	for i := len(frames) - 1; i >= 0; i-- {
		if fn := s.Syms.String(s.Syms.Frame(frames[i]).Func); fn != "runtime.goexit" {
			return fn
		}
	}
	return ""
}

// CompareFrames orders frames by file, line, function and caller. Ids depend on the order of events, so they decide only
// between frames that are otherwise equal.
func (s *Speller) CompareFrames(a, b tracefmt.FrameID) int {
	fa, fb := s.Syms.Frame(a), s.Syms.Frame(b)
	return cmp.Or(cmp.Compare(s.Syms.String(fa.File), s.Syms.String(fb.File)), cmp.Compare(fa.Line, fb.Line),
		cmp.Compare(s.Syms.String(fa.Func), s.Syms.String(fb.Func)), s.compareCallers(fa.Caller, fb.Caller), cmp.Compare(a, b))
}

// compareCallers compares the callers of two equal lines, of which either may be 0.
func (s *Speller) compareCallers(a, b tracefmt.FrameID) int {
	if a == b {
		return 0
	}
	return s.CompareFrames(a, b)
}

// ID returns an id of twelve hexadecimal digits that depends only on its parts.
func ID(parts ...string) string {
	h := fnv.New64a()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}

// GroupID returns the id in reports of the group with this kind and name.
func GroupID(kind, name string) string { return ID("group", kind, name) }

// RequestID returns the id of a request in reports. start is relative to the start of the trace, in ns.
func RequestID(group string, start int64, g uint64) string {
	return ID("request", group, fmt.Sprint(start), fmt.Sprint(g))
}
