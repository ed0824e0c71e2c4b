//go:build linux

package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/whylate/whylate/lab/vm/check"
)

// Machine describes one boot.
type Machine struct {
	// Kernel is the path of a bzImage.
	Kernel string
	// Guest is the path of the static guest program.
	Guest string
	// Layout is v1, v2 or hybrid.
	Layout string
	// Run is a pattern of check names; empty runs all. It must not contain spaces, because it is part of the kernel's command
	// line.
	Run string
	// CPUs and MemoryMB are the machine's size.
	CPUs, MemoryMB int
	// Files are added to the machine's root, by path without a leading slash, all executable.
	Files map[string][]byte
	// Exec, if not empty, is the path of one of Files that runs instead of the checks. Boot reads its standard output, so it
	// must write lines of check.Result and a last one with Done.
	Exec string
}

// Errors that name the remedy.
var (
	ErrNoQemu    = errors.New("qemu-system-x86_64 is not installed (.ci/vm.sh installs it)")
	ErrNoKernels = errors.New("no kernels to boot (.ci/vm.sh fetches them; WHYLATE_VM_KERNELS is their directory)")
)

// Boot runs the machine until it powers off, or ctx ends, and returns the results of its checks. Results before an error are
// returned with it.
func Boot(ctx context.Context, m Machine) ([]check.Result, error) {
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		return nil, ErrNoQemu
	}
	dir, err := os.MkdirTemp("", "whylate-vm-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	initrd, serial := filepath.Join(dir, "initrd.gz"), filepath.Join(dir, "results")
	if err := packGuest(initrd, m); err != nil {
		return nil, fmt.Errorf("packing the initramfs: %w", err)
	}
	// Emulated CPUs beyond the real ones wait for each other in spin loops: one thread for all of them boots 24 CPUs four
	// times as fast as one thread each on two real CPUs.
	accel := "tcg,thread=multi"
	if m.CPUs > 4 {
		accel = "tcg,thread=single"
	}
	if a := os.Getenv("WHYLATE_VM_ACCEL"); a != "" {
		accel = a // "kvm" on a machine that supports it
	}
	cmd := exec.CommandContext(ctx, qemu,
		"-accel", accel, "-smp", strconv.Itoa(m.CPUs), "-m", strconv.Itoa(m.MemoryMB),
		"-display", "none", "-monitor", "none", "-no-reboot", "-nodefaults", "-no-user-config",
		"-kernel", m.Kernel, "-initrd", initrd,
		"-serial", "stdio", "-serial", "file:"+serial,
		"-append", "console=ttyS0 quiet panic=-1 nowatchdog whylate.layout="+m.Layout+" whylate.run="+m.Run+" whylate.exec="+m.Exec)
	var console bytes.Buffer
	cmd.Stdout, cmd.Stderr = &console, &console
	runErr := cmd.Run()
	out, err := os.ReadFile(serial)
	if err != nil && runErr == nil {
		runErr = err
	}
	rs, done, err := ParseResults(out)
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("the machine did not end in time: %w; console: %s", ctx.Err(), lastPart(console.String()))
	case runErr != nil:
		err = fmt.Errorf("qemu: %w; console: %s", runErr, lastPart(console.String()))
	case err != nil:
		err = fmt.Errorf("%w; console: %s", err, lastPart(console.String()))
	case !done:
		err = fmt.Errorf("the guest ended before its last check; console: %s", lastPart(console.String()))
	}
	return rs, err
}

func packGuest(name string, m Machine) error {
	b, err := os.ReadFile(m.Guest)
	if err != nil {
		return err
	}
	files := []initFile{
		{name: "init", mode: modeExec, data: b},
		{name: "proc", mode: modeDir}, {name: "sys", mode: modeDir}, {name: "dev", mode: modeDir}, {name: "tmp", mode: modeDir},
	}
	made := map[string]bool{}
	for _, n := range slices.Sorted(maps.Keys(m.Files)) {
		for i, c := range n { // parents first
			if c == '/' && !made[n[:i]] {
				made[n[:i]] = true
				files = append(files, initFile{name: n[:i], mode: modeDir})
			}
		}
		files = append(files, initFile{name: n, mode: modeExec, data: m.Files[n]})
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(writeInitramfs(f, files), f.Close())
}

// ParseResults reads result lines from a process or from the second serial port, whose terminal driver ends lines with a
// carriage return. done reports that the last line was read.
func ParseResults(out []byte) (rs []check.Result, done bool, err error) {
	for line := range bytes.Lines(out) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		var r check.Result
		if err := json.Unmarshal(line, &r); err != nil {
			return rs, false, fmt.Errorf("result line %q: %w", line, err)
		}
		if r.Done {
			done = true
			continue
		}
		rs = append(rs, r)
	}
	return rs, done, nil
}

func lastPart(s string) string {
	s = strings.TrimSpace(s)
	const maxLength = 2000
	if len(s) > maxLength {
		s = "..." + s[len(s)-maxLength:]
	}
	return s
}

// Kernels returns the kernel images of a directory, files named vmlinuz-*, by release.
func Kernels(dir string) (map[string]string, error) {
	if dir == "" {
		return nil, ErrNoKernels
	}
	names, err := filepath.Glob(filepath.Join(dir, "vmlinuz-*"))
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, ErrNoKernels
	}
	ks := map[string]string{}
	for _, n := range names {
		ks[strings.TrimPrefix(filepath.Base(n), "vmlinuz-")] = n
	}
	return ks, nil
}

// BuildGuest builds the guest program into dir, static as an initramfs requires, and returns its path.
func BuildGuest(ctx context.Context, dir string) (string, error) {
	return BuildStatic(ctx, dir, "github.com/whylate/whylate/lab/vm/guest")
}

// BuildStatic builds a command for the machines: without cgo, for amd64.
func BuildStatic(ctx context.Context, dir, pkg string) (string, error) {
	out := filepath.Join(dir, filepath.Base(pkg))
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if b, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", pkg, err, b)
	}
	return out, nil
}
