package explain

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/explain/capacity"
	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/detailed"
	"github.com/whylate/whylate/internal/explain/finding"
	"github.com/whylate/whylate/internal/explain/freeze"
	"github.com/whylate/whylate/internal/explain/groups"
	"github.com/whylate/whylate/internal/explain/hostjoin"
	"github.com/whylate/whylate/internal/explain/moments"
	"github.com/whylate/whylate/internal/explain/pass"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/queued"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threadstate"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// finish builds the report from a completed reading and predicts the changes of Options.WhatIf. It returns an error if no
// generation was read.
func (r *reading) finish(ctx context.Context) (*report.Report, error) {
	name := r.opts.name()
	if r.pass.Generations == 0 {
		damage := r.damage
		if damage == nil {
			damage = &tracefmt.Error{Kind: tracefmt.Truncated, Text: "the trace holds no events"}
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s: %w", name, context.Cause(ctx))
		}
		return nil, fmt.Errorf("%s: %w: %w", name, ErrNothing, damage)
	}
	rep, model, err := r.report()
	if err != nil {
		return rep, fmt.Errorf("%s: %w: %w", name, ErrWhatIf, err)
	}
	if rep.WhatIf, err = predictChanges(r.opts.WhatIf, rep.Groups, model); err != nil {
		return rep, fmt.Errorf("%s: %w", name, err)
	}
	if ctx.Err() != nil {
		return rep, fmt.Errorf("%s: %w", name, context.Cause(ctx))
	}
	return rep, nil
}

// report builds the report, and the model for predictions, from the sums of the reading, step by step. Each step takes the
// results of the steps that it needs, so that they cannot run in another order.
func (r *reading) report() (*report.Report, *predict.Model, error) {
	samples, sampleErr := r.loadHost()
	froze := r.decideFreezes(samples)
	sp := r.newSpeller(&froze)
	sums := r.mergeSums()
	work := selectWork(&r.opts, r.pass.Finder, r.groups)
	waitForSamples := sums.samples.Build(maps.Keys(r.groups.GroupIDs(sp, work.shown)))
	table := r.reportGroups(sums.slowest, work, sp)
	stats := r.process.Stats(sp)
	measured := r.measuredReport(table, sums.moments, work, &froze, sp)
	joined := r.joinHost(measured, samples, sampleErr, stats)
	waitForSamples()
	model := r.newModel(joined, table, sums.samples, stats, sp)
	in := r.ruleInput(joined, table, sums, work, stats, model, sp)
	queues := finding.Queues(in)
	r.storeForCallers(work, queues, sp)
	addFindings(joined, in)
	joined.Goals = searchGoals(r.opts.Goals, joined, model)
	var err error
	if r.capacity != nil {
		joined.Capacity, err = r.judgeCapacity(joined, table, work, stats, sp)
	}
	r.labelQueues(joined, queues, table, sums, sp)
	joined.Verdict = verdict.Verdicts(joined)
	r.fillOutputs(joined, table, work, sp)
	return joined, model, err
}

// judgeCapacity returns at which loads the process's resources saturate, and the answer to Options.Capacity; nil if no client
// waits for requests. The error is about a change that Options.Capacity asks for.
func (r *reading) judgeCapacity(joined *report.Report, table *groupTable, work *workSelection, stats *process.Stats, sp *spell.Speller) (*report.Capacity, error) {
	in := capacity.Input{
		Report: joined, Groups: map[path.GroupID]*report.Group{}, Stats: stats, Facts: processFacts(joined, stats, r.pass.Start), Speller: sp, Question: *r.opts.Capacity,
	}
	for i, id := range table.pathIDs {
		if g := &joined.Groups[i]; g.Role == report.RoleRequests && g.Count > 0 && work.isJudged(r.groups.GroupKey(id).Kind) {
			in.Groups[id] = g
		}
	}
	r.capacity.Merge(r.translations)
	return r.capacity.Judge(&in)
}

