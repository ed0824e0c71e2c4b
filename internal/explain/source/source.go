// Package source finds how long a line of a dependency waits on purpose. The input is a report's site with module and
// version. The output is the expression for the duration of the timer on that line, which is often an option that the
// user can set.
//
// The source must be in this machine's module cache in exactly the version of the report. The package parses the
// function, finds the single timer for which the statement on the line waits (a sleep, a timer, or the channel of a
// timer that the function creates once), and returns the expression of its duration. It returns nothing if the answer
// is not unique. A trace is untrusted, so names in it can refer to no file outside of the module's directory.
package source

import (
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/report"
)

// A Cache lists the directories that may hold modules.
type Cache struct{ Dirs []string }

// LocalCache returns the module caches of this machine's user.
func LocalCache() (c Cache) {
	add := func(dir string) {
		if dir != "" && filepath.IsAbs(dir) && !slices.Contains(c.Dirs, dir) {
			c.Dirs = append(c.Dirs, dir)
		}
	}
	add(os.Getenv("GOMODCACHE"))
	for _, dir := range filepath.SplitList(os.Getenv("GOPATH")) {
		add(filepath.Join(dir, "pkg", "mod"))
	}
	if home, err := os.UserHomeDir(); err == nil {
		add(filepath.Join(home, "go", "pkg", "mod"))
	}
	return c
}

// advisedElsewhere are the roles of functions whose waits no option sets, or whose option a finding names.
var advisedElsewhere = []knowledge.Role{knowledge.DatabaseLock, knowledge.SharedLock, knowledge.BatchInterval}

// AddWaitLengths adds the duration expression to the advice of findings about waits on purpose in a dependency.
func (c Cache) AddWaitLengths(r *report.Report) {
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Cause != report.CauseSleep || f.Site == nil || slices.ContainsFunc(advisedElsewhere, knowledge.Of(f.Site.Func).Has) {
			continue
		}
		if length := c.WaitLength(f.Site); length != "" {
			f.Remedy = "lower " + length + ", for which it waits there (source of " + f.Site.Module + " " + f.Site.Version + ")"
			f.Fix = f.Remedy + "; else " + f.Fix
		}
	}
}

// maxFileBytes bounds the source files that are read.
const maxFileBytes = 4 << 20

// maxExpressionLen bounds the length of a reported expression.
const maxExpressionLen = 120

// WaitLength returns the expression for how long the line of a site waits, "" if that is unknown.
func (c Cache) WaitLength(site *report.Site) string {
	if site.Module == "" || site.Version == "" || site.Line <= 0 {
		return ""
	}
	_, rest, ok := strings.Cut(site.File, "@"+site.Version+"/")
	if !ok {
		if _, rest, ok = strings.Cut(site.File, "@"+escapeCapitals(site.Version)+"/"); !ok {
			return ""
		}
	}
	// Names in a trace must not refer to files outside of the module.
	if !filepath.IsLocal(rest) || filepath.Ext(rest) != ".go" || !filepath.IsLocal(site.Module+"@"+site.Version) {
		return ""
	}
	for _, dir := range c.Dirs {
		root, err := os.OpenRoot(filepath.Join(dir, filepath.FromSlash(escapeCapitals(site.Module)+"@"+escapeCapitals(site.Version))))
		if err != nil {
			continue
		}
		text := readFile(root, filepath.FromSlash(rest))
		root.Close()
		if text != nil {
			return waitLengthAt(text, site.Line)
		}
	}
	return ""
}

// readFile returns the content of a regular file of at most maxFileBytes; nil if there is none or it cannot be read.
func readFile(root *os.Root, name string) []byte {
	info, err := root.Stat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxFileBytes {
		return nil
	}
	text, err := root.ReadFile(name)
	if err != nil {
		return nil
	}
	return text
}

// escapeCapitals writes capitals as the module cache does.
func escapeCapitals(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsUpper(r) {
			b.WriteByte('!')
			r = unicode.ToLower(r)
		}
		b.WriteRune(r)
	}
	return b.String()
}

// waitLengthAt returns, as in the source, the duration of the single timer for which the statement on a line waits: a sleep, a
// timer that the statement creates, or one whose channel it reads, if the function creates it in one place. Otherwise it is "".
func waitLengthAt(text []byte, line int) string {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "x.go", text, parser.SkipObjectResolution)
	if err != nil {
		return ""
	}
	startsOnLine := func(n ast.Node) bool { return set.Position(n.Pos()).Line == line }
	var statement ast.Node // that begins on the line
	var fn *ast.FuncDecl
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && set.Position(f.Pos()).Line <= line && line <= set.Position(f.End()).Line {
			fn = f
		}
	}
	if fn == nil {
		return ""
	}
	ast.Inspect(fn, func(n ast.Node) bool {
		if s, ok := n.(ast.Stmt); ok && statement == nil && startsOnLine(s) {
			if _, block := s.(*ast.BlockStmt); !block {
				statement = s
			}
		}
		return statement == nil
	})
	if statement == nil {
		return ""
	}
	var lengths []string
	addLength := func(e ast.Expr) { lengths = append(lengths, exprText(set, settableExpr(fn, e))) }
	add := func(call *ast.CallExpr) {
		if e := timerLength(call); e != nil {
			addLength(e)
		}
	}
	channels := map[string]bool{} // x of <-x.C
	var visit func(n ast.Node) bool
	visit = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			add(n)
		case *ast.UnaryExpr:
			channels[timerOfChannel(n)] = true
		case *ast.CommClause:
			// The body of a case is no part of the wait.
			if n.Comm != nil {
				ast.Inspect(n.Comm, visit)
			}
			return false
		}
		return true
	}
	ast.Inspect(statement, visit)
	delete(channels, "") // of other expressions
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i := range n.Rhs {
				if call, ok := n.Rhs[i].(*ast.CallExpr); ok && len(n.Lhs) == len(n.Rhs) && channels[exprText(set, n.Lhs[i])] {
					add(call)
				}
			}
		case *ast.CallExpr: // x.Reset(d)
			if method, ok := n.Fun.(*ast.SelectorExpr); ok && method.Sel.Name == "Reset" && len(n.Args) == 1 && channels[exprText(set, method.X)] {
				addLength(n.Args[0])
			}
		}
		return true
	})
	slices.Sort(lengths)
	lengths = slices.Compact(lengths)
	if len(lengths) != 1 || lengths[0] == "" || len(lengths[0]) > maxExpressionLen ||
		strings.ContainsFunc(lengths[0], unicode.IsControl) {
		return "" // none, or not unique
	}
	return lengths[0]
}

