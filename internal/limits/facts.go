// Package limits reports what a process may use, which file sets each limit, which values the Go
// runtime and linked libraries derive from that, and which traps result.
//
// Gather reads the facts of a process. Judge, a pure function of the facts, returns the Answer, which
// marshals to the JSON of `whylate limits --json`. Package limitstext prints an Answer.
package limits

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/whylate/whylate/internal/trace/modules"
	"github.com/whylate/whylate/service/cgroup"
)

// Facts are the facts about a process, without any judgement.
type Facts struct {
	// PID is the examined process; 0 means a Go program started in this process's environment.
	PID int
	// Limits is nil if they cannot be measured; LimitsError has the reason.
	Limits      *cgroup.Limits
	LimitsError string
	// Inside are the limits that the process itself can see; nil if unknown or equal.
	Inside *cgroup.Limits
	// Namespaced means that the process has a separate cgroup namespace, in which its first cgroup is
	// "/".
	Namespaced bool
	// Throttling has the counters since the cgroup was created.
	Throttling *cgroup.Throttling
	// Program is nil if it is unknown or not a Go program.
	Program *Program
	// Env has the set variables among those that affect limits.
	Env map[string]string
	// Warnings report facts that could not be read.
	Warnings []string
}

// A Program is the build information of a Go binary.
type Program struct {
	// File is the path of the binary when the process started.
	File string `json:"file,omitempty"`
	// Main is the path of the main package.
	Main string `json:"main"`
	// Build has the modules of the program.
	Build *modules.Build `json:"-"`
	// Go is the toolchain's version, such as "go1.26.8".
	Go string `json:"go"`
	// Godebug has the GODEBUG settings that differ from the toolchain's defaults: from a go.mod that is
	// older than the toolchain, and from //go:debug lines.
	Godebug map[string]string `json:"godebug,omitempty"`
	// Modules are the linked modules that set GOMAXPROCS or GOMEMLIMIT, with their versions.
	Modules map[string]string `json:"modules,omitempty"`
	// Auto means that whylate's service/auto is linked, not only another package of its module.
	Auto bool `json:"auto,omitempty"`
}

// Paths of modules that set GOMAXPROCS or GOMEMLIMIT.
const (
	automaxprocs = "go.uber.org/automaxprocs"
	automemlimit = "github.com/KimMachineGun/automemlimit"
	gomaxecs     = "github.com/rdforte/gomaxecs"
	whylate      = "github.com/whylate/whylate/service"
)

// variables are the environment variables that affect limits.
var variables = []string{"GOMAXPROCS", "GOMEMLIMIT", "GOGC", "GODEBUG", "AUTOMEMLIMIT"}

// Gather reads the facts of a process. It fails only if the process does not exist. Any other fact
// that cannot be read is a warning.
func Gather(pid int) (*Facts, error) {
	f := &Facts{PID: pid, Env: map[string]string{}}
	l, err := cgroup.Read(cgroup.Options{PID: pid})
	switch {
	case err == nil:
		f.Limits = l
	case errors.Is(err, cgroup.ErrNotMeasurable):
		f.LimitsError = err.Error()
	default:
		return nil, err
	}
	if s, err := cgroup.NewSampler(cgroup.Options{PID: pid}); err == nil {
		var st cgroup.Stat
		if s.Sample(&st) == nil {
			t := cgroup.Compare(&cgroup.Stat{Has: st.Has}, &st)
			f.Throttling = &t
		}
		s.Close()
	}
	if pid == 0 {
		for _, k := range variables {
			if v, ok := os.LookupEnv(k); ok {
				f.Env[k] = v
			}
		}
		return f, nil
	}
	if runtime.GOOS != "linux" {
		f.Warnings = append(f.Warnings, "the program of another process can be read on Linux only")
		return f, nil
	}
	proc := "/proc/" + strconv.Itoa(pid)
	namespace, err := os.Readlink(proc + "/ns/cgroup")
	if ownNamespace, err2 := os.Readlink("/proc/self/ns/cgroup"); err == nil && err2 == nil {
		f.Namespaced = namespace != ownNamespace
	}
	if f.Limits != nil {
		f.Inside, err = cgroup.Read(cgroup.Options{PID: pid, Inside: true})
		if err != nil {
			f.Warnings = append(f.Warnings, fmt.Sprintf("its mounts cannot be read (%s): what it sees itself may be less", causeText(err)))
		}
	}
	if b, err := os.ReadFile(proc + "/environ"); err != nil {
		f.Warnings = append(f.Warnings, fmt.Sprintf("its environment cannot be read (%s): GOMAXPROCS or GODEBUG may be set", causeText(err)))
	} else {
		f.Env = environment(b)
	}
	f.Program, err = readProgram(proc + "/exe")
	if err != nil {
		f.Warnings = append(f.Warnings, fmt.Sprintf("its program cannot be read, or is not written in Go (%s)", causeText(err)))
	}
	return f, nil
}

