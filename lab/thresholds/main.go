// Command thresholds measures how much answers depend on each threshold: it halves and doubles one threshold of
// internal/explain at a time and judges the recordings of the corpus and of lab/truth again.
//
//	go run ./lab/thresholds -count                       only counts them; -list names each
//	go run ./lab/thresholds -only '^peers\.'             tries those with a matching name
//	go run ./lab/thresholds -n 12 -out DIR/outcome.jsonl tries twelve, without those that the file has: so a run can be continued
//
// A threshold is a named numeric constant of a package below internal/explain, tests excluded, that is an operand of a
// comparison (<, <=, >, >=), min or max in that package, or of an arithmetic expression there. A threshold whose name begins
// with max, or whose value is a power of two (1 << n), bounds memory or work. The others decide answers, and these are tried.
// -count also counts the comparisons with a literal number other than 0, 1 and 2, which distinguish none, one and several; and
// the places where the packages that decide answers name a function, type or package of the standard library or of a
// dependency.
//
// With -n, the thresholds are spread evenly over all, in the order of their names. Source files stay unchanged: go test gets
// the changed file by -overlay. An answer has changed if TestField or TestTruth fails for its recording, because a judged part
// became wrong or right. Runs are sequential, so -n 12 takes some minutes.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/lab/internal/oneline"
)

// A threshold is a named constant that the code compares with.
type threshold struct {
	oneline.Place
	name string // package.constant
}

// isBound reports whether the threshold bounds memory or work.
func (t *threshold) isBound() bool {
	_, name, _ := strings.Cut(t.name, ".")
	return strings.HasPrefix(name, "max") || strings.Contains(t.Old, "<<")
}

// An outcome is the result of one change.
type outcome struct {
	Name     string   `json:"name"`
	Position string   `json:"where"`
	Old      string   `json:"was"`
	Factor   string   `json:"factor"` // half, double
	Changed  []string `json:"changed"`
	Failed   string   `json:"failed,omitempty"` // a build error or a timeout
}

func main() {
	count := flag.Bool("count", false, "only count them")
	list := flag.Bool("list", false, "only list them")
	only := flag.String("only", "", "only thresholds whose package.name matches this regular expression")
	n := flag.Int("n", 0, "number of thresholds; 0: all")
	out := flag.String("out", "", "file to add outcomes to, a line of JSON each; outcomes in it are not repeated")
	timeout := flag.Duration("timeout", 5*time.Minute, "of one run of the judges")
	flag.Parse()
	if err := tryThresholds(*count, *list, *only, *n, *out, *timeout); err != nil {
		fmt.Fprintln(os.Stderr, "thresholds:", err)
		os.Exit(1)
	}
}

func tryThresholds(count, list bool, only string, n int, out string, timeout time.Duration) error {
	if _, err := os.Stat("go.work"); err != nil {
		return errors.New("run this in the repository's root")
	}
	match, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	all, bare, err := findThresholds("internal/explain")
	if err != nil {
		return err
	}
	specialCases, err := countCodeNames("internal/explain")
	if err != nil {
		return err
	}
	named := len(all)
	all = slices.DeleteFunc(all, func(t threshold) bool { return t.isBound() })
	fmt.Printf("%d thresholds decide answers; %d more bound memory or work; %d comparisons have a literal number; %d places name other code\n", len(all), named-len(all), bare, specialCases)
	all = slices.DeleteFunc(all, func(t threshold) bool { return !match.MatchString(t.name) })
	if n > 0 && n < len(all) {
		for i := range n {
			all[i] = all[i*len(all)/n]
		}
		all = all[:n]
	}
	if list {
		for i := range all {
			fmt.Printf("%s = %s  %s:%d\n", all[i].name, all[i].Old, all[i].File, all[i].Line)
		}
	}
	if count || list {
		return nil
	}
	done, err := readOutcomes(out)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "thresholds")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	changedCount := 0
	for i := range all {
		for _, factor := range []string{"half", "double"} {
			o, isDone := done[all[i].name+" "+all[i].Old+" "+factor]
			if !isDone {
				if o, err = tryFactor(&all[i], factor, dir, timeout); err != nil {
					return err
				}
				if o.Failed != timedOut { // another run may be fast enough
					if err := appendOutcome(out, &o); err != nil {
						return err
					}
				}
			}
			if len(o.Changed) > 0 {
				changedCount++
			}
			o.print()
		}
	}
	fmt.Printf("%d thresholds tried: %d of %d changes changed an answer\n", len(all), changedCount, 2*len(all))
	return nil
}

func (o *outcome) print() {
	result := "no answer changes"
	switch {
	case o.Failed != "":
		result = o.Failed
	case len(o.Changed) > 0:
		result = strings.Join(o.Changed, "; ")
	}
	fmt.Printf("%s (%s), %s: %s\n", o.Name, o.Old, o.Factor, result)
}

const timedOut = "ran for too long"

// tryFactor judges the recordings with half of a threshold, or twice.
func tryFactor(t *threshold, factor, dir string, timeout time.Duration) (outcome, error) {
	o := outcome{Name: t.name, Position: fmt.Sprintf("%s:%d", t.File, t.Line), Old: t.Old, Factor: factor, Changed: []string{}}
	overlay, err := t.Write(dir, "("+t.Old+")"+map[string]string{"half": " / 2", "double": " * 2"}[factor])
	if err != nil {
		return o, err
	}
	output, err := oneline.Go(timeout, "test", "-count=1", "-run", "^(TestField|TestTruth)$", "-overlay", overlay, "./internal/acceptance")
	switch {
	case err == nil:
	case oneline.TimedOut(err):
		o.Failed = timedOut
	default:
		if o.Changed = changedAnswers(output); len(o.Changed) == 0 {
			o.Failed = "does not build, or panics"
			if m := changedPage.FindSubmatch(output); m != nil {
				o.Changed, o.Failed = []string{string(m[1])}, ""
			}
		}
	}
	return o, nil
}

