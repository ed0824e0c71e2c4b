package verdict

import (
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/report"
)

// Kinds of a verdict's time, in addition to the kinds of causes. Each kind has a different remedy.
const (
	NoCPU      = "no-cpu"      // waiting for a CPU while goroutines showed as running
	Pipe       = "pipe"        // the network's poller waits for the other end of a pipe
	NameServer = "name-server" // a name is looked up
	Deadline   = "deadline"    // the deadline of a context, or a time-out of net/http or database/sql
	Timer      = "timer"       // a timer or ticker, but not time.Sleep
	Limiter    = "limiter"     // a rate limiter delays the request
	// DatabaseLock is a sleep until a transaction no longer locks a database.
	DatabaseLock  = "database-lock"
	BatchDue      = "batch-due"      // a library waits until a batch is due
	SharedLock    = "shared-lock"    // pauses between tries to take a lock that other processes share
	NoContinue    = "no-continue"    // a client waits for a 100 Continue that the server does not send
	DialFallback  = "dial-fallback"  // a dialer waits for an address that does not answer
	FlowControl   = "flow-control"   // a request's body waits until the peer allows more bytes
	NextRequest   = "next-request"   // another goroutine waits for its client to begin another request
	Connect       = "connect"        // a connection is opened that the first finding's change would have kept
	ChildProcess  = "child-process"  // the system calls of a cause wait for a child process
	DiskSync      = "disk-sync"      // they sync a file
	DirectoryRead = "directory-read" // they read a directory
	FileWrite     = "file-write"     // they write to a file or pipe
)

// systemCalls returns the kind of a cause's system calls, by what nine tenths of their time is for; the rows' own kind if it has no name.
// It does not separate causes, unlike KindOf.
func systemCalls(parts []rowPart) string {
	nsByKind, allNS := map[string]int64{}, int64(0)
	for i := range parts {
		row := parts[i].row
		kind := parts[i].kind
		switch call := knowledge.Of(row.Call); {
		case kind != "":
		case call.Has(knowledge.FileSync), row.Site != nil && knowledge.Has(row.Site.Func, knowledge.FileSync):
			kind = DiskSync
		case call.Has(knowledge.ChildProcess):
			kind = ChildProcess
		case call.Has(knowledge.DirectoryRead):
			kind = DirectoryRead
		case call.Has(knowledge.FileWrite):
			kind = FileWrite
		}
		nsByKind[kind] += parts[i].ns
		allNS += parts[i].ns
	}
	for kind, ns := range nsByKind {
		if float64(ns) >= threshold.NearlyAllShare*float64(allNS) {
			return kind
		}
	}
	return parts[0].kind
}

// kindsByRole are the kinds of waits of a cause, by a role of the called function or of the site's function. The first one applies.
var kindsByRole = map[report.CauseName][]struct {
	role knowledge.Role
	kind string
}{
	report.CauseNetwork: {{knowledge.File, Pipe}, {knowledge.DNS, NameServer}, {knowledge.FlowControlWait, FlowControl}},
	report.CauseSleep: {
		{knowledge.RateLimiter, Limiter},
		{knowledge.DatabaseLock, DatabaseLock},
		{knowledge.SharedLock, SharedLock},
		{knowledge.BatchInterval, BatchDue},
		{knowledge.ContinueWait, NoContinue},
		{knowledge.DialFallback, DialFallback},
		{knowledge.Deadline, Deadline},
	},
}

// KindOf returns the kind of a row's time, by what would shorten it. It is finer than the row's own kind: it separates pipes and
// name servers from other peers, and locked databases, deadlines, timers and rate limiters from time.Sleep. Verdicts and findings
// use the same kinds.
func KindOf(cause *report.Cause) string {
	call := knowledge.Of(cause.Call)
	roles := call
	if cause.Site != nil {
		roles = roles.Union(knowledge.Of(cause.Site.Func))
	}
	for _, row := range kindsByRole[cause.Cause] {
		if roles.Has(row.role) {
			return row.kind
		}
	}
	if cause.Cause == report.CauseSleep && cause.Call != "" && !call.Has(knowledge.SleepWait) {
		return Timer
	}
	return cause.Kind
}

// IsNextRequest reports whether the wait chain via leads through another goroutine to a wait of a server for the next request, on an
// idle connection of net/http or a new one: the request waits for what that other request will do.
func IsNextRequest(cause *report.Cause, via []report.Via) bool {
	return cause.Cause == report.CauseNetwork && cause.Kind == "inbound" && len(via) > 0 && cause.Site != nil &&
		(knowledge.Has(cause.Site.Func, knowledge.HTTP1Connection) || knowledge.Has(cause.Call, knowledge.KnownServer))
}