// loadHost returns the host samples that accompany the trace, else those that service/flight wrote into it.
func (r *reading) loadHost() (*host.Samples, error) {
	if r.opts.hostSamples != nil || r.opts.hostErr != nil {
		return r.opts.hostSamples, r.opts.hostErr
	}
	return readHost(r.hostLog.reader(r.process.Clock()))
}

// decideFreezes decides which silences of all threads were freezes by a CPU quota. The host samples supply the CPU limits.
func (r *reading) decideFreezes(samples *host.Samples) freeze.Verdict {
	if samples != nil {
		if l, ok := hostjoin.LimitsOf(samples, r.hostWindow()); ok {
			r.freezes.Kernel = freeze.KernelLimits{
				CPUs: cmp.Or(l.Facts.Parallelism, l.Facts.CPUs), PeriodNS: l.Facts.PeriodNS, Verdict: report.ThrottleVerdict(l.Verdict),
			}
		}
	}
	return r.freezes.Verdict()
}

// newSpeller returns the Speller that turns ids of this reading into sites, ids and texts of the report.
func (r *reading) newSpeller(froze *freeze.Verdict) *spell.Speller {
	return &spell.Speller{
		Syms: &r.pass.Symbols, Sites: r.pass.Stages[0].Sites, Start: r.pass.Start, End: r.pass.End,
		Paths: r.opts.PathMap, Modules: r.opts.Modules,
		Settlement: cause.Settle(froze.IsFreeze), Remotes: r.remoteCauses(),
	}
}

// remoteCauses returns the causes of other services.
func (r *reading) remoteCauses() []spell.RemoteCause {
	if r.opts.remotes == nil {
		return nil
	}
	return r.opts.remotes.causes.List()
}

// mergeSums merges the detail sums of all workers; it may be called once.
func (r *reading) mergeSums() detailSums {
	s := r.unmerged
	var wg sync.WaitGroup
	for _, sum := range []interface{ Merge([]path.Translation) }{s.slowest, s.samples, s.moments, s.queues} {
		wg.Go(func() { sum.Merge(r.translations) })
	}
	wg.Wait()
	return s
}

// A groupTable holds the groups of a report, with facts about them that the report does not have.
type groupTable struct {
	groups       []report.Group
	pathIDs      []path.GroupID  // of groups
	medians      []int64         // of groups, see groups.Row
	allBands     [][]report.Band // of groups, see groups.Row
	servers      []report.Server
	unawaited    map[string]bool    // by id: neither a client nor a goroutine waits for this work
	queuedShares map[string]float64 // by id: share of a group's iterations whose work was available at once
	backlogs     map[string]*request.Backlog
}

// reportGroups returns the groups that the report shows, in its order, with their peers, slowest requests and iterations.
func (r *reading) reportGroups(slowest *detailed.Sum, work *workSelection, sp *spell.Speller) *groupTable {
	rows := r.groups.Rows(sp, work.shown)
	isSelfStarted := func(row *groups.Row) bool { return work.isSelfStarted(r.groups.GroupKey(row.PathGroup)) }
	groups.SortByRole(rows, time.Duration(r.pass.End-r.pass.Start), isSelfStarted)
	out := &groupTable{groups: []report.Group{}, servers: r.groups.Servers(rows), unawaited: map[string]bool{}, queuedShares: map[string]float64{}, backlogs: map[string]*request.Backlog{}}
	backlogs := r.pass.Finder.Backlogs()
	for _, row := range rows {
		key := r.groups.GroupKey(row.PathGroup)
		if out.queuedShares[row.ID] = work.queuedShare(key); key.Kind == request.WebSocket {
			out.queuedShares[row.ID] = r.pass.Finder.QueuedMessageShare(key.Name)
		}
		if i := slices.IndexFunc(backlogs, func(b request.Backlog) bool { return key.Kind == request.Loop && b.Loop == key.Name }); i >= 0 {
			out.backlogs[row.ID] = &backlogs[i]
		}
		out.unawaited[row.ID] = work.isUnawaited(key)
		g := row.Group
		g.Backlog = reportBacklog(out.backlogs[row.ID], r.pass.End-r.pass.Start, sp)
		if saturated := r.pass.Finder.SaturatedLoop(key.Kind, key.Name); saturated != nil && g.Backlog == nil {
			g.Saturated = reportSaturated(saturated, r.pass.End-r.pass.Start, sp)
		}
		g.Peer = r.findPeer(row.PathGroup, work.shown, sp)
		slowest.FillGroup(&g, row.PathGroup, row.MedianNS, sp)
		g.Iterations = r.opts.iterationsOf(&g)
		out.groups, out.pathIDs = append(out.groups, g), append(out.pathIDs, row.PathGroup)
		out.medians, out.allBands = append(out.medians, row.MedianNS), append(out.allBands, row.AllBands)
	}
	nameUnits(out.groups)
	return out
}

