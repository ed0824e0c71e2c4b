package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestLinksNoExperiments: the server runs verbs that read recordings, so it must not link the load generator.
func TestLinksNoExperiments(t *testing.T) {
	out := must.Have(exec.Command("go", "list", "-deps", ".").Output())(t)
	packages := strings.Fields(string(out))
	check.True(t, len(packages) >= 100, "only %d packages are linked", len(packages))
	for _, p := range packages {
		for _, name := range []string{"/internal/experiment/load", "/internal/experiment/sweep", "/internal/cli/experiments"} {
			check.False(t, strings.HasSuffix(p, name), "%s is linked", p)
		}
	}
}
