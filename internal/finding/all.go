package finding

import (
	"slices"
	"strings"
)

// All returns every rule, by code.
func All() []Rule {
	all := []Rule{
		sleepRule(), convoyRule(), poolRule(), flushRule(), peerRule(), clientRule(), syscallRule(),
		assistRule(), workersRule(), stopRule(), frequentRule(), forcedRule(),
	}
	slices.SortFunc(all, func(a, b Rule) int { return strings.Compare(a.Code, b.Code) })
	return all
}