// nameUnits calls jobs and iterations requests, unless a protocol that is known has a noticeable part of the time: then they are perhaps
// those of clients, over a protocol that is not.
func nameUnits(list []report.Group) {
	var workNS, allNS int64
	for i := range list {
		if g := &list[i]; g.Role == report.RoleRequests {
			if allNS += g.TotalNS; g.Kind.IsWork() {
				workNS += g.TotalNS
			}
		}
	}
	if float64(allNS-workNS) >= threshold.MinorShare*float64(allNS) && allNS > workNS {
		return
	}
	for i := range list {
		if g := &list[i]; g.Role == report.RoleRequests && g.Kind.IsWork() {
			g.Unit = report.KindHTTP1.RequestNoun()
		}
	}
}

// measuredReport returns the report with input, groups, servers, runtime, moments and warnings, but without host, findings and
// verdicts.
func (r *reading) measuredReport(table *groupTable, found *moments.Sum, work *workSelection, froze *freeze.Verdict, sp *spell.Speller) *report.Report {
	p := r.pass
	rep := &report.Report{
		Schema: report.Schema,
		Input: report.Input{
			Name: r.opts.Name, Bytes: p.Reader.Unpacked(), Events: p.Events, DurationNS: p.End - p.Start,
			Go: fmt.Sprintf("1.%d", p.Reader.Minor()), GOMAXPROCS: r.process.Procs(), Truncated: r.damage != nil,
			Observer: r.groups.ObserverRequests(), Sampled: sampling(p), LeftOut: work.leftOutWork(sp), Warnings: []report.Warning{},
		},
		Groups: table.groups, Servers: table.servers, Runtime: r.process.Runtime(sp, froze), Findings: []report.Finding{},
	}
	if s, snapshotTime := r.process.Clock(); s != nil {
		wall := time.Unix(int64(s.UnixSec), int64(s.UnixNsec)).Add(-time.Duration(snapshotTime - p.Start)).UTC()
		rep.Input.Start = &wall
	}
	if work.maxRole == request.MainLife && r.opts.Request == nil && r.opts.Group == nil {
		rep.Starts = startFunctions(p.Finder, sp)
	}
	for i, id := range table.pathIDs {
		rep.Moments = append(rep.Moments, found.Find(id, &rep.Groups[i], p.Stages[0].IDs, sp)...)
	}
	if r.process.PsUnknown() {
		rep.Input.TraceFrom = report.TraceFromUprobes
	}
	r.addWarnings(rep, work.shown, sp)
	return rep
}

// sampling returns how many requests were walked, nil if all were.
func sampling(p *pass.Pass) *report.Sampled {
	if p.NotWalked == 0 {
		return nil
	}
	return &report.Sampled{Walked: int(p.Requests - p.NotWalked), Requests: int(p.Requests)}
}

