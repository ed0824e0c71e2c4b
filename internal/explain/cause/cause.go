// Package cause gives every step of a critical path one cause and a site: the
// line of the user's, or a dependency's, code where it happened.
package cause

import "slices"

// A Cause is what a stretch of a request was spent on (the names are a
// contract, see DESIGN section 4).
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
)

var causeNames = [...]string{"unknown", "cpu", "sched", "sched-wake", "sched-poll", "throttle", "gc-assist", "gc-wait", "stw", "sleep", "network", "syscall", "lock", "chan"}

func (c Cause) String() string { return causeNames[c] }

// Count is how many causes there are: they are the numbers below it.
const Count = len(causeNames)

// ByName returns the cause of a name.
func ByName(name string) (Cause, bool) {
	i := slices.Index(causeNames[:], name)
	return Cause(max(i, 0)), i >= 0
}

// SiteSource says how the site of running time was found.
type SiteSource uint8

// Where a site comes from.
const (
	SiteUnknown        SiteSource = iota
	SiteFromSample                // a CPU profile sample inside the stretch
	SiteFromPreemption            // where it was preempted
	SiteFromBracket               // the events around it: a short run has no stack of its own
)

var siteSourceNames = [...]string{"", "sample", "preempt", "bracket"}

func (source SiteSource) String() string { return siteSourceNames[source] }
