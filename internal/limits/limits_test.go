package limits

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/modules"
	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/traps"
)

var update = flag.Bool("update", false, "rewrite testdata/*.json")

func TestMain(m *testing.M) {
	if os.Getenv("LIMITS_TEST_CHILD") == "memlimit" {
		fmt.Print(debug.SetMemoryLimit(-1))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// machine reads one of the cgroup package's machines, which are txtar files.
func machine(t *testing.T, name string, pid int, inside ...bool) *cgroup.Limits {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "service", "cgroup", "testdata", name+".txtar"))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the tool's module alone has no machines: they are the module service's")
	}
	must.Do(t, err)
	files := fstest.MapFS{}
	var cur *fstest.MapFile
	for line := range bytes.Lines(b) {
		if s, ok := strings.CutPrefix(string(line), "-- "); ok && strings.HasSuffix(s, " --\n") {
			cur = &fstest.MapFile{}
			files[strings.TrimSuffix(s, " --\n")] = cur
		} else if cur != nil {
			cur.Data = append(cur.Data, line...)
		}
	}
	return must.Have(cgroup.Read(cgroup.Options{FS: files, PID: pid, Inside: len(inside) > 0}))(t)
}

func goProgram(version string, godebug map[string]string, modules ...string) *Program {
	p := &Program{File: "/app/api", Main: "example.com/api", Go: version, Godebug: godebug}
	for _, m := range modules {
		if p.Modules == nil {
			p.Modules = map[string]string{}
		}
		p.Modules[m] = "v1.6.0"
		p.Auto = p.Auto || m == whylate
	}
	return p
}

