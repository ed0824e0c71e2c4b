// Offsets prints the table of package gobinary: the layout of the runtime's structures in each Go release, for amd64.
//
//	go run ./internal/capture/gobinary/offsets >internal/capture/gobinary/offsets.tsv
//
// It type-checks the runtime's source of each release, which the go command downloads, with the compiler's sizes.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/build"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/whylate/whylate/internal/capture/gobinary"
)

// releases has one release of each supported minor version. The layout does not change between its patches.
var releases = []string{"1.22.12", "1.23.12", "1.24.13", "1.25.5", "1.26.8"}

// main prints the table of layouts: a row for each supported release, or only that of the release in -goroot.
func main() {
	goroot := flag.String("goroot", "", "print the row of the release in this `directory` only")
	flag.Parse()
	if err := run(*goroot); err != nil {
		fmt.Fprintln(os.Stderr, "offsets:", err)
		os.Exit(1)
	}
}

// run prints the head of the table and a row for the release whose source is in the directory goroot; if that is empty, it
// downloads all supported releases and prints a row for each.
func run(goroot string) error {
	fmt.Println("go\t" + strings.Join(gobinary.LayoutFields(), "\t") + "\tblock reasons")
	if goroot != "" {
		return printRow("given", goroot)
	}
	for _, release := range releases {
		dir, err := download(release)
		if err != nil {
			return err
		}
		if err := printRow(release[:strings.LastIndexByte(release, '.')], dir); err != nil {
			return err
		}
	}
	return nil
}

// download returns the directory of a release of Go for Linux on amd64, from the module cache or downloaded by the go command.
func download(release string) (string, error) {
	cmd := exec.Command("go", "mod", "download", "-json", "golang.org/toolchain@v0.0.1-go"+release+".linux-amd64")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("downloading Go %s: %w", release, err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		return "", fmt.Errorf("downloading Go %s: %w", release, err)
	}
	return module.Dir, nil
}

// printRow prints the table's row for a release, from the source of package runtime in the directory goroot.
func printRow(release, goroot string) error {
	s := newSource(goroot)
	pkg, err := s.Import("runtime")
	if err != nil {
		return fmt.Errorf("go %s: %w", release, err)
	}
	row := []string{release}
	for _, name := range gobinary.LayoutFields() {
		v, err := s.value(pkg, name)
		if err != nil {
			return fmt.Errorf("go %s: %w", release, err)
		}
		row = append(row, fmt.Sprint(v))
	}
	fmt.Println(strings.Join(append(row, strings.Join(s.reasons, "|")), "\t"))
	return nil
}

// A source imports packages of one release's standard library.
type source struct {
	context  build.Context
	fset     *token.FileSet
	packages map[string]*types.Package
	reasons  []string
}

// newSource returns an importer of the packages of the release in goroot, as for Linux on amd64 without cgo.
func newSource(goroot string) *source {
	c := build.Default
	c.GOROOT, c.GOOS, c.GOARCH, c.CgoEnabled, c.Compiler = goroot, "linux", "amd64", false, "gc"
	c.ToolTags = append(c.ToolTags, "goexperiment.exectracer2") // the default of Go 1.22, and a constant since
	return &source{context: c, fset: token.NewFileSet(), packages: map[string]*types.Package{"unsafe": types.Unsafe}}
}

// Import type-checks the declarations of a package, without the bodies of functions. Errors in them do not matter.
func (s *source) Import(path string) (*types.Package, error) {
	if pkg := s.packages[path]; pkg != nil {
		return pkg, nil
	}
	dir, err := s.context.ImportDir(filepath.Join(s.context.GOROOT, "src", path), 0)
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, name := range dir.GoFiles {
		f, err := parser.ParseFile(s.fset, filepath.Join(dir.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		if path == "runtime" {
			s.findReasons(f)
		}
		files = append(files, f)
	}
	config := types.Config{Importer: s, Sizes: types.SizesFor("gc", "amd64"), IgnoreFuncBodies: true, Error: func(error) {}}
	pkg, err := config.Check(path, s.fset, files, nil)
	if pkg == nil {
		return nil, err
	}
	s.packages[path] = pkg
	return pkg, nil
}

// value returns the offset in bytes of a field, such as g.sched.pc, or the value of a constant, such as abi.FuncIDWrapper. It is -1 for a field or
// type that the release does not have; a missing constant is an error.
func (s *source) value(pkg *types.Package, name string) (int64, error) {
	names := strings.Split(name, ".")
	if names[0] == "abi" {
		abi, err := s.Import("internal/abi")
		if err != nil {
			return 0, err
		}
		c, ok := abi.Scope().Lookup(names[1]).(*types.Const)
		if !ok {
			return 0, fmt.Errorf("no constant %s", name)
		}
		v, _ := constant.Int64Val(c.Val())
		return v, nil
	}
	obj := pkg.Scope().Lookup(names[0])
	if obj == nil {
		return -1, nil
	}
	t, offset := obj.Type(), int64(0)
next:
	for _, field := range names[1:] {
		structure, ok := t.Underlying().(*types.Struct)
		if !ok {
			return 0, fmt.Errorf("%s: no structure", name)
		}
		var fields []*types.Var
		for f := range structure.Fields() {
			fields = append(fields, f)
		}
		offsets := types.SizesFor("gc", "amd64").Offsetsof(fields)
		for i, f := range fields {
			if f.Name() == field {
				t, offset = f.Type(), offset+offsets[i]
				continue next
			}
		}
		return -1, nil
	}
	return offset, nil
}

// findReasons appends the elements of traceBlockReasonStrings, if the file declares it, to s.reasons.
func (s *source) findReasons(f *ast.File) {
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Names[0].Name != "traceBlockReasonStrings" || len(spec.Values) != 1 {
			return true
		}
		for _, e := range spec.Values[0].(*ast.CompositeLit).Elts {
			value := e.(*ast.KeyValueExpr).Value.(*ast.BasicLit)
			s.reasons = append(s.reasons, strings.Trim(value.Value, `"`))
		}
		return false
	})
}
