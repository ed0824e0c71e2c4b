//go:build linux && amd64

package gobinary

import (
	"bytes"
	"debug/dwarf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testfull"
)

// open opens a program's file.
func open(t *testing.T, name string) *Program {
	t.Helper()
	f, err := os.Open(name)
	must.Do(t, err)
	t.Cleanup(func() { f.Close() })
	p, err := Open(f)
	must.Do(t, err)
	return p
}

// probed are functions in which whylate places probes.
var probed = []string{
	"runtime.gopark", "runtime.execute", "runtime.ready", "runtime.injectglist", "runtime.gdestroy", "runtime.goschedImpl", "runtime.goyield_m", "runtime.preemptPark",
}

// checkProbes checks that each probe is on an instruction that the kernel emulates.
func checkProbes(t *testing.T, p *Program) {
	t.Helper()
	entries := p.Addresses(append([]string{"runtime.newproc.func1", "runtime.runqput"}, probed...)...)
	for _, name := range probed {
		address, err := p.PushOf(name, entries[name])
		if err != nil {
			t.Error(err)
			continue
		}
		if code := p.bytes(address, 1); len(code) != 1 || code[0] != 0x55 { // PUSH RBP
			t.Errorf("%s+%d is % x", name, address-entries[name], code)
		}
		if offset, ok := p.FileOffset(address); !ok || offset == 0 {
			t.Errorf("%s has no place in the file", name)
		}
	}
	address, err := p.CallOf("runtime.newproc.func1", entries["runtime.newproc.func1"], entries["runtime.runqput"])
	if code := p.bytes(address, 1); err != nil || len(code) != 1 || code[0] != 0xe8 { // CALL
		t.Errorf("the call of runqput: % x, %v", code, err)
	}
}

//go:noinline
func outermost(pcs []uintptr) int { return inlined(pcs) }

func inlined(pcs []uintptr) int { return inlinedTwice(pcs) }

func inlinedTwice(pcs []uintptr) int { return runtime.Callers(1, pcs) }

// TestStack compares the frames of this process's stack with those of the runtime.
func TestStack(t *testing.T) {
	p := open(t, "/proc/self/exe")
	checkProbes(t, p)
	pcs := make([]uintptr, 64)
	pcs = pcs[:outermost(pcs)]
	var want []string
	for frames := runtime.CallersFrames(pcs); ; {
		f, isMore := frames.Next()
		if f.Function != "runtime.goexit" {
			want = append(want, f.Function)
		}
		if !isMore {
			break
		}
	}
	must.True(t, strings.HasSuffix(want[0], "inlinedTwice") && strings.HasSuffix(want[1], "inlined"),
		"the compiler inlined nothing: %q", want)
	// CallersFrames has resolved inlined calls already, each with a different address, so take the physical frames by the outermost.
	var got []string
	entries := map[uint64]bool{}
	base := uint64(reflect.ValueOf(outermost).Pointer()) - p.Addresses("github.com/whylate/whylate/internal/capture/gobinary.outermost")["github.com/whylate/whylate/internal/capture/gobinary.outermost"]
	for _, pc := range pcs {
		f, ok := p.find(uint64(pc) - base - 1)
		if !ok || entries[f.entry] {
			continue
		}
		entries[f.entry] = true
		for _, frame := range p.Stack([]uint64{uint64(pc) - base}, 0) {
			got = append(got, frame.Func)
		}
	}
	check.Equal(t, strings.Join(got, " "), strings.Join(want, " "), "got %q, want %q", got, want)
	if skipped := p.Stack([]uint64{uint64(pcs[0]) - base}, 2); len(skipped) != 1 || !strings.HasSuffix(skipped[0].Func, ".outermost") {
		t.Errorf("without the two inlined frames: %v", skipped)
	}
}

