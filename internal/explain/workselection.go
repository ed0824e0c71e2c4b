package explain

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// found holds what was found in a trace, and what of it is reported. Work of
// goroutines and loops stands beside the requests of servers unless it is done
// for them; the machinery of libraries, and main's life, are for traces in which
// nothing else is found.
type found struct {
	all   bool // the user said what requests are
	works map[workKey]*request.Work
	list  []request.Work
	least request.Role // the best of what there is
	// idle says that there is nothing but main, and that main is idle.
	idle bool
	// server says that a server handled requests.
	server bool
}

type workKey struct {
	kind request.Kind
	name tracefmt.StringID
}

func (e *engine) found() *found {
	f := &found{all: e.opts.Request != nil, works: make(map[workKey]*request.Work)}
	if f.all {
		return f
	}
	f.list = e.pass.Finder.Works(e.groups.RequestsThrough)
	for i := range f.list {
		w := &f.list[i]
		f.works[workKey{w.Kind, w.Name}] = w
	}
	for f.least < request.MainLife && !e.groups.HasRequests(func(k request.Kind, name tracefmt.StringID) bool { return f.role(k, name) == f.least }) {
		f.least++
	}
	f.idle = f.least == request.MainLife && e.pass.Finder.IsMainIdle()
	f.server = e.groups.HasRequests(func(k request.Kind, _ tracefmt.StringID) bool { return k.IsServed() })
	return f
}

func (f *found) role(k request.Kind, name tracefmt.StringID) request.Role {
	switch k {
	case request.Goroutine, request.Loop, request.Region:
		if w := f.works[workKey{k, name}]; w != nil {
			return w.Role
		}
	case request.Main:
		return request.MainLife
	}
	return request.Independent
}

// wanted says which groups are reported.
func (f *found) wanted(k request.Kind, name tracefmt.StringID) bool {
	return f.all || !f.idle && f.role(k, name) <= f.least
}

// judged says of which kinds turns are: where a server handled requests, of
// those alone.
func (f *found) judged(k request.Kind) bool {
	return f.all || k != request.Main && (!f.server || k.IsServed())
}

// byTimer reports whether a timer began most of a group's work.
func (f *found) byTimer(k path.GroupKey) bool {
	w := f.works[workKey{k.Kind, k.Name}]
	return w != nil && w.IsTimerStarted
}

// byItself reports whether the process does a group's work without being asked: a timer begins it, or jobs have no client, and no data from the network, at
// their beginning or at that of the work that begins them.
func (f *found) byItself(k path.GroupKey) bool {
	w := f.works[workKey{k.Kind, k.Name}]
	return w != nil && (w.IsTimerStarted || k.Kind == request.Goroutine && !w.IsStartedOutside)
}

// queued returns for which part of a group's turns the work lay there when the turn before ended.
func (f *found) queued(k path.GroupKey) float64 {
	if w := f.works[workKey{k.Kind, k.Name}]; w != nil {
		return w.QueuedShare
	}
	return 0
}

// mostStarts bounds the functions that are offered where no requests were found.
const mostStarts = 50

// starts says what could be asked where no requests were found.
func (e *engine) starts(sp *spell.Speller) []report.Start {
	list := e.pass.Finder.Starts()
	var out []report.Start
	for _, s := range list[:min(len(list), mostStarts)] {
		out = append(out, report.Start{Site: sp.Site(s.RootFrame), Inner: sp.Site(s.InnerFrame), Goroutines: s.Goroutines, Wakes: s.Wakes, RunningNS: s.RunningNS})
	}
	return out
}

// serves returns whether goroutines that began with a function do all they do for requests of a server.
func (f *found) serves(sp *spell.Speller) func(start string) bool {
	all := make(map[string]bool)
	for i := range f.list {
		w := &f.list[i]
		start := sp.Syms.String(w.StartFunc)
		before, seen := all[start]
		all[start] = w.Role == request.Serving && (before || !seen)
	}
	return func(start string) bool { return all[start] || request.IsServerStart(start) }
}

// leftOut lists the work that is no group.
func (f *found) leftOut(sp *spell.Speller) []report.LeftOut {
	var out []report.LeftOut
	for i := range f.list {
		w := &f.list[i]
		if w.Role <= f.least {
			continue
		}
		why := report.LeftOutServing
		if w.Role == request.Library {
			why = report.LeftOutLibrary
		}
		out = append(out, report.LeftOut{Kind: report.Kind(w.Kind.String()), Name: sp.Syms.String(w.Name), Count: w.Count, Why: why})
	}
	slices.SortStableFunc(out, func(a, b report.LeftOut) int { return cmp.Compare(b.Count, a.Count) })
	return out
}

// judgedOf returns the report that rules look at: of what somebody waits for.
func (f *found) judgedOf(r *report.Report) *report.Report {
	judged := func(g *report.Group) bool {
		work := g.Kind == report.KindGoroutine || g.Kind == report.KindLoop
		return g.Role == report.RoleRequests && (!work || !f.server || g.Count >= scale.Many)
	}
	part := *r
	part.Groups = nil
	for i := range r.Groups {
		if judged(&r.Groups[i]) {
			part.Groups = append(part.Groups, r.Groups[i])
		}
	}
	if len(part.Groups) == len(r.Groups) {
		return r
	}
	return &part
}