var subtest = regexp.MustCompile(`(?m)^ +--- FAIL: (?:TestField|TestTruth)/(\S+) .*\n\s+\S+_test\.go:\d+: (.*)`)

// changedPage matches the message about a generated page that no longer agrees with the answers, although every judged part is
// as before.
var changedPage = regexp.MustCompile(`(?m)_test\.go:\d+: ((?:docs|internal)/\S+ is not what .*)`)

// changedAnswers returns the recordings whose answers are judged differently, each with its first message.
func changedAnswers(output []byte) (out []string) {
	for _, m := range subtest.FindAllSubmatch(output, -1) {
		text := string(m[2])
		if right, _, ok := strings.Cut(text, " is right: "); ok {
			text = right + " is right"
		}
		if r := []rune(text); len(r) > 120 {
			text = string(r[:120]) + "..."
		}
		out = append(out, string(m[1])+": "+text)
	}
	return out
}

// readOutcomes returns the outcomes of a file, by threshold, value and factor.
func readOutcomes(file string) (map[string]outcome, error) {
	done := map[string]outcome{}
	if file == "" {
		return done, nil
	}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return done, nil
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var o outcome
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		done[o.Name+" "+o.Old+" "+o.Factor] = o
	}
	return done, nil
}

func appendOutcome(file string, o *outcome) error {
	if file == "" {
		return nil
	}
	line, err := json.Marshal(o)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(append(line, '\n'))
	return err
}

// findThresholds returns the thresholds of all packages below a directory, by name, and the number of comparisons with a
// literal number.
func findThresholds(root string) (all []threshold, bare int, err error) {
	var files []*oneline.File
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		list, err := oneline.Files("./" + filepath.ToSlash(path))
		files = append(files, list...)
		return err
	})
	all, bare = thresholdsIn(files)
	slices.SortFunc(all, func(a, b threshold) int { return strings.Compare(a.name, b.name) })
	return all, bare, err
}

// thresholdsIn returns the thresholds of some files, which may be of several packages with different names.
func thresholdsIn(files []*oneline.File) (all []threshold, bare int) {
	compared := map[string]bool{} // package.constant
	for _, f := range files {
		ast.Inspect(f.Tree, func(n ast.Node) bool {
			var sides []ast.Expr
			switch n := n.(type) {
			case *ast.BinaryExpr:
				if slices.Contains([]token.Token{token.LSS, token.LEQ, token.GTR, token.GEQ}, n.Op) {
					sides = []ast.Expr{n.X, n.Y}
				}
			case *ast.CallExpr:
				if id, ok := n.Fun.(*ast.Ident); ok && (id.Name == "min" || id.Name == "max") {
					sides = n.Args
				}
			}
			number := false
			for _, s := range sides {
				visitOperands(s, func(e ast.Expr) {
					switch e := e.(type) {
					case *ast.Ident:
						compared[f.Tree.Name.Name+"."+e.Name] = true
					case *ast.SelectorExpr:
						if pkg, ok := e.X.(*ast.Ident); ok {
							compared[pkg.Name+"."+e.Sel.Name] = true
						}
					case *ast.BasicLit:
						number = number || (e.Kind == token.INT || e.Kind == token.FLOAT) && !slices.Contains([]string{"0", "1", "2"}, e.Value)
					}
				})
			}
			if _, ok := n.(*ast.BinaryExpr); ok && number {
				bare++
			}
			return true
		})
	}
	for _, f := range files {
		for _, d := range f.Tree.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, spec := range g.Specs {
				v := spec.(*ast.ValueSpec)
				for i, name := range v.Names {
					if i < len(v.Values) && compared[f.Tree.Name.Name+"."+name.Name] && isNumber(v.Values[i]) {
						all = append(all, threshold{f.Place(v.Values[i].Pos(), v.Values[i].End()), f.Tree.Name.Name + "." + name.Name})
					}
				}
			}
		}
	}
	return all, bare
}

// visitOperands visits the names and numbers of an arithmetic expression, also in conversions such as float64(x).
func visitOperands(e ast.Expr, visit func(ast.Expr)) {
	switch e := e.(type) {
	case *ast.ParenExpr:
		visitOperands(e.X, visit)
	case *ast.BinaryExpr:
		if slices.Contains([]token.Token{token.ADD, token.SUB, token.MUL, token.QUO}, e.Op) {
			visitOperands(e.X, visit)
			visitOperands(e.Y, visit)
		}
	case *ast.CallExpr:
		if id, ok := e.Fun.(*ast.Ident); ok && len(e.Args) == 1 && slices.Contains([]string{"float64", "int64", "int", "uint64"}, id.Name) {
			visitOperands(e.Args[0], visit)
		}
	case *ast.Ident, *ast.SelectorExpr, *ast.BasicLit:
		visit(e)
	}
}

// isNumber reports whether a constant's value is an expression of numbers, without iota and strings.
func isNumber(e ast.Expr) bool {
	ok, number := true, false
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			ok = ok && (n.Kind == token.INT || n.Kind == token.FLOAT)
			number = true
		case *ast.Ident:
			ok = ok && n.Name != "iota"
		}
		return true
	})
	return ok && number
}
