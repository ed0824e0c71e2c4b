package features

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testfull"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/lab/traceprog/internal/rig"
)

// A Promise is a feature that the trace of a scenario must have, at least a number of times, or as often as a fact of the
// program says.
type Promise struct {
	Feature string
	AtLeast int
	Fact    string // if set: at least this fact's value
}

// sizeLimit bounds the size of a trace of the scenario's own duration: tests cut each trace at a thousand places.
const sizeLimit = 5 << 20

// Run checks a scenario's promises, and that the reference reader accepts the whole trace: by default of the stored recording,
// which other tests use; with testfull.IsEnabled of a new run. A run starts the test binary again, whose TestMain must call the
// program if the environment has AsProgram. A run of duration d whose promises fail, for example on a busy machine, is
// repeated twice for longer; with d 0 it only has the scenario's own duration.
func Run(t *testing.T, s rig.Scenario, promises []Promise, d time.Duration, args ...string) {
	t.Helper()
	t.Parallel()
	check.True(t, len(promises) != 0, "nothing is said about what the trace of %s holds", s.Name)
	if !testfull.IsEnabled() {
		if len(args) > 0 {
			t.Skipf("runs a program: only with %s=1 (.ci/full)", testfull.Env)
		}
		if s.Duration > 0 {
			// Recordings are shorter than the scenario, which may need its time for several generations.
			promises = slices.DeleteFunc(slices.Clone(promises), func(p Promise) bool { return p.Feature == "generations" })
		}
		data, facts := testprog.Record(t, s.Name)
		if broken := brokenPromises(t, s, promises, data, facts.Facts); len(broken) > 0 {
			t.Error(strings.Join(broken, "\n"))
		}
		return
	}
	tries := []time.Duration{d, 4 * d, 16 * d}
	if d == 0 {
		tries = tries[:1]
	}
	var broken []string
	for i, d := range tries {
		data, res := recordScenario(t, s, append(args, "-d", d.String()))
		if i == 0 && len(data) > sizeLimit {
			t.Errorf("%s: %d bytes of trace, %d allowed", s.Name, len(data), sizeLimit)
		}
		if broken = brokenPromises(t, s, promises, data, res.Facts); len(broken) == 0 {
			return
		}
	}
	t.Error(strings.Join(broken, "\n"))
}

// recordScenario records a scenario.
func recordScenario(t *testing.T, s rig.Scenario, args []string) ([]byte, rig.Result) {
	t.Helper()
	path := filepath.Join(t.TempDir(), s.Name+".trace")
	cmd := exec.Command(os.Args[0], append([]string{s.Name, "-o", path}, args...)...)
	cmd.Env = append(os.Environ(), AsProgram+"=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	must.True(t, err == nil, "%s: %v\n%s", s.Name, err, stderr.Bytes())
	var res rig.Result
	if err := json.Unmarshal(out, &res); err != nil {
		t.Fatalf("%s printed %q: %v", s.Name, out, err)
	}
	data := must.Have(os.ReadFile(path))(t)
	check.True(t, int64(len(data)) == res.Bytes, "%s: %d bytes of trace, %d reported", s.Name, len(data), res.Bytes)
	return data, res
}

// brokenPromises returns the promises that a trace does not keep.
func brokenPromises(t *testing.T, s rig.Scenario, promises []Promise, data []byte, facts map[string]int64) (broken []string) {
	t.Helper()
	got, err := Count(data)
	must.True(t, err == nil, "%s: the reference reader refuses the trace: %v", s.Name, err)
	for _, p := range promises {
		want := max(1, p.AtLeast)
		if p.Fact != "" {
			n, ok := facts[p.Fact]
			if !ok || n == 0 {
				broken = append(broken, fmt.Sprintf("%s did none of %q: %v", s.Name, p.Fact, facts))
			}
			want = int(n)
		}
		if got[p.Feature] < want {
			broken = append(broken, fmt.Sprintf("%s: %q %d times, want at least %d", s.Name, p.Feature, got[p.Feature], want))
		}
	}
	return broken
}

// AsProgram is the environment variable that turns a test binary into the tested program.
const AsProgram = "TRACEPROG_TEST_AS_PROGRAM"