func TestJudge(t *testing.T) {
	old := map[string]string{"containermaxprocs": "0", "updatemaxprocs": "0"}
	ancestor := &cgroup.Throttling{Verdict: cgroup.VerdictAncestor, Ancestor: 2980 * time.Millisecond}
	for _, tt := range []struct {
		name    string
		machine string
		facts   Facts
		// GOMAXPROCS in force and its setter; 0 and "" if unknown
		procs  int64
		setter string
		traps  string // codes in order
	}{
		{"a modern program in a modern container", "docker-v2", Facts{Program: goProgram("go1.26.1", nil)}, 3, "go1.26.1",
			"fractional-quota numcpu-frozen no-gomemlimit"},
		{"no program known", "docker-v2", Facts{}, 0, "", "fractional-quota numcpu-frozen"},
		{"go.mod below 1.25", "docker-v2", Facts{Program: goProgram("go1.26.1", old)}, 16, "go1.26.1",
			"old-go-mod numcpu-frozen no-gomemlimit"},
		{"GODEBUG switches it on again", "docker-v2", Facts{Program: goProgram("go1.26.1", old), Env: map[string]string{"GODEBUG": "containermaxprocs=1"}}, 3, "go1.26.1",
			"fractional-quota numcpu-frozen no-gomemlimit"},
		{"GODEBUG switches it off", "docker-v2", Facts{Program: goProgram("go1.26.1", nil), Env: map[string]string{"GODEBUG": "gctrace=1,containermaxprocs=0"}}, 16, "go1.26.1",
			"old-go-mod numcpu-frozen no-gomemlimit"},
		{"an old toolchain", "docker-v1", Facts{Program: goProgram("go1.22.3", nil)}, 16, "go1.22.3", "old-go numcpu-frozen no-gomemlimit"},
		{"an old toolchain with automaxprocs", "docker-v1", Facts{Program: goProgram("go1.22.3", nil, automaxprocs)}, 1, "automaxprocs", "numcpu-frozen no-gomemlimit"},
		{"leftover automaxprocs", "docker-v2", Facts{Program: goProgram("go1.26.1", nil, automaxprocs)}, 2, "automaxprocs",
			"leftover-automaxprocs numcpu-frozen no-gomemlimit"},
		{"leftover automaxprocs without a quota", "max-everywhere", Facts{Program: goProgram("go1.26.1", nil, automaxprocs)}, 16, "go1.26.1", "leftover-automaxprocs"},
		{"automaxprocs under an old go.mod", "docker-v2", Facts{Program: goProgram("go1.26.1", old, automaxprocs)}, 2, "automaxprocs", "numcpu-frozen no-gomemlimit"},
		{"the environment wins", "docker-v2", Facts{Program: goProgram("go1.26.1", nil, automaxprocs), Env: map[string]string{"GOMAXPROCS": "16"}}, 16, "environment",
			"env-gomaxprocs leftover-automaxprocs numcpu-frozen no-gomemlimit"},
		{"an environment variable that the runtime ignores", "docker-v2", Facts{Program: goProgram("go1.26.1", nil), Env: map[string]string{"GOMAXPROCS": "many"}}, 3, "go1.26.1",
			"fractional-quota numcpu-frozen no-gomemlimit"},
		{"ancestor tighter", "docker-v2-host-namespace", Facts{Program: goProgram("go1.26.1", nil)}, 4, "go1.26.1",
			"ancestor-tighter memory-ancestor numcpu-frozen no-gomemlimit"},
		{"ancestor tighter, with our package", "docker-v2-host-namespace", Facts{Program: goProgram("go1.26.1", nil, whylate)}, 1, "whylate service/auto",
			"ancestor-tighter memory-ancestor numcpu-frozen"},
		{"a task's quota on the parent", "ecs-v1-privileged", Facts{Program: goProgram("go1.26.1", nil)}, 16, "go1.26.1",
			"ancestor-tighter memory-ancestor numcpu-frozen no-gomemlimit"},
		{"a pod's quota out of sight", "kubernetes-v2-pod-limit", Facts{Program: goProgram("go1.26.1", nil), Throttling: ancestor}, 16, "go1.26.1",
			"hidden-ancestor-throttles hidden-memory"},
		{"a pod's quota out of sight, an old kernel", "kubernetes-v2-pod-limit", Facts{Program: goProgram("go1.26.1", nil)}, 16, "go1.26.1",
			"hidden-ancestors hidden-memory"},
		{"covered mount", "covered-mount", Facts{Program: goProgram("go1.26.1", nil)}, 16, "go1.26.1",
			"runtime-misses-quota numcpu-frozen no-gomemlimit"},
		{"early Go 1.25 on Docker v1", "docker-v1", Facts{Program: goProgram("go1.25.3", nil)}, 2, "go1.25.3",
			"early-1.25-mount-root fractional-quota numcpu-frozen no-gomemlimit"},
		{"GOMEMLIMIT above the limit", "docker-v2", Facts{Program: goProgram("go1.26.1", nil), Env: map[string]string{"GOMEMLIMIT": "2GiB"}}, 3, "go1.26.1",
			"gomemlimit-too-high fractional-quota numcpu-frozen"},
		{"a tighter memory.high above", "systemd-slices", Facts{Program: goProgram("go1.26.1", nil)}, 3, "go1.26.1",
			"ancestor-tighter memory-high numcpu-frozen no-gomemlimit"},
		{"a memory limit that only v1 shows", "kubernetes-v1", Facts{Program: goProgram("go1.26.1", nil)}, 2, "go1.26.1",
			"memory-ancestor fractional-quota numcpu-frozen no-gomemlimit"},
		{"a pod's quota seen from the node, not from inside", "kubernetes-v2-from-the-node", Facts{Program: goProgram("go1.26.1", nil, whylate)}, 16, "whylate service/auto",
			"ancestor-tighter memory-ancestor numcpu-frozen"},
		{"nothing limited", "max-everywhere", Facts{Program: goProgram("go1.26.1", nil)}, 16, "go1.26.1", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := tt.facts
			f.PID = 4711
			if strings.Contains(tt.machine, "node") {
				f.Limits, f.Inside, f.Namespaced = machine(t, tt.machine, 4711), machine(t, tt.machine, 4711, true), true
			} else {
				f.Limits = machine(t, tt.machine, 0)
			}
			a := Judge(&f)
			var codes []string
			for _, tr := range a.Traps {
				codes = append(codes, string(tr.Code))
				check.True(t, tr.Text != "" && tr.Fix != "", "trap without text or fix: %+v", tr)
			}
			if got := strings.Join(codes, " "); got != tt.traps {
				t.Errorf("traps %q\nwant  %q", got, tt.traps)
			}
			var procs int64
			setter, inForce := "", map[string]int{}
			for _, c := range a.Choices {
				if c.InForce {
					inForce[c.Knob]++
					if c.Knob == "GOMAXPROCS" {
						procs, setter = *c.Value, c.Setter
					}
				}
			}
			check.True(t, procs == tt.procs && setter == tt.setter,
				"in force: %d by %q, want %d by %q; %+v", procs, setter, tt.procs, tt.setter, a.Choices)
			for knob, n := range inForce {
				check.Equal(t, n, 1, "choices for %s are in force", knob)
			}
		})
	}
}

