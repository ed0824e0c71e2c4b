// Package limits says what a process may use, by which file, what the Go
// runtime and the libraries in use make of it, and which traps lie in between.
//
// Gather looks; Judge is a pure function over what was found; Text writes the
// answer for people. The answer itself marshals to the JSON of
// `whylate limits --json`.
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

// Facts is what was found out about a process, before any judgement.
type Facts struct {
	// PID is the process asked for; 0 is a Go program that would be started
	// from here.
	PID int
	// Limits is nil where they cannot be measured; Why says so then.
	Limits      *cgroup.Limits
	LimitsError string
	// Inside is what the process can see of that by itself; nil if that is
	// not known or the same.
	Inside *cgroup.Limits
	// Namespaced says that the process is in a cgroup namespace of its own:
	// the group in which it started is "/" to it.
	Namespaced bool
	// Throttling is what the counters say since the group was made.
	Throttling *cgroup.Throttling
	// Program is nil if it is not known, or not written in Go.
	Program *Program
	// Env holds the variables that matter, of those that are set.
	Env map[string]string
	// Warnings say what could not be looked at.
	Warnings []string
}

// Program is what a Go binary says of itself.
type Program struct {
	// File is where the binary was when the process started.
	File string `json:"file,omitempty"`
	// Main is the path of the main package.
	Main string `json:"main"`
	// Build says what it was built from.
	Build *modules.Build `json:"-"`
	// Go is the toolchain's version, such as "go1.26.8".
	Go string `json:"go"`
	// Godebug are the GODEBUG settings that differ from the toolchain's
	// defaults: those of a go.mod that is older than the toolchain, and
	// //go:debug lines.
	Godebug map[string]string `json:"godebug,omitempty"`
	// Modules are the linked modules that set GOMAXPROCS or GOMEMLIMIT, with
	// their versions.
	Modules map[string]string `json:"modules,omitempty"`
	// Auto says that whylate's service/auto is linked, not only a package
	// beside it.
	Auto bool `json:"auto,omitempty"`
}

// Modules that matter, by path.
const (
	automaxprocs = "go.uber.org/automaxprocs"
	automemlimit = "github.com/KimMachineGun/automemlimit"
	gomaxecs     = "github.com/rdforte/gomaxecs"
	whylate      = "github.com/whylate/whylate/service"
)

// variables of the environment that are looked at.
var variables = []string{"GOMAXPROCS", "GOMEMLIMIT", "GOGC", "GODEBUG", "AUTOMEMLIMIT"}

// Gather looks at a process. It fails only for a process that does not
// exist; everything else that cannot be seen is a warning.
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

// environment picks the variables that matter from /proc/PID/environ, which
// is what the process was started with.
func environment(b []byte) map[string]string {
	env := map[string]string{}
	for _, kv := range bytes.Split(b, []byte{0}) {
		k, v, ok := strings.Cut(string(kv), "=")
		if _, dup := env[k]; ok && !dup && slices.Contains(variables, k) { // the first one counts, as in the runtime
			env[k] = v
		}
	}
	return env
}

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
		// Function names are in every Go binary, stripped or not. The name is
		// put together here so that this program does not hold it itself.
		p.Auto = fileContains(exe, strings.Join([]string{whylate, "auto.init"}, "/"))
	}
	return p, nil
}

// buildOf returns what a program was built from. A module that was replaced by a directory has no version.
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

// maxProgram bounds how much of a file is searched.
const maxProgram = 1 << 30

// fileContains reports whether a file holds a text.
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
		// The text may lie across two reads.
		carried = copy(buf, buf[len(buf)-len(text):])
	}
}

// parseGodebug reads "key=value,key=value"; of a key given twice the last counts.
func parseGodebug(s string) map[string]string {
	m := map[string]string{}
	for _, kv := range strings.Split(s, ",") {
		if k, v, ok := strings.Cut(strings.TrimSpace(kv), "="); ok {
			m[k] = v
		}
	}
	return m
}

// causeText is an error without the file's name.
func causeText(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	return err.Error()
}
