package finding

import (
	"math"
	"slices"
	"time"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// A syscallKind is the purpose of a system call, and the texts for its activity and its fix.
type syscallKind struct{ activity, fix textKey }

// Kinds of system calls that rules distinguish.
var (
	diskSync        = syscallKind{"phrase syncs", "fix sync"}
	fileLock        = syscallKind{"phrase waits-for-file-lock", "fix file-lock"}
	directoryRead   = syscallKind{"phrase reads-directory", "fix directory-read"}
	pageFault       = syscallKind{"phrase waits-for-page", "fix page-fault"}
	otherSystemCall = syscallKind{"phrase is-in-system-call", "fix system-call"}
)

// syscallKindOf decides what the system call of a cause is for, by the roles of the called function and of the site's function.
func syscallKindOf(cause *report.Cause) syscallKind {
	if cause.Cause == report.CauseDisk {
		return pageFault
	}
	call, site := knowledge.Of(cause.Call), knowledge.Roles{}
	if cause.Site != nil {
		site = knowledge.Of(cause.Site.Func)
	}
	switch either := call.Union(site); {
	case either.Has(knowledge.FileSync):
		return diskSync
	case either.Has(knowledge.FileLock):
		return fileLock
	case either.Has(knowledge.DirectoryRead):
		return directoryRead
	case call.Has(knowledge.ChildProcess):
		return syscallKind{"phrase waits-for-child", "fix child-process"}
	case either.Has(knowledge.DNS):
		return syscallKind{"phrase looks-name-up", "fix c-resolver"}
	case call.Has(knowledge.FileWrite), call.Has(knowledge.Logger):
		return syscallKind{"phrase writes-file", "fix file-write"}
	case call.Has(knowledge.File):
		return syscallKind{"phrase reads-file", "fix file-read"}
	case cause.Kind == report.InC:
		return syscallKind{"phrase runs-c-code", "fix c-code"}
	}
	return otherSystemCall
}

// isFileLookup reports whether a cause is a system call that lists files, or asks for their sizes.
func isFileLookup(c *report.Cause) bool {
	return c.Cause == report.CauseSyscall && c.Site != nil && (syscallKindOf(c) == directoryRead || knowledge.Has(c.Call, knowledge.FileStatus))
}

// isSharedWrite reports whether a dependency writes to a file for several lines of the service, as a logger does.
func (a *attribution) isSharedWrite(c *report.Cause) bool {
	isWrite := func(o *report.Cause) bool {
		return o.Cause == report.CauseSyscall && o.Site != nil && o.Site.Module != "" && syscallKindOf(o).fix == "fix file-write"
	}
	return isWrite(c) && slices.ContainsFunc(a.group.All().Causes, func(o report.Cause) bool {
		return isWrite(&o) && o.Site.LineKey() == c.Site.LineKey() && o.Site.OwnLine().Key() != c.Site.OwnLine().Key()
	})
}

// libraryCallOf returns the function of a dependency that the service called to get to a route's work or wait; "" if it called none.
func libraryCallOf(route *causeRoute) string {
	for _, s := range append(route.sites()[1:], route.Site) {
		if s != nil && s.Module != "" && s.CalledFrom != nil && s.CalledFrom.Calls != "" && !knowledge.Has(s.CalledFrom.Calls, knowledge.FileSync) {
			return words.FuncName(s.CalledFrom.Calls)
		}
	}
	return ""
}

// isGroupCommit reports whether requests wait once each, without a lock, for a sync of a goroutine that syncs for all of them.
// Such a wait is what a durable write costs.
func (a *attribution) isGroupCommit(route *causeRoute) bool {
	service := a.in.serviceAt(route.Cause, route.via)
	return service != nil && service.Requests >= threshold.SmallSample && service.BehindLockShare < threshold.MinorShare &&
		service.WaitsPerRequest < 1+threshold.MajorShare && service.OtherRequestShare <= threshold.HalfShare &&
		float64(service.Servers) <= threshold.MajorShare*float64(service.Requests)
}

// isHeldElsewhere reports whether slow requests wait for a file's lock for longer than all that they do otherwise: a request that holds
// the lock for so long is slow itself, and so are those that hold it one after the other. Then the holder is another process, or a
// goroutine that serves no request.
func (a *attribution) isHeldElsewhere(cand *candidate, top *causeRoute) bool {
	isWait := func(c *report.Cause) bool {
		return c.Cause == top.Cause.Cause && c.Site != nil && c.Site.LineKey() == top.Site.LineKey()
	}
	otherNS := int64(0)
	for group := range each(a.in.Report.Groups) {
		if firstMatch(group.All().Causes, isWait) == nil {
			continue
		}
		for c := range each(group.Tail().Causes) {
			if !isWait(c) {
				otherNS += c.TotalNS
			}
		}
	}
	return 2*otherNS < cand.gain.Slow.NS
}

// childDelay is the Cmd.WaitDelay that a prediction assumes.
const childDelay = 10 * time.Millisecond

// checkBlockingSyscall is WL2007, blocking-syscall: requests wait for a system call, a page from disk or a pipe. The fix depends
// on what the call is for (syscallKindOf).
func checkBlockingSyscall(attr *attribution, cand *candidate) Verdict {
	top := &cand.routes[0]
	k := syscallKindOf(top.Cause)
	v := attr.newVerdict(cand, top)
	v.Title, v.Fix = textOf("title blocking-syscall", "goroutine", goroutineActivity(top)), textOf(k.fix)
	attr.addSlowMean(&v, "evidence slow-mean-on", cand, top, top.via)
	if isSetUp(top.Cause) && setUpSamples(attr.group) >= threshold.SmallSample {
		v.MaxSeverity = report.SeverityLow // WL1008 is about all of that work
	}
	v.addEvidence(libraryCallEvidence(cand, top)...)
	if attr.isSharedWrite(top.Cause) {
		site := *top.Site
		site.CalledFrom = nil
		v.Changes = []predict.Change{predict.Remove(top.Cause.Cause, predict.SiteText(&site, top.Cause.Cause))}
		v.addEvidence(otherSiteEvidence(cand, top)...)
	}
	switch call := libraryCallOf(top); {
	case k == diskSync && attr.isGroupCommit(top):
		v.Fix, v.MaxSeverity, v.Changes = textOf("fix sync-shared", "site", v.Site), report.SeverityLow, []predict.Change{}
	case k == diskSync && call != "":
		v.Fix, v.Changes = textOf("fix sync-in-library", "call", call, "site", top.ownLine()), []predict.Change{} // the last write of a batch waits for its sync
	}
	if isFileLookup(top.Cause) { // names are sorted and compared at the same lines
		var lines []report.SiteKey
		v.Changes = nil
		for c := range each(attr.group.All().Causes) {
			if !isFileLookup(c) {
				continue
			}
			if line := c.Site.OwnLine().LineKey(); !slices.Contains(lines, line) && len(lines) < maxChangeSites {
				lines = append(lines, line)
				v.Changes = append(v.Changes, predict.Remove("", predict.SiteText(line.Site(), "")))
			}
		}
		v.Share, v.Gain = gainWithoutRoutes(attr.group, func(c *report.Cause, via []report.Via) bool {
			return (c.Cause == v.Cause || c.Cause == report.CauseCPU) && len(via) == len(top.via) && c.Site != nil && slices.Contains(lines, c.Site.OwnLine().LineKey())
		})
	}
	if n := attr.in.SyscallCounts[attr.group.ID]; n.AreMany() && top.Site != nil && k != diskSync && k != fileLock && v.Cause == report.CauseSyscall {
		if isFileLookup(top.Cause) {
			v.Fix = textOf("fix file-lookups")
		} else {
			v.Fix = textOf("fix small-system-calls")
			v.Changes = []predict.Change{predict.Remove("", predict.SiteText(top.Site.LineKey().Site(), ""))} // with the computing around each
		}
		v.Title = textOf("title small-system-calls", "n", words.Figure(math.Round(float64(n.Calls)/float64(n.Requests))), "time", words.Brief(n.CallNS/n.Requests), "site", v.Site)
		return v
	}
	if k == otherSystemCall {
		v.doubt(0.6, textOf("phrase doubt-system-call"))
		if v.Site == nil {
			v.MaxSeverity = report.SeverityLow // without a line there is nothing to change
		}
	}
	computesOnIt := func(c *report.Cause) bool {
		return c.Cause == report.CauseCPU && c.Site != nil && c.Site.OwnLine().LineKey() == top.ownLine().LineKey() && c.TotalNS >= 2*top.Cause.TotalNS
	}
	if k.fix == "fix file-read" && firstMatch(attr.group.All().Causes, computesOnIt) != nil {
		v.MaxSeverity = report.SeverityLow // WL1008 is about that line
	}
	if k == fileLock && attr.isHeldElsewhere(cand, top) {
		v.Title, v.Fix = textOf("title file-lock-elsewhere", "site", top.ownLine()), textOf("fix file-lock-elsewhere")
	}
	switch isPipe := top.Cause.Cause == report.CauseNetwork; {
	case isPipe && knowledge.Has(top.Cause.Call, knowledge.FileWrite):
		v.Fix = textOf("fix pipe-reader", "site", v.Site)
	case isPipe && top.Site != nil && knowledge.Has(top.Site.Func, knowledge.ChildProcess):
		v.Fix = textOf("fix pipe-of-child")
		v.Changes = []predict.Change{predict.Remove(v.Cause, predict.SiteText(v.Site, v.Cause))}
		v.shortenTo(childDelay, textOf("phrase change-wait-delay", "time", words.Brief(int64(childDelay))))
	case isPipe:
		v.Fix = textOf("fix pipe-read", "site", v.Site)
	case k.fix == "fix file-write" && v.Site != nil && v.Site.Module != "" && !knowledge.Has(top.Cause.Call, knowledge.Logger):
		if l := libraryAt(top.Site, v.Site); l != nil && l.lockAdvice != "" {
			v.Fix = l.fix(l.lockAdvice)
		} else {
			v.Fix = textOf("fix file-write-in-dependency", "module", v.Site.Module)
		}
	}
	return v
}
