// Command typecheck reports what does not compile on other systems: it checks the types of the packages in the current directory's
// workspace, for each system that is named. No code is generated: with an empty cache that takes go build most of its time, once a
// system.
//
//	typecheck linux/arm64,darwin/arm64,windows/amd64 ./... ./service/...
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/tools/go/packages"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: typecheck GOOS/GOARCH,... PACKAGE...")
		os.Exit(2)
	}
	failed := false
	var c checker
	for system := range strings.SplitSeq(os.Args[1], ",") {
		count, err := c.check(system, os.Args[2:])
		if err != nil {
			fmt.Fprintf(os.Stderr, "typecheck %s: %v\n", system, err)
			failed = true
			continue
		}
		fmt.Printf("%s: %d packages\n", system, count)
	}
	if failed {
		os.Exit(1)
	}
}

// A checker keeps the files that it has parsed: most are the same for all systems.
type checker struct {
	positions token.FileSet
	files     sync.Map // name -> func() (*ast.File, error)
}

// parse parses a file once. Of dependencies, declarations only are checked: any body of a function is replaced by one that may end
// any function.
func (c *checker) parse(_ *token.FileSet, name string, text []byte) (*ast.File, error) {
	parse, _ := c.files.LoadOrStore(name, sync.OnceValues(func() (*ast.File, error) {
		file, err := parser.ParseFile(&c.positions, name, text, parser.SkipObjectResolution)
		if err == nil && !isBelowWorkingDirectory(name) {
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
					f.Body.List = []ast.Stmt{&ast.ForStmt{Body: new(ast.BlockStmt)}}
				}
			}
		}
		return file, err
	}))
	return parse.(func() (*ast.File, error))()
}

func isBelowWorkingDirectory(name string) bool {
	dir, err := os.Getwd()
	if err != nil {
		return true
	}
	rel, err := filepath.Rel(dir, name)
	return err != nil || filepath.IsLocal(rel)
}

// check checks packages for a system written as GOOS/GOARCH, without cgo, prints their errors, and returns how many packages there
// are. None is an error: a pattern that matches nothing would pass.
func (c *checker) check(system string, patterns []string) (count int, err error) {
	goos, goarch, ok := strings.Cut(system, "/")
	if !ok {
		return 0, fmt.Errorf("write it as GOOS/GOARCH")
	}
	loaded, err := packages.Load(&packages.Config{
		Mode:      packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedDeps | packages.NeedTypes | packages.NeedTypesSizes,
		Fset:      &c.positions,
		ParseFile: c.parse,
		Env:       append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0"),
	}, patterns...)
	if err != nil {
		return 0, err
	}
	errorCount := 0
	packages.Visit(loaded, nil, func(p *packages.Package) {
		for _, e := range p.Errors {
			file, _, _ := strings.Cut(e.Pos, ":")
			if strings.HasSuffix(e.Msg, " and not used") && !isBelowWorkingDirectory(file) {
				continue // an import that only bodies use
			}
			fmt.Fprintln(os.Stderr, e)
			errorCount++
		}
	})
	if errorCount > 0 {
		return 0, fmt.Errorf("%d errors", errorCount)
	}
	if len(loaded) == 0 {
		return 0, fmt.Errorf("no packages match %s", strings.Join(patterns, " "))
	}
	return len(loaded), nil
}
