package finding

import (
	"cmp"
	"slices"
)

// All returns every rule, by code.
func All() []Rule {
	all := []Rule{
		hubRule(), saturatedRule(), wakeupRule(), herdRule(), manyProcsRule(), fewProcsRule(), longRunRule(), computeRule(), busyMachineRule(),
		sleepRule(), convoyRule(), poolRule(), flushRule(), peerRule(), clientRule(), syscallRule(), retransmitRule(), hungRule(),
		assistRule(), workersRule(), stopRule(), frequentRule(), forcedRule(),
		fewRule(), truncatedRule(), unnamedRule(), overheadRule(), selfLoadRule(), pollGapRule(), clockRule(), lostRule(), windowRule(), periodRule(), cpuTimeRule(),
		throttleRule(), procsRule(), stoppedRule(),
	}
	slices.SortFunc(all, func(a, b Rule) int { return cmp.Compare(a.Code, b.Code) })
	return all
}