// settableExpr replaces a local name by the expression that was assigned to it, which the user can set. It returns nil
// for a name that is assigned several times or never: a parameter, one of several results, or a variable of the
// package. Other expressions it returns unchanged.
func settableExpr(fn *ast.FuncDecl, expr ast.Expr) ast.Expr {
	for range 4 { // a name may be assigned another name
		name, ok := expr.(*ast.Ident)
		if !ok {
			if mentionsLocal(fn, expr) {
				return nil
			}
			return expr
		}
		if expr = onlyAssignment(fn, name.Name); expr == nil {
			return nil
		}
	}
	return nil
}

// mentionsLocal reports whether an expression contains a local variable, whose name means nothing to users of the
// library. Arguments of a call may be local, because the user knows the called function.
func mentionsLocal(fn *ast.FuncDecl, expr ast.Expr) (mentions bool) {
	local := map[string]bool{}
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, l := range n.Lhs {
				if x, ok := l.(*ast.Ident); ok && n.Tok == token.DEFINE {
					local[x.Name] = true
				}
			}
		case *ast.ValueSpec:
			for _, x := range n.Names {
				local[x.Name] = true
			}
		}
		return true
	})
	ast.Inspect(expr, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if _, plain := n.Fun.(*ast.Ident); plain && len(n.Args) == 1 { // probably a conversion such as time.Duration(x)
				return true
			}
			ast.Inspect(n.Fun, func(n ast.Node) bool {
				x, ok := n.(*ast.Ident)
				mentions = mentions || ok && local[x.Name]
				return true
			})
			return false
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			mentions = mentions || ok && local[x.Name]
			return !ok
		case *ast.Ident:
			mentions = mentions || local[n.Name]
		}
		return true
	})
	return mentions
}

// onlyAssignment returns the only expression that a function assigns to a name, nil if there are several or none.
func onlyAssignment(fn *ast.FuncDecl, name string) (value ast.Expr) {
	assignments, isSetOtherwise := 0, false // isSetOtherwise: not by an assignment
	isName := func(e ast.Expr) bool {
		x, ok := e.(*ast.Ident)
		return ok && x.Name == name
	}
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, l := range n.Lhs {
				if isName(l) {
					assignments++
					if value = nil; len(n.Lhs) == len(n.Rhs) && (n.Tok == token.DEFINE || n.Tok == token.ASSIGN) {
						value = n.Rhs[i]
					}
				}
			}
		case *ast.ValueSpec:
			for i, x := range n.Names {
				if x.Name == name && i < len(n.Values) {
					assignments++
					value = n.Values[i]
				}
			}
		case *ast.RangeStmt:
			isSetOtherwise = isSetOtherwise || isName(n.Key) || isName(n.Value)
		case *ast.IncDecStmt:
			isSetOtherwise = isSetOtherwise || isName(n.X)
		case *ast.UnaryExpr: // through the address it may be set anywhere
			isSetOtherwise = isSetOtherwise || n.Op == token.AND && isName(n.X)
		case *ast.Field: // a parameter or result, also of a nested function
			isSetOtherwise = isSetOtherwise || slices.ContainsFunc(n.Names, func(x *ast.Ident) bool { return x.Name == name })
		}
		return true
	})
	if assignments != 1 || isSetOtherwise {
		return nil
	}
	return value
}

// timerLength returns the duration argument of a call that waits for or creates a timer, time.Sleep too; nil for other calls. The
// package must be imported as time.
func timerLength(call *ast.CallExpr) ast.Expr {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return nil
	}
	if x, ok := f.X.(*ast.Ident); !ok || x.Name != "time" {
		return nil
	}
	switch f.Sel.Name {
	case "Sleep", "After", "Tick", "NewTimer", "NewTicker", "AfterFunc":
		return call.Args[0]
	}
	return nil
}

// timerOfChannel returns x of <-x.C, "" for another expression.
func timerOfChannel(n *ast.UnaryExpr) string {
	if f, ok := n.X.(*ast.SelectorExpr); ok && n.Op == token.ARROW && f.Sel.Name == "C" {
		if x, ok := f.X.(*ast.Ident); ok {
			return x.Name
		}
	}
	return ""
}

// exprText returns the source of an expression; "" for nil or if it cannot be formatted.
func exprText(set *token.FileSet, e ast.Expr) string {
	if e == nil {
		return ""
	}
	var b strings.Builder
	if format.Node(&b, set, e) != nil {
		return ""
	}
	return b.String()
}
