package limitstext

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/limits"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/traps"
)

var update = flag.Bool("update", false, "rewrite testdata/*.golden")

// TestGolden writes the answers that package limits holds as data.
func TestGolden(t *testing.T) {
	for _, name := range []string{"docker-v2", "kubernetes-v2-from-the-node", "above-the-namespace"} {
		data := must.Have(os.ReadFile(filepath.Join("..", "..", "limits", "testdata", name+".json")))(t)
		var a limits.Answer
		must.Do(t, json.Unmarshal(data, &a))
		var b bytes.Buffer
		must.Do(t, Write(&b, &a))
		golden := filepath.Join("testdata", name+".golden")
		must.Golden(t, *update, golden, b.Bytes())
	}
}

// TestEscapes: what comes from a process may be anything; no terminal may obey it.
func TestEscapes(t *testing.T) {
	evil := "a\x1b[2Jb\nc\u202e"
	a := &limits.Answer{
		PID: 1, Env: map[string]string{"GOMAXPROCS": evil, evil: evil}, Warnings: []string{evil},
		Program: &limits.Program{Main: evil, Go: evil, Modules: map[string]string{evil: evil}},
		Limits: &cgroup.Limits{
			CPU:    cgroup.CPU{Bounds: []cgroup.CPUBound{{Kind: cgroup.BoundQuota, File: evil, Text: evil, Why: evil}}, Sight: cgroup.SightMalformed, SightText: evil},
			Memory: cgroup.Memory{Bounds: []cgroup.MemoryBound{{Kind: cgroup.BoundMax, File: evil, Text: evil, Why: evil}}, HighLevel: -1},
		},
		Choices: []limits.Choice{{Knob: "GOMAXPROCS", Setter: evil, Reason: evil}}, Traps: []traps.Trap{{Code: traps.Codes()[0], Text: evil, Fix: evil}},
	}
	var b bytes.Buffer
	must.Do(t, Write(&b, a))
	check.True(t, !strings.ContainsAny(b.String(), "\x1b\u202e") && !strings.Contains(b.String(), "b\nc"),
		"control characters came through:\n%q", b.String())
}
