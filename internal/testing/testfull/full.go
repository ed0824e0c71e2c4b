// Package testfull tells tests whether they may take minutes, need a free machine, or change what the machine does.
package testfull

import (
	"os"
	"testing"
)

// Env is the environment variable that .ci/full sets to 1. Without it tests need no clock, cgroup, network shaping,
// virtual machine or browser: they give the same answer on any machine, however busy.
const Env = "WHYLATE_FULL"

// IsEnabled reports whether tests may use all of that.
func IsEnabled() bool { return os.Getenv(Env) == "1" }

// Need skips a test that needs a clock, a cgroup or the like, unless On.
func Need(t testing.TB, requirement string) {
	t.Helper()
	if !IsEnabled() {
		t.Skipf("needs %s: only with %s=1 (.ci/full)", requirement, Env)
	}
}