// joinHost adds to the report the host samples and the kernel's events of the trace's time: throttling, lost segments, stops,
// time off the CPU. It returns rep. Errors become warnings.
func (r *reading) joinHost(rep *report.Report, samples *host.Samples, err error, stats *process.Stats) *report.Report {
	window := r.hostWindow()
	if samples != nil {
		rep.Host, err = hostjoin.Summarize(samples, window, rep)
	}
	if err != nil {
		rep.Input.Warnings = append(rep.Input.Warnings, report.Warning{Code: host.WarnHost, Text: err.Error()})
	} else {
		hostjoin.ReplaceThrottle(rep)
	}
	r.joinKernel(rep, window)
	moments.AddEvents(rep.Moments, rep.Runtime.Series, stats.HerdWakeups, rep.Input.DurationNS)
	silences, requests := r.stops.Silences()
	r.threads.SetOffCPU(rep, window)
	hostjoin.AddStops(samples, window, rep, r.stoppedIntervals(), silences, requests)
	if rep.Host == nil && !rep.Runtime.Throttle.Verdict.HeldBack() {
		rep.Runtime.Sched.WithoutCPU = stats.WithoutCPU()
	}
	r.warnPeer(rep)
	return rep
}

// stoppedIntervals returns the intervals in which the kernel's events show a stopped thread.
func (r *reading) stoppedIntervals() []freeze.Interval {
	if r.kernel == nil {
		return nil
	}
	return r.kernel.Summary().Stopped
}

// joinKernel adds to the report what the kernel's events show about CPUs and arrivals. Errors become warnings.
func (r *reading) joinKernel(rep *report.Report, window hostjoin.Window) {
	err := cmp.Or(r.opts.kernelErr, r.kernelErr)
	if r.kernel != nil {
		err = cmp.Or(err, r.kernel.Err())
	}
	if err != nil {
		rep.Input.Warnings = append(rep.Input.Warnings, report.Warning{Code: warnKernel, Text: err.Error()})
	}
	if r.kernel == nil || !r.kernel.IsUsed() {
		return
	}
	hostjoin.AddKernel(rep, r.kernel, window, r.pass.Arrivals, func(s *threadstate.Summary, add func(string, int64)) {
		for name, ns := range s.WaitByName {
			add(r.pass.Symbols.String(name), ns)
		}
	})
}

// warnKernel is the code of warnings about the kernel's events.
const warnKernel = "kernel-events"

// newModel returns the model for predictions, with the samples of all groups that have requests.
func (r *reading) newModel(joined *report.Report, table *groupTable, samples *predict.Samples, stats *process.Stats, sp *spell.Speller) *predict.Model {
	model := predict.NewModel(sp.Syms, sp.Settlement, joined.Input.DurationNS, r.groups.SitesBelow)
	for i := range table.groups {
		if g := &table.groups[i]; g.Count > 0 {
			model.AddGroup(g.ID, samples.SampleOf(table.pathIDs[i]), *g.SenderLatency())
			if g.Backlog != nil {
				model.AddBacklog(g.ID, table.backlogs[g.ID])
			}
		}
	}
	model.SetFacts(processFacts(joined, stats, r.pass.Start))
	go model.Prepare()
	return model
}

