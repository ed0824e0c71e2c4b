package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestLinksNoExperiments: the server runs verbs that read recordings, so it must not link the load generator.
func TestLinksNoExperiments(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(string(out))
	if len(packages) < 100 {
		t.Errorf("only %d packages are linked", len(packages))
	}
	for _, p := range packages {
		for _, name := range []string{"/internal/experiment/load", "/internal/experiment/sweep", "/internal/cli/experiments"} {
			if strings.HasSuffix(p, name) {
				t.Errorf("%s is linked", p)
			}
		}
	}
}
