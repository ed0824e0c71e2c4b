package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testfull"
	"github.com/whylate/whylate/report"
)

// TestDemo runs the demo as a user does. Its service uses the available CPUs: if other processes use them, some attempts may
// miss a fault, but not all of them.
func TestDemo(t *testing.T) {
	testfull.Need(t, "two CPUs that nobody else uses")
	name := filepath.Join(t.TempDir(), "demo.trace")
	var out []byte
	for range 3 {
		var err error
		if out, err = program(t, "demo", "-o", name).CombinedOutput(); err == nil {
			break
		}
		t.Logf("an attempt: %v\n%s", err, out)
		out = nil
	}
	must.True(t, out != nil, "no attempt found all faults")
	for _, want := range []string{"3 of 3 known faults found.", "asleep in demo.(*service).backoff service.go:", "demo.(*journal).append service.go:", "demo.(*service).queryStore service.go:",
		"demo.useCPU"} {
		check.True(t, strings.Contains(string(out), want), "the output does not say %q:\n%s", want, out)
	}
	// The hogs are named as what held the CPUs, though they never show a stack of their own.
	if out, err := program(t, "explain", "--json", "--group", `price$`, name).Output(); err != nil {
		t.Errorf("explaining the trace that was kept: %v", err)
	} else if rep, err := report.ReadJSON(bytes.NewReader(out)); err != nil || len(rep.Groups) != 1 {
		t.Errorf("explaining the trace that was kept: %v", err)
	} else {
		most := map[string]float64{}
		for _, c := range rep.Groups[0].Bands[0].Causes {
			for _, s := range c.RanMeanwhile {
				if s.Site != nil && c.Cause == "sched" {
					most[path.Base(s.Site.Func)] += s.Share * c.Share
				}
			}
		}
		for f, share := range most {
			check.True(t, share <= most["demo.useCPU"],
				"%s ran meanwhile for more (%.2f) than the hogs (%.2f)", f, share, most["demo.useCPU"])
		}
	}
	for group, want := range map[string]string{
		`price$`: "Requests of demo.(*service).price (p50",
		`order$`: "requests queue for a Mutex while its holder waits for the network", // one screen of all groups has no room for it
	} {
		if out, err := program(t, "explain", "--group", group, name).CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("explain --group %s does not say %q: %v\n%s", group, want, err, out)
		}
	}
}

func TestDemoCannotKeepTheTrace(t *testing.T) {
	out, err := program(t, "demo", "-o", filepath.Join(t.TempDir(), "no", "x.trace")).CombinedOutput()
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != ExitFailed || strings.Count(string(out), "\n") != 1 {
		t.Errorf("%v: %s", err, out)
	}
}

// program returns this test binary as the program: TestMain checks the name by which it is called.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self := must.Have(os.Executable())(t)
	cmd := exec.Command(self, args...)
	cmd.Args[0] = "whylate"
	return cmd
}
