package repotest_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

const module = "github.com/whylate/whylate"

// TestImportsFollowLayers requires that every import between packages of this module leads to an earlier package of the layer
// diagram in ARCHITECTURE.md, and that the diagram has exactly the packages of the module.
func TestImportsFollowLayers(t *testing.T) {
	positions := must.Have(layerPositions("ARCHITECTURE.md"))(t)
	imports := must.Have(importsOf("."))(t)
	for pkg, list := range imports {
		position, ok := positions[pkg]
		if !ok {
			t.Errorf("%s is not in the layer diagram", pkg)
			continue
		}
		for _, i := range list {
			if imported, inDiagram := positions[i]; inDiagram && imported >= position {
				t.Errorf("%s imports %s, which is not before it in the layer diagram", pkg, i)
			}
		}
	}
	for pkg := range positions {
		if _, ok := imports[pkg]; !ok {
			t.Errorf("%s is in the layer diagram, but there is no such package", pkg)
		}
	}
}

// TestJudgesDoNotPrint: packages that compare or judge return data, and a package of output prints it. If limits or a package
// of judge made a table or used colours, no other view could use its results.
func TestJudgesDoNotPrint(t *testing.T) {
	imports := must.Have(importsOf("."))(t)
	judgePackages := 0
	for pkg, list := range imports {
		rest, _ := strings.CutPrefix(pkg, module+"/internal/")
		if rest != "limits" && !strings.HasPrefix(rest, "judge/") {
			continue
		}
		judgePackages++
		for _, i := range list {
			if slices.Contains([]string{"internal/output/termtext", "internal/output/jsontext", "report/text", "report/html"}, strings.TrimPrefix(i, module+"/")) {
				t.Errorf("%s imports %s", pkg, i)
			}
		}
	}
	check.True(t, judgePackages >= 5, "found only %d packages that judge", judgePackages)
}

// TestEngineLinksNoHTTP: a program that imports the public API does not link net/http, and neither does the test of a single
// stage.
func TestEngineLinksNoHTTP(t *testing.T) {
	imports := must.Have(importsOf("."))(t)
	visited := map[string]bool{}
	var visit func(pkg string)
	visit = func(pkg string) {
		for _, i := range imports[pkg] {
			check.True(t, i != "net/http", "%s imports net/http", pkg)
			if !visited[i] {
				visited[i] = true
				visit(i)
			}
		}
	}
	visit(module)
	check.True(t, len(visited) >= 40, "only %d packages are imported", len(visited))
}

// layerPositions returns the position of each package in the layer diagram.
func layerPositions(file string) (map[string]int, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	_, rest, ok := strings.Cut(string(data), "```picture\n")
	diagram, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		return nil, fmt.Errorf("%s has no layer diagram", file)
	}
	positions := make(map[string]int)
	for line := range strings.Lines(diagram) {
		words := strings.Fields(line)
		if !strings.HasPrefix(line, " ") {
			words = words[1:] // the layer's name
		}
		prefix := ""
		for _, name := range words {
			if last, ok := strings.CutPrefix(name, ".../"); ok {
				name = prefix + last
			}
			prefix = name[:strings.LastIndexByte(name, '/')+1]
			full := path.Join(module, "internal", name)
			switch {
			case name == "whylate":
				full = module
			case name == "report" || strings.HasPrefix(name, "report/") || strings.HasPrefix(name, "cmd/"):
				full = path.Join(module, name)
			}
			if _, twice := positions[full]; twice {
				return nil, fmt.Errorf("%s is in the layer diagram twice", name)
			}
			positions[full] = len(positions)
		}
	}
	return positions, nil
}

// importsOf returns the imports of each package of the module in a directory: of all files for any system, without tests.
func importsOf(root string) (map[string][]string, error) {
	out := make(map[string][]string)
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, goModErr := os.Stat(filepath.Join(file, "go.mod"))
			if file != root && (goModErr == nil || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		pkg := path.Join(module, filepath.ToSlash(filepath.Dir(file)))
		if _, ok := out[pkg]; !ok {
			out[pkg] = nil
		}
		for _, i := range f.Imports {
			if name, err := strconv.Unquote(i.Path.Value); err == nil && !slices.Contains(out[pkg], name) {
				out[pkg] = append(out[pkg], name)
			}
		}
		return nil
	})
	return out, err
}

// TestPublicAPIHasNoInternalTypes: users can name all types in the exported declarations of package whylate and the report
// packages.
func TestPublicAPIHasNoInternalTypes(t *testing.T) {
	for _, dir := range []string{".", "report", "report/text", "report/html"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		must.True(t, err == nil && len(files) != 0, "%s: %v", dir, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f := must.Have(parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution))(t)
			internal := map[string]bool{}
			for _, i := range f.Imports {
				if name, _ := strconv.Unquote(i.Path.Value); strings.Contains(name, "/internal/") {
					internal[path.Base(name)] = true
				}
			}
			ast.FileExports(f)
			for _, d := range f.Decls {
				checkDeclared(t, file, d, internal)
			}
		}
	}
}

// checkDeclared checks the types of an exported declaration, but not values and function bodies.
func checkDeclared(t *testing.T, file string, d ast.Decl, internal map[string]bool) {
	check := func(n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && internal[x.Name] {
					t.Errorf("%s exports something of type %s.%s", file, x.Name, s.Sel.Name)
				}
			}
			return true
		})
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		check(d.Type)
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				check(s.Type)
			case *ast.ValueSpec:
				if s.Type != nil {
					check(s.Type)
				}
			}
		}
	}
}
