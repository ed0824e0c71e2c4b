package critpath

import (
	"cmp"

	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// waitReason classifies the reason that the runtime records for a wait.
type waitReason uint8

const (
	reasonUnclassified waitReason = iota
	reasonOther
	reasonNetwork
	reasonSelect
	reasonReceive
	reasonSend
	reasonCond
	reasonSync
	reasonSleep
	reasonForever
	reasonMarkAssist
	reasonGCPhase
	reasonCoroutineSwitch
)

// reasonsByText are the classes of the texts that the runtime records as the reason of a wait. Empty text is a switch between coroutines
// (iter.Pull). All other texts are reasonOther.
var reasonsByText = map[string]waitReason{
	"network": reasonNetwork, "select": reasonSelect, "chan receive": reasonReceive, "chan send": reasonSend, "sync.(*Cond).Wait": reasonCond,
	"sync": reasonSync, "sleep": reasonSleep, "forever": reasonForever, "GC mark assist wait for work": reasonMarkAssist, "": reasonCoroutineSwitch,
	"GC background sweeper wait": reasonGCPhase, "wait until GC ends": reasonGCPhase, "GC weak to strong wait": reasonGCPhase,
	"system goroutine wait": reasonGCPhase, "preempted": reasonGCPhase,
}

// waitReason returns the class of a recorded wait reason, cached by the text's id.
func (w *Walker) waitReason(id tracefmt.StringID) waitReason {
	for int(id) >= len(w.reasonClasses) {
		w.reasonClasses = append(w.reasonClasses, reasonUnclassified)
	}
	if w.reasonClasses[id] == reasonUnclassified {
		w.reasonClasses[id] = cmp.Or(reasonsByText[w.symbols.String(id)], reasonOther)
	}
	return w.reasonClasses[id]
}

// reasonsByRole are the reasons of waits in functions with a role. The first one applies.
var reasonsByRole = []struct {
	role   knowledge.Role
	reason waitReason
}{
	{knowledge.NetworkWait, reasonNetwork}, {knowledge.SleepWait, reasonSleep}, {knowledge.SelectWait, reasonSelect}, {knowledge.ForeverWait, reasonForever},
	{knowledge.ReceiveWait, reasonReceive}, {knowledge.SendWait, reasonSend}, {knowledge.CondWait, reasonCond}, {knowledge.SemaphoreWait, reasonSync},
}

// waitReasonByStack derives the reason of a wait from its stack. It is needed for a goroutine that already waited when the
// trace began, because a status event has no reason.
func (w *Walker) waitReasonByStack(id tracefmt.StackID) waitReason {
	for _, f := range w.symbols.Stack(id) {
		roles := w.functions.Of(w.symbols.Frame(f).Func)
		for _, row := range reasonsByRole {
			if roles.Has(row.role) {
				return row.reason
			}
		}
	}
	return reasonOther
}
