package explain

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/finding"
	"github.com/whylate/whylate/internal/explain/groups"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A workSelection decides which groups are reported. Requests of servers are. Jobs and loops are, unless they serve
// those requests. Work of libraries and the main goroutine's life are only reported if there is nothing else.
type workSelection struct {
	countsIterations bool // the user gave the number of iterations of the run
	isUserDefined    bool // the user named the functions that are requests
	byKey            map[workKey]*request.Work
	list             []request.Work
	maxRole          request.Role // the least important role that is reported
	// isBatch says that the program is a batch program: its jobs and iterations are parts of its run.
	isBatch bool
	// isMainIdle says that the only work is the main goroutine's, and that it was idle.
	isMainIdle bool
	// hasServer says that a server handled requests.
	hasServer bool
	// shown selects the groups that are reported.
	shown groups.Selection
}

// A workKey identifies the work of a group.
type workKey struct {
	kind request.Kind
	name tracefmt.StringID
}

// selectWork decides which work is reported as groups: the roles up to the least important one (maxRole) that is needed for the
// report to have any requests.
func selectWork(opts *Options, finder *request.Finder, sum *groups.Sum) *workSelection {
	f := &workSelection{isUserDefined: opts.Request != nil, countsIterations: len(opts.Iterations) > 0, byKey: make(map[workKey]*request.Work)}
	f.shown = groups.Selection{Name: opts.Group, Wanted: f.isShown}
	if f.isUserDefined {
		return f
	}
	f.list = finder.Works(sum.RequestsThrough)
	for w := range entry.Each(f.list) {
		f.byKey[workKey{w.Kind, w.Name}] = w
	}
	isOther := func(k request.Kind, _ tracefmt.StringID) bool {
		return k != request.Goroutine && k != request.Loop && k != request.Run
	}
	f.isBatch = finder.IsBatch() && !sum.HasRequests(isOther)
	hasMaxRole := func(k request.Kind, name tracefmt.StringID) bool { return f.roleOf(k, name) == f.maxRole }
	for f.maxRole < request.MainLife && !sum.HasRequests(hasMaxRole) {
		f.maxRole++
	}
	f.isMainIdle = f.maxRole == request.MainLife && finder.IsMainIdle()
	f.hasServer = sum.HasRequests(func(k request.Kind, _ tracefmt.StringID) bool { return k.IsServed() })
	return f
}

// roleOf returns the role of a group in the report. Requests of servers, marks and tasks are independent.
func (f *workSelection) roleOf(k request.Kind, name tracefmt.StringID) request.Role {
	switch k {
	case request.Goroutine, request.Loop, request.Region:
		if w := f.byKey[workKey{k, name}]; w != nil {
			if f.isBatch && (!w.IsMeasured || k == request.Loop && f.countsIterations) {
				return request.Part
			}
			return w.Role
		}
	case request.Run:
		switch {
		case !f.isBatch:
			return request.MainLife
		case !f.countsIterations && f.byKey[workKey{request.Loop, name}] != nil && f.byKey[workKey{request.Loop, name}].IsMeasured:
			return request.Part // the benchmark's iterations show
		}
	}
	return request.Independent
}

// isShown reports whether a group is reported.
func (f *workSelection) isShown(k request.Kind, name tracefmt.StringID) bool {
	return f.isUserDefined || !f.isMainIdle && f.roleOf(k, name) <= f.maxRole
}

// isJudged reports whether requests of this kind count for the rules about queues: if a server handled requests, only requests
// that clients send do.
func (f *workSelection) isJudged(k request.Kind) bool {
	return f.isUserDefined || k != request.Run && (!f.hasServer || k.IsServed())
}

// isUnawaited reports whether neither a client nor a goroutine waits for a group's work: iterations that a timer begins or, in a process
// that serves requests, work that neither these nor the network began, directly or by the work that started it.
func (f *workSelection) isUnawaited(k path.GroupKey) bool {
	w := f.byKey[workKey{k.Kind, k.Name}]
	return w != nil && (k.Kind == request.Loop && w.IsTimerStarted || f.hasServer && (k.Kind == request.Loop || k.Kind == request.Goroutine) && !w.IsStartedOutside)
}

