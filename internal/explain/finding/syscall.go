package finding

import (
	"fmt"
	"strings"

	"github.com/whylate/whylate/report"
)

func syscallRule() Rule {
	return Rule{
		Code: report.RuleBlockingSyscall, Name: "blocking-syscall",
		Summary: "requests wait in the kernel or in C: a sync to disk, a child process, a name looked up in C, a write to a slow reader",
		Doc: Doc{
			Means: "The request's path is inside a system call or a call to C that does not go through the network poller: a sync to disk, file input and " +
				"output, a wait for a child process, getaddrinfo of the C library. Or it writes to a pipe whose reader is slow (mostly logs). The goroutine " +
				"holds a thread in that time.",
			Measured: "Cause syscall, and network where the function that waits belongs to os.File (a pipe or terminal that the poller watches). The functions on " +
				"the stack say what the call does: os.(*File).Sync, os/exec.(*Cmd).Wait, net.cgoLookup..., os.(*File).Write; otherwise only the site is " +
				"known. Confidence is 0.9 where the stack says it, 0.6 elsewhere: a thread that the kernel held back in a call looks the same.",
			Before: "f.Write(rec)\nf.Sync() // every request",
			After:  "log.append(rec) // one goroutine writes, and syncs once for all records since the last sync",
			Wrong: "When the service promises that data is on disk, only fewer or shared syncs help. Under CPU limits a call may be long because its thread got " +
				"no CPU to return: see WL4.",
		},
		Run: func(in *Input) []Verdict {
			var out []Verdict
			claimsBy(in, report.RuleBlockingSyscall, func(cl *claims, c *claim) { out = append(out, syscallVerdict(cl, c)) })
			return out
		},
	}
}

// A syscallKind is what a system call is for.
type syscallKind struct {
	name  string
	doing string
	fix   string
}

func syscallOf(c *report.Cause) syscallKind {
	call, site := c.Call, ""
	if c.Site != nil {
		site = c.Site.Func
	}
	switch {
	case call == "os.(*File).Sync", call == "syscall.Fsync", call == "syscall.Fdatasync":
		return syscallKind{"sync", "syncs to disk", "sync once for several requests (group commit), or answer before the sync where that is allowed"}
	case call == "syscall.Flock", call == "syscall.FcntlFlock", isFileLock(site):
		return syscallKind{"flock", "waits for the lock of a file", "its holder opened the file separately, in this process or in another one: hold the lock for less time; " +
			"if the holder may be in this process, take a sync.Mutex first, so that a trace shows what holders do"}
	case strings.HasPrefix(call, "os/exec."), call == "os.(*Process).Wait":
		return syscallKind{"child", "waits for a child process", "do the work in this process, or keep children running and send them work, or answer before the child ends"}
	case isDNS(call), isDNS(site):
		return syscallKind{"dns", "looks a name up in the C library", "use the Go resolver (GODEBUG=netdns=go, or the build tag netgo), keep connections open, or cache addresses"}
	case isFile(call) && strings.Contains(call, "Write"), isLogger(call):
		return syscallKind{"write", "writes to a file or pipe", "write from a separate goroutine through a bounded buffer that drops or counts what does not fit; log less in requests"}
	case isFile(call):
		return syscallKind{"file", "reads a file", "keep what is often read in memory, or read it in advance"}
	case c.Kind == report.InC:
		return syscallKind{"cgo", "runs C code", "make the C call shorter, or run it outside of the request"}
	}
	return syscallKind{"", "is in a system call", "do it outside of the request, less often, or in larger pieces"}
}

// isFileLock reports whether a function of golang.org/x/sys locks a file.
func isFileLock(fn string) bool {
	switch fn {
	case "golang.org/x/sys/unix.Flock", "golang.org/x/sys/unix.FcntlFlock", "golang.org/x/sys/windows.LockFileEx":
		return true
	}
	return false
}

func syscallVerdict(cl *claims, c *claim) Verdict {
	top := &c.parts[0]
	k := syscallOf(top.Cause)
	f := report.Finding{
		Title: "requests wait while " + onePlace(top), Cause: top.Cause.Cause, Site: users(top.Cause, top.via), Group: cl.g.ID, Share: c.share, Confidence: 0.9,
		Evidence: append([]report.Evidence{
			{Text: "mean per slow request, " + onWhose(top.via), Value: float64(c.won.SlowNS), Unit: "ns"},
			cl.met(c, top, "have this wait"),
		}, callEvidence(c, top)...),
		Fix: k.fix,
	}
	if k.name == "" {
		f.Confidence = 0.6
	}
	if top.Cause.Cause == report.CauseNetwork {
		f.Fix = fmt.Sprintf("the reader of the pipe written at %s is slow: write from a separate goroutine through a bounded buffer that drops or counts what does not fit, and make the reader faster", place(f.Site))
	}
	return Verdict{Won: c.won, Finding: f, Changes: cl.halfOf(top.Cause)}
}
