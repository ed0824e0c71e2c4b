package verdict

import (
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// Words returns a phrase for a cause without a site: the activity, the queue, and the other service that the time is in.
func Words(c *report.VerdictCause) string {
	text := activity(c)
	if c.Queue != nil {
		text = "queueing for " + termtext.Head(c.Queue.For, 100)
	}
	if c.Service != "" {
		text += " in " + termtext.Head(c.Service, 80)
	}
	return text
}

// activity returns a phrase for what goroutines do during the time of a cause, such as "waiting for a timer or ticker". For a
// queue it is the activity of those ahead.
func activity(cause *report.VerdictCause) string {
	switch {
	case cause.Cause == report.CauseQueue && cause.Kind != "":
		return "queueing for " + termtext.Head(cause.Kind, 100)
	case cause.Cause == report.CauseSTW && cause.Kind != "":
		return "with the world stopped (" + termtext.Head(cause.Kind, 40) + ")"
	case cause.WayTo != "":
		return "on the way to " + termtext.Head(cause.WayTo, 80) + " and back"
	case cause.Cause == report.CauseNetwork && cause.Kind == "outbound" && len(cause.PeerStates) > 0:
		return "waiting for " + names.PeerDoing(cause.PeerStates)
	case cause.Cause == report.CauseCPUWait && len(cause.Processes) > 0:
		return "with its thread waiting for a CPU" + processesPhrase(cause)
	}
	if text := kindWords[cause.Cause][cause.Kind]; text != "" {
		return text
	}
	if w, ok := causeWords[cause.Cause]; ok {
		return w.text
	}
	return "on " + termtext.Head(cause.Cause, 20)
}

// processesPhrase returns a phrase that continues a sentence, with a space before it: the process that had the CPU while a thread
// waited for it, or, if none had nearly all, the two that had it most, with their shares of the requests' time. The cause must
// have processes, the largest share first.
func processesPhrase(cause *report.VerdictCause) string {
	list := cause.Processes
	if list[0].Share >= threshold.NearlyAllShare {
		return " while " + termtext.Head(list[0].Process, 60) + " ran"
	}
	text := ""
	for i, p := range list {
		if i == 2 || i > 0 && p.Share < threshold.NoticeableShare {
			break
		}
		if i > 0 {
			text += ", "
		}
		text += termtext.Head(p.Process, 60) + " " + words.Percent(p.Share*cause.Share)
	}
	return " that others had (" + text + ")"
}

// kindWords are the phrases for kinds of causes.
var kindWords = map[report.CauseName]map[string]string{
	report.CauseNetwork: {
		Pipe:        "waiting for the other end of a pipe",
		Connect:     "opening connections",
		NameServer:  "waiting for a name server",
		FlowControl: "waiting until the peer allows more bytes (HTTP/2 flow control)",
		NextRequest: "waiting until another request comes",
		"inbound":   "waiting for the client",
		"outbound":  "waiting for a peer on the network",
	},
	report.CauseSchedPoll: {report.Arrived: "with its data arrived, which the runtime polled for late"},
	report.CauseSyscall: {
		report.InC:    "in C code",
		ChildProcess:  "waiting for a child process",
		DiskSync:      "syncing to disk",
		DirectoryRead: "reading a directory",
		FileWrite:     "writing to a file or pipe",
	},
	report.CauseSleep: {
		Deadline:     "waiting for a deadline",
		Timer:        "waiting for a timer or ticker",
		Limiter:      "waiting for a rate limiter",
		DatabaseLock: "waiting for a locked database",
		BatchDue:     "waiting until a batch is due (linger)",
		SharedLock:   "queueing for a lock that processes share",
		NoContinue:   "waiting for a 100 Continue that does not come",
		DialFallback: "waiting for an address that does not answer",
	},
}

// causeWords are the phrase for each cause and the preposition before its site.
var causeWords = map[report.CauseName]struct{ text, preposition string }{
	report.CauseCPU:       {"computing", " in "},
	report.CauseSched:     {"ready to run, in Go's run queue", ", at "},
	report.CauseSchedWake: {"ready to run, but its thread was woken late (a CPU was free)", ", at "},
	report.CauseSchedPoll: {"with data perhaps ready, but not yet polled for", ", at "},
	report.CauseThrottle:  {"throttled by the CPU quota", ", at "},
	report.CauseGCAssist:  {"helping the garbage collector", ", allocating in "},
	report.CauseGCWait:    {"waiting for the garbage collector", ", in "},
	report.CauseSTW:       {"with the world stopped", ", by "},
	report.CauseSleep:     {"asleep", " in "},
	report.CauseNetwork:   {"waiting for the network", " in "},
	report.CauseSyscall:   {"in the kernel", ", called from "},
	report.CauseLock:      {"waiting for a lock", " in "},
	report.CauseChan:      {"waiting on a channel", " in "},
	report.CauseCPUWait:   {"with its thread waiting for a CPU", ", in "},
	report.CauseDisk:      {"waiting for the disk in a page fault", " in "},
	report.CauseQueue:     {"queueing", " at "},
	report.CauseUnknown:   {"in ways the trace does not show", ", at "},
	report.CauseOther:     {"on many small causes", ", at "},
}
