package finding

import (
	"strings"

	"github.com/whylate/whylate/report"
)

// A syscallKind is the purpose of a system call, and the texts for its activity and its fix.
type syscallKind struct{ activity, fix textKey }

// Kinds of system calls that rules distinguish.
var (
	diskSync        = syscallKind{"phrase syncs", "fix sync"}
	otherSystemCall = syscallKind{"phrase is-in-system-call", "fix system-call"}
)

func syscallOf(cause *report.Cause) syscallKind {
	call, site := cause.Call, ""
	if cause.Site != nil {
		site = cause.Site.Func
	}
	switch {
	case call == "os.(*File).Sync", call == "syscall.Fsync", call == "syscall.Fdatasync":
		return diskSync
	case call == "syscall.Flock", call == "syscall.FcntlFlock", isFileLock(site):
		return syscallKind{"phrase waits-for-file-lock", "fix file-lock"}
	case strings.HasPrefix(call, "os/exec."), call == "os.(*Process).Wait":
		return syscallKind{"phrase waits-for-child", "fix child-process"}
	case isDNS(call), isDNS(site):
		return syscallKind{"phrase looks-name-up", "fix c-resolver"}
	case isFileCall(call) && strings.Contains(call, "Write"), isLoggerCall(call):
		return syscallKind{"phrase writes-file", "fix file-write"}
	case isFileCall(call):
		return syscallKind{"phrase reads-file", "fix file-read"}
	case cause.Kind == report.InC:
		return syscallKind{"phrase runs-c-code", "fix c-code"}
	}
	return otherSystemCall
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
	v.Title, v.Fix = textOf("title blocking-syscall", "goroutine", goroutineActivity(top)), textOf(k.fix)
	attr.addSlowMean(&v, "evidence slow-mean-on", cand, top, top.via)
	v.addEvidence(callEvidence(cand, top)...)
	if k == otherSystemCall {
		v.Confidence = 0.6
	}
	if top.Cause.Cause == report.CauseNetwork {
		v.Fix = textOf("fix pipe-reader", "site", v.Site)
	}
	return v
}
