package tracefmt

import (
	"slices"
	"strings"
)

// EventType is the byte that begins an event.
type EventType uint8

// Event types of format v2, with the numbers of the wire format.
const (
	EvNone EventType = iota

	// Structure: batches and the tables inside them.
	EvEventBatch
	EvStacks
	EvStack
	EvStrings
	EvString
	EvCPUSamples
	EvCPUSample
	EvFrequency

	// Ps.
	EvProcsChange
	EvProcStart
	EvProcStop
	EvProcSteal
	EvProcStatus

	// Goroutines.
	EvGoCreate
	EvGoCreateSyscall
	EvGoStart
	EvGoDestroy
	EvGoDestroySyscall
	EvGoStop
	EvGoBlock
	EvGoUnblock
	EvGoSyscallBegin
	EvGoSyscallEnd
	EvGoSyscallEndBlocked
	EvGoStatus

	// Stopping the world.
	EvSTWBegin
	EvSTWEnd

	// Garbage collection.
	EvGCActive
	EvGCBegin
	EvGCEnd
	EvGCSweepActive
	EvGCSweepBegin
	EvGCSweepEnd
	EvGCMarkAssistActive
	EvGCMarkAssistBegin
	EvGCMarkAssistEnd
	EvHeapAlloc
	EvHeapGoal

	// Annotations of users and labels of the runtime.
	EvGoLabel
	EvUserTaskBegin
	EvUserTaskEnd
	EvUserRegionBegin
	EvUserRegionEnd
	EvUserLog

	// Since Go 1.23.
	EvGoSwitch
	EvGoSwitchDestroy
	EvGoCreateBlocked
	EvGoStatusStack
	EvExperimentalBatch

	// Since Go 1.25.
	EvSync
	EvClockSnapshot

	// Since Go 1.26.
	EvEndOfGeneration
)

// Experimental event types. They occur only if the traced process requests them (GODEBUG=traceallocfree=1).
const (
	EvSpan EventType = 128 + iota
	EvSpanAlloc
	EvSpanFree
	EvHeapObject
	EvHeapObjectAlloc
	EvHeapObjectFree
	EvGoroutineStack
	EvGoroutineStackAlloc
	EvGoroutineStackFree
)

// A Spec describes how an event of one type is encoded.
type Spec struct {
	// Name is the event's name in the format's text form.
	Name string
	// Args are the names of the arguments in order. The first argument of a timed event is "dt", the time
	// since the event before it in its batch. A name has the form x_role or role; the role is the kind of
	// number: "g", "m", "p", "seq", "stack", "string", "value" or "task".
	Args []string
	// Timed reports that the event belongs to a thread's stream.
	Timed bool
	// SinceMinor is the minor Go version that introduced the event.
	SinceMinor int

	roles []role // roles of a timed event's arguments
}

// A role is the table that an argument refers to.
type role uint8

const (
	numberRole role = iota
	stringRole
	stackRole
)

