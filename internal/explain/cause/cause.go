// Package cause classifies the steps of a critical path: it turns each step into segments, each with one cause and a
// site, the line of the service's or a dependency's code where the time passed.
//
// A step of one kind mostly has one cause. A wait for a P is divided further: the world was stopped, all Ps were
// busy, or a P was idle and had not yet woken up. Running time is divided at CPU samples, if the trace has them.
//
// The site of a stack is its innermost frame outside the standard library (Sites). If that frame belongs to a
// dependency, a CallerFinder adds the line of the service's own code that called the dependency, since that line can be
// changed.
//
// Whether time belongs to a freeze is known only at the end of the trace. Until then a Code holds both possible
// causes, and a Settlement decides.
package cause

import "slices"

// A Cause is what a request spent time on. The names are part of the report's format.
type Cause uint8

// Causes.
const (
	Unknown Cause = iota
	CPU
	Sched
	SchedWake
	SchedPoll
	Throttle
	GCAssist
	GCWait
	STW
	Sleep
	Network
	Syscall
	Lock
	Chan
	CPUWait // only with the kernel's events: Kind of the segment is what had the CPU
	Disk    // only with the kernel's events: a page fault
	Queue   // no segment of a walk has it: only the whole trace shows which waits are queues
)

var causeNames = [...]string{"unknown", "cpu", "sched", "sched-wake", "sched-poll", "throttle", "gc-assist", "gc-wait", "stw", "sleep", "network", "syscall", "lock", "chan", "cpu-wait", "disk", "queue"}

func (c Cause) String() string { return causeNames[c] }

// Count is the number of causes: they are the numbers below it.
const Count = len(causeNames)

// ByName returns the cause with a name.
func ByName(name string) (Cause, bool) {
	i := slices.Index(causeNames[:], name)
	return Cause(max(i, 0)), i >= 0
}

// SiteSource is how the site of running time was found.
type SiteSource uint8

// Sources of sites.
const (
	SiteUnknown        SiteSource = iota
	SiteFromSample                // a CPU sample within the segment
	SiteFromPreemption            // the stack at a preemption
	SiteFromBracket               // the events before and after it: a short run has no stack
)

var siteSourceNames = [...]string{"", "sample", "preempt", "bracket"}

func (source SiteSource) String() string { return siteSourceNames[source] }
