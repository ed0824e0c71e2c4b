// Package testfull decides whether tests may take minutes, need an idle machine, or change the
// machine's configuration.
package testfull

import (
	"os"
	"testing"
)

// Env is the environment variable that .ci/full sets to 1. Without it no test needs a clock, cgroup,
// network shaping, virtual machine or browser, so tests give the same result on any machine under any
// load.
const Env = "WHYLATE_FULL"

// IsEnabled reports whether tests may use all of that.
func IsEnabled() bool { return os.Getenv(Env) == "1" }

// Need skips a test that needs a clock, a cgroup or similar, unless IsEnabled.
func Need(t testing.TB, requirement string) {
	t.Helper()
	if !IsEnabled() {
		t.Skipf("needs %s: only with %s=1 (.ci/full)", requirement, Env)
	}
}
