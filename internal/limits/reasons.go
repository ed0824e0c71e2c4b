package limits

import (
	"fmt"

	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/service/cgroup"
)

// Reasons of choices, for users. The values are decided in answer.go.
const (
	reasonEnvProcs = "GOMAXPROCS is set in the environment: the runtime and automaxprocs do not change it, and it does not follow a limit that changes"
	reasonGoMemory = "the runtime does not read memory limits of groups"
	reasonLinked   = "; it is linked into the program"
)

// reasonQuotaAware is the reason of a runtime that reads the quota.
func reasonQuotaAware(c *cgroup.CPU) string {
	if c.RuntimeQuota > 0 {
		return fmt.Sprintf("its own group's quota of %s rounded up, at least 2, at most the %d CPUs available; ancestors are ignored", words.CPUs(c.RuntimeQuota), c.Parallelism)
	}
	return fmt.Sprintf("its own group has no quota that the runtime sees, so all %d CPUs available; ancestors are ignored", c.Parallelism)
}

// reasonQuotaUnaware is the reason of a runtime that does not read the quota. disabled means that a
// setting turns that off.
func reasonQuotaUnaware(c *cgroup.CPU, disabled bool) string {
	s := fmt.Sprintf("all %d CPUs available: it does not read quotas", c.Parallelism)
	if disabled {
		s += " (containermaxprocs=0)"
	}
	return s
}

// reasonAutomaxprocs returns why automaxprocs sets GOMAXPROCS (sets) or leaves it; linked says that the program contains it.
func reasonAutomaxprocs(c *cgroup.CPU, sets, linked bool) string {
	s := "its own group has no quota that it sees: it leaves GOMAXPROCS unchanged"
	if sets {
		s = fmt.Sprintf("its own group's quota of %s rounded down, at least 1; ancestors are ignored", words.CPUs(c.Levels[0].CPUs))
	}
	if linked {
		s += reasonLinked
	}
	return s
}

// reasonAuto is the reason of service/auto. leftToRuntime means that the runtime chooses the same
// value, so service/auto sets nothing.
func reasonAuto(c *cgroup.CPU, leftToRuntime bool) string {
	s := fmt.Sprintf("no visible group has a quota: all %d CPUs available", c.Parallelism)
	if c.Quota > 0 {
		s = fmt.Sprintf("the tightest visible quota, %s%s, rounded up, at least 1, at most the %d CPUs available", words.CPUs(c.Quota), quotaOwner(c), c.Parallelism)
	}
	if leftToRuntime {
		s += "; the runtime chooses the same, so the choice is left to it"
	}
	return s
}

// quotaOwner says which group sets the tightest quota, as the end of a sentence that begins with a space; "" without a quota.
func quotaOwner(c *cgroup.CPU) string {
	if c.QuotaLevel < 0 {
		return ""
	}
	if d := c.Levels[c.QuotaLevel].Depth; d > 0 {
		return fmt.Sprintf(" of an ancestor (%d up)", d)
	}
	return " of its own group"
}

// reasonEnvMemory returns what the environment's GOMEMLIMIT does; valid says that the runtime accepts it.
func reasonEnvMemory(valid bool) string {
	if !valid {
		return "GOMEMLIMIT is set in the environment, in a form that the runtime rejects: the program ends when it starts"
	}
	return "GOMEMLIMIT is set in the environment"
}

// reasonAutomemlimit returns by which limit automemlimit sets GOMEMLIMIT, or that it sees none (sees); linked says that the program contains it.
func reasonAutomemlimit(m *cgroup.Memory, sees, linked bool) string {
	s := "no memory limit is visible"
	if sees {
		s = nineTenths(m)
	}
	if linked {
		s += reasonLinked
	}
	return s
}

func reasonTune(m *cgroup.Memory) string {
	return nineTenths(m) + ", less the memory that is not Go's; only reported unless it is told to set it"
}

func nineTenths(m *cgroup.Memory) string { return "nine tenths of " + words.Binary(m.Max) }
