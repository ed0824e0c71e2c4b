package repotest_test

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
)

var update = flag.Bool("update", false, "rewrite testdata/skips.md")

const skipsPage = "internal/repotest/testdata/skips.md"

// A skipPlace is a call that skips a test.
type skipPlace struct {
	pkg, function string // the test, or the helper of several
	class         string
	reason        string
}

// The classes of skips in the order of the page.
const (
	onlyFull  = "Only in `.ci/full`, with WHYLATE_FULL=1"
	onlyLong  = "Only in `.ci/long`"
	onlyNamed = "Only with a flag or variable that names something"
	notShort  = "In the gate, but not with -short"
	ifAble    = "In the gate, if the machine lets it"
)

// TestSkips: testdata/skips.md lists every place where a test may be skipped, by the requirement. With -update it is written.
func TestSkips(t *testing.T) {
	if len(must.Have(testprog.AbsentModules("."))(t)) > 0 {
		t.Skip("the tool's module alone has not all tests")
	}
	text := skipsText(must.Have(skipPlaces())(t))
	if *update {
		must.Do(t, os.WriteFile(skipsPage, []byte(text), 0o644))
	}
	check.True(t, text == string(must.Have(os.ReadFile(skipsPage))(t)),
		"%s is not what the tests say: run `go test ./internal/repotest -run TestSkips -update`", skipsPage)
}

func skipsText(places []skipPlace) string {
	var b strings.Builder
	b.WriteString("# Which tests run where\n\nWritten by `go test ./internal/repotest -run TestSkips -update`. A name in small letters is a helper of several tests. Tests that are not here run always.\n")
	for _, class := range []string{onlyFull, onlyLong, onlyNamed, notShort, ifAble} {
		rows := map[string][]string{}
		n := 0
		for _, p := range places {
			if p.class == class {
				n++
				rows[p.reason] = append(rows[p.reason], p.pkg+"."+p.function)
			}
		}
		fmt.Fprintf(&b, "\n## %s: %d\n\n| needs, or is skipped because | where |\n|---|---|\n", class, n)
		for _, reason := range slices.Sorted(maps.Keys(rows)) {
			names := rows[reason]
			slices.Sort(names)
			fmt.Fprintf(&b, "| %s | %s |\n", strings.ReplaceAll(reason, "|", "\\|"), strings.Join(slices.Compact(names), ", "))
		}
	}
	return b.String()
}

var longTests = regexp.MustCompile(`(?m)^longTests='(.*)'$`)

func skipPlaces() (places []skipPlace, err error) {
	script, err := os.ReadFile(".ci/full")
	if err != nil {
		return nil, err
	}
	found := longTests.FindSubmatch(script)
	if found == nil {
		return nil, fmt.Errorf(".ci/full has no longTests")
	}
	isLong, err := regexp.Compile(string(found[1]))
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata" || d.Name() == "artefacts"):
			return filepath.SkipDir
		case filepath.Ext(path) != ".go" || d.IsDir():
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(source), `"testing"`) {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, source, 0)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil {
				for _, p := range skipsOf(f) {
					if f.Name.Name == "Need" {
						continue // of testfull, whose callers are counted
					}
					p.pkg = filepath.ToSlash(filepath.Dir(path))
					if p.class == onlyFull && isLong.MatchString(p.function) {
						p.class = onlyLong
					}
					places = append(places, p)
				}
			}
		}
		return nil
	})
	return places, err
}

// skipsOf returns the places of a function.
func skipsOf(f *ast.FuncDecl) (places []skipPlace) {
	var enclosing []ast.Node
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if n == nil {
			enclosing = enclosing[:len(enclosing)-1]
			return true
		}
		enclosing = append(enclosing, n)
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		p := skipPlace{function: f.Name.Name}
		switch receiver := types.ExprString(method.X); {
		case receiver == "testfull" && method.Sel.Name == "Need":
			p.class, p.reason = onlyFull, textOf(call.Args[1])
		case (receiver == "t" || receiver == "tb") && (method.Sel.Name == "Skip" || method.Sel.Name == "Skipf"):
			condition := conditionOf(enclosing)
			p.reason = textOf(call.Args[0])
			switch {
			case strings.Contains(condition, `"WHYLATE_FULL"`) || strings.Contains(p.reason, "only with %s=1"):
				p.class = onlyFull
			case strings.Contains(condition, "testing.Short()"):
				p.class = notShort
			case strings.Contains(condition, "Getenv") || strings.Contains(condition, "*") || strings.Contains(p.reason, "WHYLATE_"):
				p.class = onlyNamed
			default:
				p.class = ifAble
			}
			if source := sourceOfError(f, call.Pos()); p.reason == "" && condition == "err != nil" && source != "" {
				p.reason = "an error of `" + source + "`"
			} else if p.reason == "" {
				p.reason = "if `" + cmp.Or(condition, "it says so") + "`"
			}
		default:
			return true
		}
		places = append(places, p)
		return true
	})
	return places
}

// textOf returns the text of a string, or nothing.
func textOf(e ast.Expr) string {
	if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
		text, _ := strconv.Unquote(lit.Value)
		return strings.TrimRight(strings.Join(strings.Fields(text), " "), ": ")
	}
	return ""
}

// conditionOf returns the condition of the innermost if.
func conditionOf(enclosing []ast.Node) string {
	for _, n := range slices.Backward(enclosing) {
		if i, ok := n.(*ast.IfStmt); ok {
			return types.ExprString(i.Cond)
		}
	}
	return ""
}

// sourceOfError returns the function whose error was assigned last before pos.
func sourceOfError(f *ast.FuncDecl, pos token.Pos) (source string) {
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && a.Pos() < pos && types.ExprString(a.Lhs[len(a.Lhs)-1]) == "err" {
			if call, ok := a.Rhs[0].(*ast.CallExpr); ok {
				source = types.ExprString(call.Fun)
			}
		}
		return true
	})
	return source
}