// specs is the single table that drives decoding, the text form and the tests of both. A new event type needs one
// more line here and, if it concerns a goroutine or a P, one in internal/trace/timeline/kinds.go.
var specs = [256]Spec{
	EvEventBatch:        untimed("EventBatch", "gen m time size", 22),
	EvStacks:            untimed("Stacks", "", 22),
	EvStack:             untimed("Stack", "id nframes", 22),
	EvStrings:           untimed("Strings", "", 22),
	EvString:            untimed("String", "id", 22),
	EvCPUSamples:        untimed("CPUSamples", "", 22),
	EvCPUSample:         untimed("CPUSample", "time m p g stack", 22),
	EvFrequency:         untimed("Frequency", "freq", 22),
	EvExperimentalBatch: untimed("ExperimentalBatch", "exp gen m time", 23),
	EvSync:              untimed("Sync", "", 25),
	EvEndOfGeneration:   untimed("EndOfGeneration", "", 26),

	EvProcsChange: timed("ProcsChange", "dt procs_value stack", 22),
	EvProcStart:   timed("ProcStart", "dt p p_seq", 22),
	EvProcStop:    timed("ProcStop", "dt", 22),
	EvProcSteal:   timed("ProcSteal", "dt p p_seq m", 22),
	EvProcStatus:  timed("ProcStatus", "dt p pstatus", 22),

	EvGoCreate:            timed("GoCreate", "dt new_g new_stack stack", 22),
	EvGoCreateSyscall:     timed("GoCreateSyscall", "dt new_g", 22),
	EvGoStart:             timed("GoStart", "dt g g_seq", 22),
	EvGoDestroy:           timed("GoDestroy", "dt", 22),
	EvGoDestroySyscall:    timed("GoDestroySyscall", "dt", 22),
	EvGoStop:              timed("GoStop", "dt reason_string stack", 22),
	EvGoBlock:             timed("GoBlock", "dt reason_string stack", 22),
	EvGoUnblock:           timed("GoUnblock", "dt g g_seq stack", 22),
	EvGoSyscallBegin:      timed("GoSyscallBegin", "dt p_seq stack", 22),
	EvGoSyscallEnd:        timed("GoSyscallEnd", "dt", 22),
	EvGoSyscallEndBlocked: timed("GoSyscallEndBlocked", "dt", 22),
	EvGoStatus:            timed("GoStatus", "dt g m gstatus", 22),

	EvSTWBegin: timed("STWBegin", "dt kind_string stack", 22),
	EvSTWEnd:   timed("STWEnd", "dt", 22),

	EvGCActive:           timed("GCActive", "dt gc_seq", 22),
	EvGCBegin:            timed("GCBegin", "dt gc_seq stack", 22),
	EvGCEnd:              timed("GCEnd", "dt gc_seq", 22),
	EvGCSweepActive:      timed("GCSweepActive", "dt p", 22),
	EvGCSweepBegin:       timed("GCSweepBegin", "dt stack", 22),
	EvGCSweepEnd:         timed("GCSweepEnd", "dt swept_value reclaimed_value", 22),
	EvGCMarkAssistActive: timed("GCMarkAssistActive", "dt g", 22),
	EvGCMarkAssistBegin:  timed("GCMarkAssistBegin", "dt stack", 22),
	EvGCMarkAssistEnd:    timed("GCMarkAssistEnd", "dt", 22),
	EvHeapAlloc:          timed("HeapAlloc", "dt heapalloc_value", 22),
	EvHeapGoal:           timed("HeapGoal", "dt heapgoal_value", 22),

	EvGoLabel:         timed("GoLabel", "dt label_string", 22),
	EvUserTaskBegin:   timed("UserTaskBegin", "dt task parent_task name_string stack", 22),
	EvUserTaskEnd:     timed("UserTaskEnd", "dt task stack", 22),
	EvUserRegionBegin: timed("UserRegionBegin", "dt task name_string stack", 22),
	EvUserRegionEnd:   timed("UserRegionEnd", "dt task name_string stack", 22),
	EvUserLog:         timed("UserLog", "dt task key_string value_string stack", 22),

	EvGoSwitch:        timed("GoSwitch", "dt g g_seq", 23),
	EvGoSwitchDestroy: timed("GoSwitchDestroy", "dt g g_seq", 23),
	EvGoCreateBlocked: timed("GoCreateBlocked", "dt new_g new_stack stack", 23),
	EvGoStatusStack:   timed("GoStatusStack", "dt g m gstatus stack", 23),
	// A clock snapshot is in a sync batch, but is timed like an event.
	EvClockSnapshot: timed("ClockSnapshot", "dt mono sec nsec", 25),

	EvSpan:                timed("Span", "dt id npages_value kindclass", 23),
	EvSpanAlloc:           timed("SpanAlloc", "dt id npages_value kindclass", 23),
	EvSpanFree:            timed("SpanFree", "dt id", 23),
	EvHeapObject:          timed("HeapObject", "dt id type", 23),
	EvHeapObjectAlloc:     timed("HeapObjectAlloc", "dt id type", 23),
	EvHeapObjectFree:      timed("HeapObjectFree", "dt id", 23),
	EvGoroutineStack:      timed("GoroutineStack", "dt id order", 23),
	EvGoroutineStackAlloc: timed("GoroutineStackAlloc", "dt id order", 23),
	EvGoroutineStackFree:  timed("GoroutineStackFree", "dt id", 23),
}

// untimed returns the Spec of an event that is not part of a thread's stream: its name, the names of its arguments, separated
// by spaces, and the first minor version of Go that writes it.
func untimed(name, args string, minor int) Spec {
	return Spec{Name: name, Args: strings.Fields(args), SinceMinor: minor}
}

// timed returns the Spec of an event of a thread's stream. args names its arguments in order; a name that ends in "string" or
// "stack" is an id of that table. minor is the Go version 1.minor that introduced the event.
func timed(name, args string, minor int) Spec {
	s := Spec{Name: name, Args: strings.Fields(args), Timed: true, SinceMinor: minor}
	for _, arg := range s.Args {
		r := numberRole
		switch arg[strings.LastIndexByte(arg, '_')+1:] {
		case "string":
			r = stringRole
		case "stack":
			r = stackRole
		}
		s.roles = append(s.roles, r)
	}
	return s
}

// SpecOf returns the Spec of an event type; its Name is empty for an unknown type.
func SpecOf(t EventType) Spec { return specs[t] }

// ArgCounts returns, by type byte, the number of varints after the byte plus one, for events of a thread's stream, and 0 for
// all other bytes. A decoder so needs one table lookup an event.
func ArgCounts() (n [256]uint8) {
	for t, s := range specs {
		if s.Timed {
			n[t] = uint8(len(s.Args)) + 1
		}
	}
	return n
}

// StackArgs returns, by type byte of an event of a thread's stream, the index of the argument that is the event's own stack.
// For an event without a stack it is the number of its arguments.
func StackArgs() (index [256]uint8) {
	for t, s := range specs {
		index[t] = uint8(len(s.Args))
		if k := slices.Index(s.Args, "stack"); k >= 0 {
			index[t] = uint8(k)
		}
	}
	return index
}

// Limits of the format, from the runtime's writer.
const (
	maxBatchSize      = 64 << 10
	maxStringLength   = 1 << 10
	maxFramesPerStack = 128
)

// A goroutine's status in GoStatus events.
const (
	GoBad uint64 = iota
	GoRunnable
	GoRunning
	GoSyscall
	GoWaiting
)

// A P's status in ProcStatus events.
const (
	ProcBad uint64 = iota
	ProcRunning
	ProcIdle
	ProcSyscall
	// ProcSyscallAbandoned: in a system call, but its thread has left it.
	ProcSyscallAbandoned
)

// NoM is the thread id of batches that belong to no thread.
const NoM = ^uint64(0)