// TestAnswers compares whole answers in JSON with golden files.
func TestAnswers(t *testing.T) {
	for name, f := range map[string]Facts{
		"docker-v2": {PID: 4711, Program: goProgram("go1.26.1", nil, automaxprocs, automemlimit), Env: map[string]string{"GOGC": "200"},
			Throttling: &cgroup.Throttling{Verdict: cgroup.VerdictOwn, Own: 70 * time.Millisecond, Periods: 300, ThrottledPeriods: 1}},
		"kubernetes-v2-from-the-node": {PID: 4711, Program: goProgram("go1.26.1", map[string]string{"containermaxprocs": "0"})},
		"above-the-namespace":         {},
	} {
		f.Limits = machine(t, name, 0)
		if strings.Contains(name, "node") {
			f.Limits, f.Inside, f.Namespaced = machine(t, name, 4711), machine(t, name, 4711, true), true
		}
		got := must.Have(json.MarshalIndent(Judge(&f), "", "  "))(t)
		got = append(got, '\n')
		golden := filepath.Join("testdata", name+".json")
		must.Golden(t, *update, golden, got)
	}
}

func TestAnswerRoundTrip(t *testing.T) {
	f := &Facts{PID: 4711, Limits: machine(t, "docker-v1", 0), Program: goProgram("go1.26.1", nil)}
	b := must.Have(json.Marshal(Judge(f)))(t)
	var back Answer
	must.Do(t, json.Unmarshal(b, &back))
	decoded := must.Have(json.Marshal(&back))(t)
	check.True(t, bytes.Equal(b, decoded), "JSON is not the same after a round trip:\n%s\n%s", b, decoded)
	check.True(t, !bytes.Contains(b, []byte(`"traps":null`)) && !bytes.Contains(b, []byte(`"choices":null`)),
		"null where a list belongs: %s", b)
}

// TestParseMemLimit compares parseMemLimit with the runtime.
func TestParseMemLimit(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Skip(err)
	}
	// One limit is low: the runtime collects garbage all the time under such.
	for _, s := range []string{"off", "0", "1073741824", "512MiB", "2GiB", "1TiB", "7000000KiB", "1000000000B", "-1", "1.5GiB", "1GB", "1Gi", "GiB", "8388608TiB", "8388607TiB", "9223372036854775807", "9223372036854775808", "1 MiB", "iB", "5BB"} {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), "LIMITS_TEST_CHILD=memlimit", "GOMEMLIMIT="+s)
		out, err := cmd.Output()
		n, ok := parseMemLimit(s)
		if ok != (err == nil) {
			t.Errorf("GOMEMLIMIT=%q: parsed %d %v, the runtime says %q %v", s, n, ok, out, err)
		} else if ok && fmt.Sprint(n) != string(out) {
			t.Errorf("GOMEMLIMIT=%q: parsed %d, the runtime set %s", s, n, out)
		}
	}
}

func TestGatherThisProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the limits of another process are read on Linux")
	}
	f := must.Have(Gather(os.Getpid()))(t)
	check.True(t, f.Program != nil && f.Program.Go == runtime.Version(),
		"program %+v, want one built with %s; warnings %q", f.Program, runtime.Version(), f.Warnings)
	if b := f.Program.Build; b == nil || b.Main.Path != "github.com/whylate/whylate" {
		t.Errorf("built from %+v, want this module", b)
	}
	info := &debug.BuildInfo{Main: debug.Module{Path: "shop.org/s", Version: "(devel)"}, Deps: []*debug.Module{
		{Path: "dep.org/x", Version: "v1.2.0"}, {Path: "dep.org/fork", Version: "v1.0.0", Replace: &debug.Module{Path: "our.org/fork", Version: "v1.0.1"}},
		{Path: "shop.org/lib", Version: "v0.0.0", Replace: &debug.Module{Path: "../lib"}}, {Path: "shop.org/work", Version: "(devel)"},
	}}
	if b, want := buildOf(info), []modules.Module{{Path: "dep.org/x", Version: "v1.2.0"}, {Path: "dep.org/fork", Version: "v1.0.1"}, {Path: "shop.org/lib"}, {Path: "shop.org/work"}}; !slices.Equal(b.Deps, want) {
		t.Errorf("dependencies %+v, want %+v", b.Deps, want)
	}
	if _, err := Gather(math.MaxInt32); err == nil || !strings.Contains(err.Error(), "no such process") {
		t.Errorf("a process that cannot be: %v", err)
	}
	if a := Judge(f); a.Schema != Schema || a.PID != os.Getpid() || a.Limits == nil && len(a.Warnings) == 0 {
		t.Errorf("%+v", a)
	}
}

// goTool returns the path of the go command, for tests that build a program.
func goTool(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("it builds a program")
	}
	gotool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go tool")
	}
	return gotool
}

