// Package modules distinguishes the service's own code from the code of its dependencies, and returns the module
// and version of a dependency's code. It uses the build information of the binary if that is known, otherwise the
// names of source files.
package modules

import (
	"slices"
	"strings"
	"sync"

	"github.com/whylate/whylate/internal/trace/stdlib"
)

// A Module is the path of a module and its version, if it has one.
type Module struct {
	Path    string `json:"path"`
	Version string `json:"version,omitempty"`
}

// A Build is the build information of a binary.
type Build struct {
	// Main is the module of the main package.
	Main Module `json:"main"`
	// Deps are the other modules with the versions that were built in. A module without a version was a local
	// directory (a replacement) or part of the main module's workspace.
	Deps []Module `json:"deps,omitempty"`
}

// Options hold facts about a program that its stacks do not contain.
type Options struct {
	// Build is nil if it is unknown.
	Build *Build
	// OwnPaths are the paths of modules or packages that belong to the service.
	OwnPaths []string
}

// A Set decides which code belongs to the service. Many goroutines may call its methods concurrently, except
// AdoptModuleOf.
type Set struct {
	ownModules, deps []Module
	mu               sync.RWMutex
	mainDir          string // directory of the main module, if its files have a version
	mainInSourceTree string // import path of the main module, if its files are in a source tree without versions
	mainKnown        bool   // SetMainFile was called
	ownIsFixed       bool   // the caller named the service's own paths: nothing is added to them
}

// New returns a Set. The service's own modules are o.OwnPaths or, without any, the build's main module and the dependencies
// without a version.
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

// SetMainFile sets the file that contains main.main. Only the first call has an effect.
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
	// distributions build this way, without modules
	if _, path, ok := strings.Cut(file, "/src/"); ok {
		s.mainInSourceTree = guessModule(path)
	}
}

// AdoptModuleOf adds the module of a function (fn, named as by the runtime, in file) to the service's own ones, for a program
// whose main function only starts that module's code. No other method may run concurrently.
func (s *Set) AdoptModuleOf(fn, file string) {
	if s.ownIsFixed || s.IsOwn(fn, file) {
		return
	}
	if m := s.ModuleOf(fn, file); m.Path != "" {
		s.ownModules = append(s.ownModules, m)
	}
}

// guessModule returns the module of a file in a source tree, by the usual forms of import paths: a host and a name, on code
// hosting sites an owner and a name; "" for other paths.
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

// Package returns the import path of a function's package, with a dot for each %2e that the linker writes in the
// last element.
func Package(fn string) string { return strings.ReplaceAll(stdlib.Package(fn), "%2e", ".") }

// isWithin reports whether a package is in the directory tree of a module.
func isWithin(pkg, module string) bool {
	rest, ok := strings.CutPrefix(pkg, module)
	return ok && (rest == "" || rest[0] == '/')
}

// longestMatch returns the module of a list that contains a package, the one with the longest path if there are several; an empty
// Module if none does.
func longestMatch(pkg string, list []Module) (m Module) {
	for _, c := range list {
		if len(c.Path) > len(m.Path) && isWithin(pkg, c.Path) {
			m = c
		}
	}
	return m
}

// IsGenerated reports whether a file has a name that code generators use: protoc for Go, gRPC, its gateway and
// go-micro, connect, twirp and oapi-codegen. Such code passes requests on, like the code of a library, in
// whichever module it is.
func IsGenerated(file string) bool {
	return slices.ContainsFunc(generatedSuffixes, func(end string) bool { return strings.HasSuffix(file, end) })
}

var generatedSuffixes = []string{".pb.go", ".pb.gw.go", ".pb.micro.go", ".connect.go", ".twirp.go", ".gen.go"}

// IsOwn reports whether a function (fn, named as by the runtime, in file) belongs to the service.
func (s *Set) IsOwn(fn, file string) bool {
	if s.inlinedModule(fn, file).Path != "" {
		return false
	}
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
		return false // the last one is Bazel's
	case src != "" && strings.Contains(file, "/src/"+pkg+"/"):
		return isWithin(pkg, src)
	}
	return true
}

// ModuleOf returns the module of a dependency's function. The path is empty for the standard library, and if
// neither the build information nor the file shows the module.
func (s *Set) ModuleOf(fn, file string) Module {
	if m := s.inlinedModule(fn, file); m.Path != "" {
		return m
	}
	if strings.HasPrefix(fn, "main.") || stdlib.Contains(fn) {
		return Module{}
	}
	pkg := Package(fn)
	if m := longestMatch(pkg, s.deps); m.Path != "" {
		return m
	}
	return moduleOfFile(pkg, file)
}

// inlinedModule returns the dependency in whose directory of the module cache a function's file is, if the function's name is one of
// another package; else an empty Module. The compiler names the copy of a function literal in an inlined function after the function
// that contains the copy, as in main.load.(*Store).Find.func1.
func (s *Set) inlinedModule(fn, file string) Module {
	if !strings.Contains(file, "@v") {
		return Module{}
	}
	file = "/" + unescape(file)
	for _, d := range s.deps {
		if d.Version != "" && strings.Contains(file, "/"+d.Path+"@"+d.Version+"/") && !isWithin(Package(fn), d.Path) {
			return d
		}
	}
	return Module{}
}

// moduleOfFile returns the module and version in the name of a file in a module cache:
// .../github.com/!name/module@v1.2.3/package/file.go. The Module is empty for other files, and if it does not contain pkg.
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
	for { // find the longest end of dir with which the package begins
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

// unescape replaces the module cache's escapes of capital letters: !a for A.
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
