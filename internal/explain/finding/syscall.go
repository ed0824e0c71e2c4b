package finding

import (
	"fmt"
	"strings"

	"github.com/whylate/whylate/report"
)

// A syscallKind is the purpose of a system call.
type syscallKind struct {
	name     string
	activity string
	fix      string
}

func syscallOf(cause *report.Cause) syscallKind {
	call, site := cause.Call, ""
	if cause.Site != nil {
		site = cause.Site.Func
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
	case isFileCall(call) && strings.Contains(call, "Write"), isLoggerCall(call):
		return syscallKind{"write", "writes to a file or pipe", "write from a separate goroutine through a bounded buffer that drops or counts what does not fit; log less in requests"}
	case isFileCall(call):
		return syscallKind{"file", "reads a file", "keep what is often read in memory, or read it in advance"}
	case cause.Kind == report.InC:
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

// checkBlockingSyscall is WL2007, blocking-syscall.
func checkBlockingSyscall(attr *attribution, cand *candidate) Verdict {
	top := &cand.routes[0]
	k := syscallOf(top.Cause)
	v := attr.newVerdict(cand, top)
	v.Title, v.Fix = "requests wait while "+goroutineActivity(top), k.fix
	v.addEvidence(measurement("mean per slow request, "+goroutineText(top.via), cand.gain.Slow.NS, "ns"), attr.requestCountEvidence(cand, top))
	v.addEvidence(callEvidence(cand, top)...)
	if k.name == "" {
		v.Confidence = 0.6
	}
	if top.Cause.Cause == report.CauseNetwork {
		v.Fix = fmt.Sprintf("the reader of the pipe written at %s is slow: write from a separate goroutine through a bounded buffer that drops or counts what does not fit, and make the reader faster", siteText(v.Site))
	}
	return v
}