// program prints the address of a function, and a stack with an inlined function in it as the runtime sees it. It imports little, because
// for position-independent programs all of it is compiled again.
const program = `package main

import "runtime"

//go:noinline
func outer(pcs []uintptr) int { return inner(pcs) }

func inner(pcs []uintptr) int { return runtime.Callers(1, pcs) }

func main() {
	pcs := make([]uintptr, 16)
	pcs = pcs[:outer(pcs)]
	f, _ := runtime.CallersFrames(pcs).Next()
	done := make(chan bool)
	go func() { done <- true }()
	<-done
	println(runtime.FuncForPC(pcs[0]-1).Entry(), pcs[0], f.Line)
}
`

// TestBuildModes reads a program built in the ways that differ in what their files have.
func TestBuildModes(t *testing.T) {
	if testing.Short() {
		t.Skip("builds programs")
	}
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600))
	for _, mode := range [][]string{{}, {"-ldflags=-s -w"}, {"-buildmode=pie"}, {"-buildmode=pie", "-ldflags=-s -w"}} {
		t.Run(strings.Join(mode, " "), func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "program")
			build := exec.Command("go", append(append([]string{"build", "-o", name}, mode...), filepath.Join(dir, "main.go"))...)
			build.Dir = dir
			build.Env = append(os.Environ(), "GOWORK=off", "GO111MODULE=off", "CGO_ENABLED=0")
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			out := must.Have(exec.Command(name).CombinedOutput())(t)
			var outer, pc uint64
			var line int
			must.Have(fmt.Sscan(string(out), &outer, &pc, &line))(t)
			p := open(t, name)
			checkProbes(t, p)
			base := outer - p.Addresses("main.outer")["main.outer"]
			frames := p.Stack([]uint64{pc - base}, 0)
			check.True(t, len(frames) == 2 && frames[0].Func == "main.inner" && frames[1].Func == "main.outer" && frames[0].Line == line,
				"frames %+v, want main.inner at line %d in main.outer", frames, line)
			if len(mode) == 0 {
				checkLayout(t, p)
			}
		})
	}
}

// checkLayout compares the table's row for the running release with debug information.
func checkLayout(t *testing.T, p *Program) {
	t.Helper()
	row := knownLayouts()[minorVersion(runtime.Version())]
	must.True(t, row != nil, "the table has no row for %s: run the program in the directory offsets", runtime.Version())
	unknown := must.Have(layoutOf("go1.999", p.file.DWARF))(t)
	for _, f := range fields {
		if got, want := *f.value(row), *f.value(unknown); got != want && !strings.HasPrefix(f.name, "abi.") {
			t.Errorf("%s is %d in the table, %d in debug information", f.name, got, want)
		}
	}
}

// TestTable makes the table again from the source of each release.
func TestTable(t *testing.T) {
	testfull.Need(t, "downloads five releases of Go")
	out := must.Have(exec.Command("go", "run", "./offsets").Output())(t)
	check.Equal(t, string(out), layoutTable, "offsets.tsv is not what its program prints:\n%s", out)
}

func TestRefusals(t *testing.T) {
	if _, err := Open(bytes.NewReader([]byte("#!/bin/sh\n"))); !errors.Is(err, ErrNotGo) {
		t.Errorf("a script: %v", err)
	}
	if _, err := layoutOf("go1.21.3", nil); err == nil || !strings.Contains(err.Error(), "go1.21.3") {
		t.Errorf("an old release: %v", err)
	}
	noDebug := func() (*dwarf.Data, error) { return nil, errors.New("none") }
	if _, err := layoutOf("go1.99.0", noDebug); err == nil || !strings.Contains(err.Error(), "newer whylate") {
		t.Errorf("a release of the future, stripped: %v", err)
	}
	for version, want := range map[string]string{"go1.26.8": "1.26", "go1.27rc1": "1.27", "go1.26.8 X:nodwarf5": "1.26", "devel go1.28-abc 2026": "1.28"} {
		check.Equal(t, minorVersion(version), want, "minorVersion(%q)", version)
	}
	if got := KnownVersions(); strings.Join(got, " ") != "1.22 1.23 1.24 1.25 1.26" {
		t.Errorf("known: %v", got)
	}
}