// environment returns those variables that affect limits from the content of /proc/PID/environ, the environment at the start of the process.
func environment(b []byte) map[string]string {
	env := map[string]string{}
	for _, kv := range bytes.Split(b, []byte{0}) {
		k, v, ok := strings.Cut(string(kv), "=")
		if _, dup := env[k]; ok && !dup && slices.Contains(variables, k) { // the first value applies, as in the runtime
			env[k] = v
		}
	}
	return env
}

// readProgram returns the facts of the program in the file exe: its build, GODEBUG, and the libraries that set limits.
func readProgram(exe string) (*Program, error) {
	info, err := buildinfo.ReadFile(exe)
	if err != nil {
		return nil, err
	}
	p := &Program{Main: info.Path, Go: info.GoVersion, Build: buildOf(info)}
	if file, err := os.Readlink(exe); err == nil {
		p.File = file
	}
	for _, s := range info.Settings {
		if s.Key == "DefaultGODEBUG" {
			p.Godebug = parseGodebug(s.Value)
		}
	}
	for _, d := range info.Deps {
		switch d.Path {
		case automaxprocs, automemlimit, gomaxecs, whylate:
			if p.Modules == nil {
				p.Modules = map[string]string{}
			}
			v := d.Version
			if d.Replace != nil {
				v = d.Replace.Version
			}
			p.Modules[d.Path] = v
		}
	}
	if p.Modules[whylate] != "" {
		// Every Go binary has function names, even a stripped one. The name is
		// concatenated here so that this program itself does not contain it.
		p.Auto = fileContains(exe, strings.Join([]string{whylate, "auto.init"}, "/"))
	}
	return p, nil
}

// buildOf returns the modules of a program. A module that was replaced by a directory has no version.
func buildOf(info *debug.BuildInfo) *modules.Build {
	b := &modules.Build{Main: modules.Module{Path: info.Main.Path, Version: info.Main.Version}}
	for _, d := range info.Deps {
		m := modules.Module{Path: d.Path, Version: d.Version}
		if d.Replace != nil {
			m.Version = d.Replace.Version
		}
		if m.Version == "(devel)" {
			m.Version = ""
		}
		b.Deps = append(b.Deps, m)
	}
	return b
}

// maxProgram bounds the searched part of a file.
const maxProgram = 1 << 30

// fileContains reports whether the first maxProgram bytes of a file contain a text; false if it cannot be read.
func fileContains(file, text string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	r := io.LimitReader(f, maxProgram)
	buf := make([]byte, 1<<20)
	carried := 0
	for {
		n, err := io.ReadFull(r, buf[carried:])
		if bytes.Contains(buf[:carried+n], []byte(text)) {
			return true
		}
		if err != nil {
			return false
		}
		// The text may extend over two reads.
		carried = copy(buf, buf[len(buf)-len(text):])
	}
}

// parseGodebug parses "key=value,key=value". The last value of a key applies.
func parseGodebug(s string) map[string]string {
	m := map[string]string{}
	for _, kv := range strings.Split(s, ",") {
		if k, v, ok := strings.Cut(strings.TrimSpace(kv), "="); ok {
			m[k] = v
		}
	}
	return m
}

// causeText returns an error's text without the file's name.
func causeText(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	return err.Error()
}