// ruleInput returns the rules' input. It adds warnings about it to the report.
func (r *reading) ruleInput(joined *report.Report, table *groupTable, sums detailSums, work *workSelection, stats *process.Stats, model *predict.Model, sp *spell.Speller) *finding.Input {
	profile, warnings := readAllocs(r.opts.Allocs, sp)
	joined.Input.Warnings = append(joined.Input.Warnings, warnings...)
	in := &finding.Input{
		Report: work.judgedReport(joined, table.backlogs), Process: stats, Thresholds: r.opts.Thresholds, Allocs: profile,
		// Queues and their servers.
		Services: sums.queues.Services(sp, work.isJudged), SlotWaits: sums.queues.SlotWaits(sp), TaskWaits: sums.queues.TaskWaits(sp), LongWaits: sums.queues.LongWaits(sp),
		Streams: sums.queues.Streams(sp), SiblingShares: sums.queues.SiblingShares(sp),
		HolderLines: sums.queues.HolderLines(sp), LockedWaits: sums.queues.LockedWaits(sp), HeldBodies: sums.queues.HeldBodies(sp), Limiters: sums.queues.Limiters(sp), Hubs: sums.queues.Hubs(sp),
		HeldAnswers:   byGroup(table, func(g path.GroupID) *queues.HeldAnswers { return sums.queues.HeldAnswers(sp, g) }),
		PeerCalls:     byGroup(table, func(g path.GroupID) []queues.PeerCalls { return sums.queues.PeerCalls(sp, g) }),
		CallCounts:    byGroup(table, func(g path.GroupID) []queues.CallCounts { return sums.queues.CallCounts(sp, g) }),
		ConnOpens:     byGroup(table, func(g path.GroupID) queues.ConnOpens { return sums.queues.ConnOpens(sp, g) }),
		SharedLoads:   sums.queues.SharedLoads(sp),
		SyscallCounts: byGroup(table, sums.queues.SyscallCount), FindHolder: lockHolderFinder(&r.pass.Window, sp),
		BackgroundCalls:   sums.queues.BackgroundCalls(sp),
		HasFunction:       sp.Syms.HasPrefix,
		NoSelfConnections: r.peers.IsRefuted(),
		// Groups and start functions.
		OutlierMoments: outlierIntervals(table, sums.moments), HerdOverlap: herdOverlap(table, sums.moments, stats, r.pass), BacklogShares: table.queuedShares,
		UnawaitedGroups: table.unawaited, AllGroups: joined.Groups, MessageLoops: work.messageLoops(sp),
		WorksForServer: work.servesRequests(sp), AcceptsConnections: r.pass.Finder.IsUnknownServer(),
		Predict: model.WhatIf, AddPool: model.AddPool, Pauses: model.PausesOf, WorkShare: model.WorkShareOf,
	}
	addPredictionFacts(model, in)
	return in
}

// addFindings runs the rules and adds their findings to the report.
func addFindings(joined *report.Report, in *finding.Input) {
	rules := finding.Undocumented()
	joined.Findings = finding.Find(in, rules)
	joined.Judged = finding.Judge(in, rules, joined.Findings)
}

// labelQueues gives the time in queues the cause queue, in the groups and their slowest requests. Rules and the search for
// changes need the causes of those ahead in a queue, so they precede it; verdicts and all output follow it.
func (r *reading) labelQueues(joined *report.Report, queues map[string][]*report.Queue, table *groupTable, sums detailSums, sp *spell.Speller) {
	sp.Queues = queues
	for i, id := range table.pathIDs {
		g := &joined.Groups[i]
		if queues := sp.Queues[g.ID]; len(queues) > 0 {
			queued.Label(g, queues, table.allBands[i], r.groups.HistogramCauses(id, g.ID, sp))
			sums.slowest.FillGroup(g, id, table.medians[i], sp)
			for k := range g.Slowest {
				sums.queues.AddPools(&g.Slowest[k], g.ID, sp)
			}
		}
	}
}

// fillOutputs fills the outputs that the options ask for in addition to the report: replayer, index, calls of other services, checks.
func (r *reading) fillOutputs(rep *report.Report, table *groupTable, work *workSelection, sp *spell.Speller) {
	if r.opts.Replayer != nil {
		r.opts.Replayer.storeReading(r, rep, work.shown, sp)
	}
	if r.opts.Index != nil {
		r.opts.Index.Finish(r.pass, r.translations, r.groups.GroupIDs(sp, work.shown), r.freezes, sp)
	}
	r.storeCalls(rep, table)
	if r.opts.Checks != nil {
		r.opts.Checks.Report(rep, r.opts.Group == nil)
	}
}