// A go line below 1.25 is a GODEBUG default in the binary.
func TestOldGoLine(t *testing.T) {
	gotool := goTool(t)
	for line, want := range map[string]bool{"1.24": true, "1.25": false} {
		dir := t.TempDir()
		for name, text := range map[string]string{
			"go.mod":  "module example.com/old\n\ngo " + line + "\n",
			"main.go": "package main\n\nfunc main() {}\n",
		} {
			must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		}
		cmd := exec.Command(gotool, "build", "-o", "old", ".")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOTOOLCHAIN=local", "GOFLAGS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		p := must.Have(readProgram(filepath.Join(dir, "old")))(t)
		check.Equal(t, p.Godebug["containermaxprocs"] == "0", want, "go %s: GODEBUG defaults %v", line, p.Godebug)
	}
}

// A program that links service/auto differs from one that links another package of its module, as this
// test does.
func TestAutoIsRecognised(t *testing.T) {
	gotool := goTool(t)
	self, err := os.Executable()
	if err != nil {
		t.Skip(err)
	}
	for _, strip := range []string{"", "-s -w"} {
		out := filepath.Join(t.TempDir(), "auto")
		// The one program of the repository that imports it and nothing else.
		if b, err := exec.Command(gotool, "build", "-ldflags="+strip, "-o", out, "github.com/whylate/whylate/lab/limitscompare/withauto").CombinedOutput(); err != nil {
			t.Skipf("outside the workspace: %v\n%s", err, b)
		}
		p, err := readProgram(out)
		check.True(t, err == nil && p.Auto, "ldflags %q: %+v, %v: service/auto is linked", strip, p, err)
	}
	if p, err := readProgram(self); err != nil || p.Auto {
		t.Errorf("this test: %+v, %v: service/auto is not linked", p, err)
	}
}

func TestFileContains(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x")
	const text = "needle/in.it"
	for _, offset := range []int{0, 1, 1<<20 - 5, 1<<20 - len(text), 1 << 20, 3<<20 - 7} {
		b := append(bytes.Repeat([]byte{'n'}, offset), text...)
		must.Do(t, os.WriteFile(name, b, 0o644))
		check.True(t, fileContains(name, text), "not found at %d", offset)
		must.Do(t, os.WriteFile(name, b[:len(b)-1], 0o644))
		check.False(t, fileContains(name, text), "found at %d, cut short", offset)
	}
}

func TestNotGo(t *testing.T) {
	for _, content := range []string{"", "#!/bin/sh\n", "\x7fELF", strings.Repeat("\x00", 5000), "\x7fELF\x02\x01\x01" + strings.Repeat("\xff", 5000)} {
		name := filepath.Join(t.TempDir(), "x")
		must.Do(t, os.WriteFile(name, []byte(content), 0o755))
		if p, err := readProgram(name); err == nil {
			t.Errorf("%q is a Go program: %+v", content[:min(len(content), 10)], p)
		}
	}
}

func FuzzEnvironment(f *testing.F) {
	f.Add([]byte("A=1\x00GOMAXPROCS=4\x00GOMAXPROCS=5\x00GODEBUG=a=1,b,=c\x00GOMEMLIMIT=1GiB"), "go1.26.1")
	f.Add([]byte("\x00=\x00\xff"), "devel go1.27-abc")
	f.Fuzz(func(t *testing.T, b []byte, version string) {
		env := environment(b)
		a := Judge(&Facts{PID: 1, Env: env, Program: &Program{Go: version}, Limits: &cgroup.Limits{CPU: cgroup.CPU{QuotaLevel: -1}, Memory: cgroup.Memory{MaxLevel: -1, HighLevel: -1}}})
		must.Have(json.Marshal(a))(t)
	})
}

// docs/limits.md explains every trap that can be reported, and no other.
func TestTrapsAreDocumented(t *testing.T) {
	doc := must.Have(os.ReadFile(filepath.Join("..", "..", "docs", "limits.md")))(t)
	_, table, ok := strings.Cut(string(doc), "## Traps\n")
	must.True(t, ok, "docs/limits.md has no section Traps")
	table, _, _ = strings.Cut(table, "\n## ")
	codes := map[string]bool{}
	for _, c := range traps.Codes() {
		codes[string(c)] = true
	}
	documented := map[string]bool{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for _, m := range regexp.MustCompile("`([a-z0-9.-]+)`").FindAllStringSubmatch(cells[1], -1) {
			documented[m[1]] = true
			check.True(t, codes[m[1]], "docs/limits.md explains %q, which is never reported", m[1])
		}
	}
	for c := range codes {
		check.True(t, documented[c], "docs/limits.md does not explain %q", c)
	}
}