// isSelfStarted reports whether no client is known to wait for a group's work: a timer begins it, or it consists of
// jobs that neither clients nor the network began, directly or by the work that started them.
func (f *workSelection) isSelfStarted(k path.GroupKey) bool {
	w := f.byKey[workKey{k.Kind, k.Name}]
	return w != nil && (w.IsTimerStarted || k.Kind == request.Goroutine && !w.IsStartedOutside)
}

// queuedShare returns the share of a group's iterations whose work was available when the iteration before ended, 0 if not known.
func (f *workSelection) queuedShare(k path.GroupKey) float64 {
	if w := f.byKey[workKey{k.Kind, k.Name}]; w != nil {
		return w.QueuedShare
	}
	return 0
}

// maxStarts bounds the start functions that are listed if no requests were found.
const maxStarts = 50

// startFunctions lists the functions that a user could pass to --request if no requests were found, those with the most wakes
// first.
func startFunctions(finder *request.Finder, sp *spell.Speller) (out []report.Start) {
	list := finder.Starts()
	for _, s := range list[:min(len(list), maxStarts)] {
		out = append(out, report.Start{
			Site: sp.Site(s.RootFrame), Inner: sp.Site(s.InnerFrame), Goroutines: s.Goroutines, Wakes: s.Wakes, RunningNS: s.RunningNS,
		})
	}
	return out
}

// servesRequests returns a function that reports whether all goroutines with a start function, by its name, work for requests of
// a server.
func (f *workSelection) servesRequests(sp *spell.Speller) func(start string) bool {
	isServing := make(map[string]bool)
	for w := range entry.Each(f.list) {
		start := sp.Syms.String(w.StartFunc)
		before, isKnown := isServing[start]
		isServing[start] = w.Role == request.Serving && (before || !isKnown)
	}
	return func(start string) bool { return isServing[start] || request.IsServerStart(start) }
}

// leftOutWork lists the work that is no group of the report, with the reason, the most frequent first.
func (f *workSelection) leftOutWork(sp *spell.Speller) (out []report.LeftOut) {
	for w := range entry.Each(f.list) {
		role := f.roleOf(w.Kind, w.Name)
		if role <= f.maxRole {
			continue
		}
		reason := report.LeftOutServing
		switch role {
		case request.Part:
			reason = report.LeftOutPart
		case request.Library:
			reason = report.LeftOutLibrary
		}
		out = append(out, report.LeftOut{Kind: report.Kind(w.Kind.String()), Name: sp.Syms.String(w.Name), Count: w.Count, Reason: reason})
	}
	slices.SortStableFunc(out, func(a, b report.LeftOut) int { return cmp.Compare(b.Count, a.Count) })
	return out
}

// messageLoops lists the loops that serve requests.
func (f *workSelection) messageLoops(sp *spell.Speller) (out []finding.MessageLoop) {
	for i := range f.list {
		if w := &f.list[i]; w.Kind == request.Loop && w.Role == request.Serving {
			out = append(out, finding.MessageLoop{Name: sp.Syms.String(w.Name), StartFunc: sp.Syms.String(w.StartFunc), Count: w.Count, MeanNS: w.MeanNS})
		}
	}
	return out
}

// judgedReport returns the report that rules check. It lacks work that no client waits for, if there is a server: jobs and
// iterations that are few and have no backlog. Time inside other services counts as a wait for the network, because the findings
// about it are in those services' own reports.
func (f *workSelection) judgedReport(rep *report.Report, backlogs map[string]*request.Backlog) *report.Report {
	judged := func(g *report.Group) bool {
		return g.Role == report.RoleRequests && (!g.Kind.IsWork() || !f.hasServer || g.Count >= threshold.TailSample || backlogs[g.ID] != nil || g.Saturated != nil)
	}
	judgedPart := *rep
	judgedPart.Groups = nil
	hasRemotes := false
	for i := range rep.Groups {
		if judged(&rep.Groups[i]) {
			g, isChanged := withoutRemotes(&rep.Groups[i])
			judgedPart.Groups, hasRemotes = append(judgedPart.Groups, g), hasRemotes || isChanged
		}
	}
	if len(judgedPart.Groups) == len(rep.Groups) && !hasRemotes {
		return rep
	}
	return &judgedPart
}
