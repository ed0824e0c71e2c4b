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
	// OwnPaths are paths of modules, or of packages, that are the service's own.
	OwnPaths []string
}

// A Set knows which code is the service's own. Its methods may be called by many at once.
type Set struct {
	ownModules, deps []Module
	mu               sync.RWMutex
	mainDir          string // directory of the main module's files, if that has a version
	mainInSourceTree string // import path of the main module, in a tree of sources without versions
	mainKnown        bool   // main was seen
	ownIsFixed       bool   // somebody said what is own: nothing is added to it
}

// New returns a Set.
func New(o Options) *Set {
	s := &Set{ownIsFixed: len(o.OwnPaths) > 0}
	for _, path := range o.OwnPaths {
		if path = strings.Trim(path, "/"); path != "" {
			s.ownModules = append(s.ownModules, Module{Path: path})
		}
	}
	if b := o.Build; b != nil {
		s.deps = b.Deps
		if len(s.ownModules) == 0 && b.Main.Path != "" {
			s.ownModules = append(s.ownModules, b.Main)
			for _, d := range b.Deps {
				if d.Version == "" {
					s.ownModules = append(s.ownModules, d)
				}
			}
		}
	}
	return s
}

// SetMainFile tells the set the file of main.main. Only the first call counts.
func (s *Set) SetMainFile(file string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mainKnown {
		return
	}
	s.mainKnown = true
	if versionIndex := strings.LastIndex(file, "@v"); versionIndex >= 0 { // .../module@v1.2.3/cmd/x/main.go
		if end := strings.IndexByte(file[versionIndex:], '/'); end > 0 {
			s.mainDir = file[:versionIndex+end+1]
		}
		return
	}
	// .../src/github.com/name/module/cmd/x/main.go: how distributions build, without modules.
	if _, path, ok := strings.Cut(file, "/src/"); ok {
		s.mainInSourceTree = guessModule(path)
	}
}

// AdoptModuleOf makes the module of a function the service's own, for a program whose main function only starts it: then what
// the program is stands there. Nobody may ask meanwhile.
func (s *Set) AdoptModuleOf(fn, file string) {
	if s.ownIsFixed || s.IsOwn(fn, file) {
		return
	}
	if m := s.ModuleOf(fn, file); m.Path != "" {
		s.ownModules = append(s.ownModules, m)
	}
}

// guessModule returns the module that a file of a tree of sources is in, by the habits of those who give names: the host and
// a name, on forges an owner and a name.
func guessModule(path string) string {
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

// isWithin reports whether a package is of the module with this path, or of one inside of it.
func isWithin(pkg, module string) bool {
	rest, ok := strings.CutPrefix(pkg, module)
	return ok && (rest == "" || rest[0] == '/')
}

// longestMatch returns the module of a list that a package is in.
func longestMatch(pkg string, list []Module) (m Module) {
	for _, c := range list {
		if len(c.Path) > len(m.Path) && isWithin(pkg, c.Path) {
			m = c
		}
	}
	return m
}

// IsGenerated reports whether a file is named as generators name theirs: protoc's for Go and gRPC, for its gateway and for
// go-micro, connect's, twirp's and oapi-codegen's. Such code hands requests on, as a library's does, wherever it lies.
func IsGenerated(file string) bool {
	return slices.ContainsFunc(generatedSuffixes, func(end string) bool { return strings.HasSuffix(file, end) })
}

var generatedSuffixes = []string{".pb.go", ".pb.gw.go", ".pb.micro.go", ".connect.go", ".twirp.go", ".gen.go"}

// IsOwn reports whether a function, named as the runtime does, is the service's own.
func (s *Set) IsOwn(fn, file string) bool {
	if strings.HasPrefix(fn, "main.") {
		return true
	}
	if stdlib.Contains(fn) {
		return false
	}
	pkg := Package(fn)
	if len(s.ownModules) > 0 {
		ownModule := longestMatch(pkg, s.ownModules)
		return ownModule.Path != "" && len(longestMatch(pkg, s.deps).Path) <= len(ownModule.Path) && len(moduleOfFile(pkg, file).Path) <= len(ownModule.Path)
	}
	s.mu.RLock()
	home, src := s.mainDir, s.mainInSourceTree
	s.mu.RUnlock()
	switch {
	case home != "":
		return strings.HasPrefix(file, home)
	case strings.Contains(file, "@v") || strings.Contains(file, "/vendor/") || strings.HasPrefix(file, "external/"):
		return false // the last is Bazel's
	case src != "" && strings.Contains(file, "/src/"+pkg+"/"):
		return isWithin(pkg, src)
	}
	return true
}

// ModuleOf returns the module of a dependency's function. The path is empty if neither the build nor the file tells, and for
// the standard library.
func (s *Set) ModuleOf(fn, file string) Module {
	if strings.HasPrefix(fn, "main.") || stdlib.Contains(fn) {
		return Module{}
	}
	pkg := Package(fn)
	if m := longestMatch(pkg, s.deps); m.Path != "" {
		return m
	}
	return moduleOfFile(pkg, file)
}

// moduleOfFile returns the module and version that the name of a file tells, wherever the modules' cache lies:
// .../github.com/!name/module@v1.2.3/package/file.go.
func moduleOfFile(pkg, file string) Module {
	versionIndex := strings.LastIndex(file, "@v")
	if versionIndex < 0 {
		return Module{}
	}
	version, _, ok := strings.Cut(file[versionIndex+1:], "/")
	if !ok {
		return Module{}
	}
	dir := unescape(file[:versionIndex])
	for { // the longest end that the package begins with
		if dir != "" && isWithin(pkg, dir) {
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
