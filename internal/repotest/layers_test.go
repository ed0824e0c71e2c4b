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

	"github.com/whylate/whylate/internal/testing/must"
)

const module = "github.com/whylate/whylate"

// TestImportsFollowLayers holds every import between packages of this module to the picture in ARCHITECTURE.md: it leads to
// what stands before. All packages stand there, and nothing else.
func TestImportsFollowLayers(t *testing.T) {
	positions := must.Have(layerPositions("ARCHITECTURE.md"))(t)
	imports := must.Have(importsOf("."))(t)
	for pkg, list := range imports {
		position, ok := positions[pkg]
		if !ok {
			t.Errorf("%s does not stand in the picture", pkg)
			continue
		}
		for _, i := range list {
			if imported, inDiagram := positions[i]; inDiagram && imported >= position {
				t.Errorf("%s imports %s, which does not stand before it", pkg, i)
			}
		}
	}
	for pkg := range positions {
		if _, ok := imports[pkg]; !ok {
			t.Errorf("%s stands in the picture, but there is no such package", pkg)
		}
	}
}

// TestJudgesDoNotPrint: what judges yields data, which a package of output writes. It would catch a table or a terminal's colour in
// a package of judge or in limits, where no other view could use what was computed for it.
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
	if judgePackages < 5 {
		t.Errorf("only %d packages judge", judgePackages)
	}
}

// TestEngineLinksNoHTTP: who imports the public API gets no HTTP client or server with it, nor has a test of one stage to link them.
func TestEngineLinksNoHTTP(t *testing.T) {
	imports := must.Have(importsOf("."))(t)
	visited := map[string]bool{}
	var visit func(pkg string)
	visit = func(pkg string) {
		for _, i := range imports[pkg] {
			if i == "net/http" {
				t.Errorf("%s imports net/http", pkg)
			}
			if !visited[i] {
				visited[i] = true
				visit(i)
			}
		}
	}
	if visit(module); len(visited) < 40 {
		t.Errorf("only %d packages are imported", len(visited))
	}
}

// layerPositions returns the place in which each package stands.
func layerPositions(file string) (map[string]int, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	_, rest, ok := strings.Cut(string(data), "```picture\n")
	diagram, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		return nil, fmt.Errorf("%s has no picture", file)
	}
	positions := make(map[string]int)
	for line := range strings.Lines(diagram) {
		words := strings.Fields(line)
		if !strings.HasPrefix(line, " ") {
			words = words[1:] // the floor's name
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
				return nil, fmt.Errorf("%s stands in the picture twice", name)
			}
			positions[full] = len(positions)
		}
	}
	return positions, nil
}

// importsOf returns what each package of the module in a directory imports in code that is no test, for whichever system.
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

// TestPublicAPIHasNoInternalTypes: what package whylate and the packages below report export can be used without types that nobody
// else can name.
func TestPublicAPIHasNoInternalTypes(t *testing.T) {
	for _, dir := range []string{".", "report", "report/text", "report/html"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", dir, err)
		}
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

// checkDeclared checks the types of an exported declaration, not its values and bodies.
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
