// Package modules tells a service's own code from that of its dependencies, and says of which module and version a
// dependency's code is: by what the binary says it was built from where that is known, else by names of files.
package modules

import (
	"slices"
	"strings"
	"sync"

	"github.com/whylate/whylate/internal/trace/stdlib"
)

// A Module is a module's path, with its version if it has one.
type Module struct {
	Path    string `json:"path"`
	Version string `json:"version,omitempty"`
}

// Build is what a binary says it was built from.
type Build struct {
	// Main is the module of the main package.
	Main Module `json:"main"`
	// Deps are the other modules, with the versions that were built in; one without a version was a directory beside
	// the main module, or a part of its workspace.
	Deps []Module `json:"deps,omitempty"`
}

// Options hold facts about a program that its stacks do not have.
type Options struct {
	// Build is nil if it is not known.
	Build *Build
	// Own are paths of modules, or of packages, that are the service's own.
	Own []string
}

// A Set knows which code is the service's own. Its methods may be called by many at once.
type Set struct {
	own, deps []Module
	mu        sync.RWMutex
	home      string // directory of the main module's files, if that has a version
	src       string // import path of the main module, in a tree of sources without versions
	found     bool   // main was seen
	said      bool   // somebody said what is own: nothing is added to it
}

// New returns a Set.
func New(o Options) *Set {
	s := &Set{said: len(o.Own) > 0}
	for _, path := range o.Own {
		if path = strings.Trim(path, "/"); path != "" {
			s.own = append(s.own, Module{Path: path})
		}
	}
	if b := o.Build; b != nil {
		s.deps = b.Deps
		if len(s.own) == 0 && b.Main.Path != "" {
			s.own = append(s.own, b.Main)
			for _, d := range b.Deps {
				if d.Version == "" {
					s.own = append(s.own, d)
				}
			}
		}
	}
	return s
}

// Main tells the set the file of main.main. Only the first call counts.
func (s *Set) Main(file string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.found {
		return
	}
	s.found = true
	if at := strings.LastIndex(file, "@v"); at >= 0 { // .../module@v1.2.3/cmd/x/main.go
		if end := strings.IndexByte(file[at:], '/'); end > 0 {
			s.home = file[:at+end+1]
		}
		return
	}
	// .../src/github.com/name/module/cmd/x/main.go: how distributions build, without modules.
	if _, path, ok := strings.Cut(file, "/src/"); ok {
		s.src = guess(path)
	}
}

// Adopt makes the module of a function the service's own, for a program whose main function only starts it: then what
// the program is stands there. Nobody may ask meanwhile.
func (s *Set) Adopt(fn, file string) {
	if s.said || s.Owns(fn, file) {
		return
	}
	if m := s.Of(fn, file); m.Path != "" {
		s.own = append(s.own, m)
	}
}

// guess returns the module that a file of a tree of sources is in, by the habits of those who give names: the host and
// a name, on forges an owner and a name.
func guess(path string) string {
	parts := strings.Split(path, "/")
	n := 2
	switch parts[0] {
	case "github.com", "gitlab.com", "bitbucket.org", "codeberg.org", "golang.org":
		n = 3
	}
	if !strings.Contains(parts[0], ".") || len(parts) <= n {
		return ""
	}
	return strings.Join(parts[:n], "/")
}

// Package returns the import path of a function's package. The linker writes dots of the last directory as %2e.
func Package(fn string) string { return strings.ReplaceAll(stdlib.Package(fn), "%2e", ".") }

// within reports whether a package is of the module with this path, or of one inside of it.
func within(pkg, module string) bool {
	rest, ok := strings.CutPrefix(pkg, module)
	return ok && (rest == "" || rest[0] == '/')
}

// longest returns the module of a list that a package is in.
func longest(pkg string, list []Module) (m Module) {
	for _, c := range list {
		if len(c.Path) > len(m.Path) && within(pkg, c.Path) {
			m = c
		}
	}
	return m
}

// Generated reports whether a file is named as generators name theirs: protoc's for Go and gRPC, for its gateway and for
// go-micro, connect's, twirp's and oapi-codegen's. Such code hands requests on, as a library's does, wherever it lies.
func Generated(file string) bool {
	return slices.ContainsFunc(generated, func(end string) bool { return strings.HasSuffix(file, end) })
}

var generated = []string{".pb.go", ".pb.gw.go", ".pb.micro.go", ".connect.go", ".twirp.go", ".gen.go"}

// Owns reports whether a function, named as the runtime does, is the service's own.
func (s *Set) Owns(fn, file string) bool {
	if strings.HasPrefix(fn, "main.") {
		return true
	}
	if stdlib.Is(fn) {
		return false
	}
	pkg := Package(fn)
	if len(s.own) > 0 {
		mine := longest(pkg, s.own)
		return mine.Path != "" && len(longest(pkg, s.deps).Path) <= len(mine.Path) && len(ofFile(pkg, file).Path) <= len(mine.Path)
	}
	s.mu.RLock()
	home, src := s.home, s.src
	s.mu.RUnlock()
	switch {
	case home != "":
		return strings.HasPrefix(file, home)
	case strings.Contains(file, "@v") || strings.Contains(file, "/vendor/") || strings.HasPrefix(file, "external/"):
		return false // the last is Bazel's
	case src != "" && strings.Contains(file, "/src/"+pkg+"/"):
		return within(pkg, src)
	}
	return true
}

// Of returns the module of a dependency's function. The path is empty if neither the build nor the file tells, and for
// the standard library.
func (s *Set) Of(fn, file string) Module {
	if strings.HasPrefix(fn, "main.") || stdlib.Is(fn) {
		return Module{}
	}
	pkg := Package(fn)
	if m := longest(pkg, s.deps); m.Path != "" {
		return m
	}
	return ofFile(pkg, file)
}

// ofFile returns the module and version that the name of a file tells, wherever the modules' cache lies:
// .../github.com/!name/module@v1.2.3/package/file.go.
func ofFile(pkg, file string) Module {
	at := strings.LastIndex(file, "@v")
	if at < 0 {
		return Module{}
	}
	version, _, ok := strings.Cut(file[at+1:], "/")
	if !ok {
		return Module{}
	}
	dir := unescape(file[:at])
	for { // the longest end that the package begins with
		if dir != "" && within(pkg, dir) {
			return Module{Path: dir, Version: unescape(version)}
		}
		_, rest, ok := strings.Cut(dir, "/")
		if !ok {
			return Module{}
		}
		dir = rest
	}
}

// unescape undoes how the modules' cache writes capitals: !a for A.
func unescape(s string) string {
	if !strings.Contains(s, "!") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '!' && i+1 < len(s) {
			i++
			b.WriteString(strings.ToUpper(s[i : i+1]))
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
