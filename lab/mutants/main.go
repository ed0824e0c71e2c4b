// Command mutants measures which wrong lines the tests would catch: it changes one thing in one line, runs the tests, and
// counts the changes after which a test fails.
//
//	go run ./lab/mutants -n 60                       of the engine's packages
//	go run ./lab/mutants -n 20 -seed 3 ./internal/explain/request
//	go run ./lab/mutants -n 30 ./service/...         of packages that services import
//	go run ./lab/mutants -n 30 ./internal/judge/... ./internal/experiment/... ./internal/capture/...
//	go run ./lab/mutants -only 17,23                 repeat these, by number
//	go run ./lab/mutants -near -full ./service/...   by all tests of the changed package, as the gate runs them
//	go run ./lab/mutants -near -full -also ./internal/acceptance ./internal/explain/finding
//
// A change moves a bound (< for <=), inverts a condition, exchanges + and - or min and max, increments a number, exchanges
// true and false, or removes a call; -seed selects the changes. Source files stay unchanged: go test gets the changed file by
// -overlay, with all changes of a package behind a switch where Go's types permit it, so that most need no build of their own. Each
// change first meets the short tests of its package and then, if these pass, those of the packages of its
// module that import it; with -full, all tests of its package run in between, and with -also the short ones of more packages at
// the end. A change that does not compile is
// replaced by another. A change whose tests exceed -timeout is caught. A package whose tests fail without a change is an error.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"hash/fnv"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/lab/internal/oneline"
)

// enginePackages are the packages whose lines decide the answer.
var enginePackages = []string{
	"./internal/trace/tracefmt", "./internal/trace/timeline", "./internal/explain/request", "./internal/explain/critpath", "./internal/explain/cause", "./internal/explain/path",
	"./internal/explain/freeze", "./internal/explain/pass", "./internal/explain/answers", "./internal/explain/peers", "./internal/explain/groups", "./internal/explain/queues",
	"./internal/explain/detailed", "./internal/explain/predict", "./internal/explain/process", "./internal/explain/moments", "./internal/explain/finding", "./internal/explain/verdict",
}

// A mutant is a change of one place.
type mutant struct {
	oneline.Place
	text     string
	number   int
	around   oneline.Place // what the switch replaces, contains Place
	switched string        // an expression or statement that is changed if NUMBER is selected; "" if there is none
}

func (m *mutant) String() string {
	return fmt.Sprintf("%s:%d  %s -> %s", m.File, m.Line, m.Old, m.text)
}

// rank orders changes by seed. It depends on the line only, so that a list remains nearly the same when other lines change.
func (m *mutant) rank(seed uint64) uint64 {
	h := fnv.New64a()
	fmt.Fprintln(h, seed, m.File, m.Text, m.text)
	sum := h.Sum64() // the last bytes hardly reach the highest bits
	return (sum ^ sum>>32) * 0x9e3779b97f4a7c15
}

func main() {
	n := flag.Int("n", 60, "number of changes")
	seed := flag.Uint64("seed", 1, "selects the changes")
	only := flag.String("only", "", "numbers of the changes to try, as printed by an earlier run with the same -seed")
	list := flag.Bool("list", false, "only print the changes, without a test; some may not compile")
	flag.StringVar(&skippedTests, "skip", "", "do not run the tests that match this regular expression: which changes did these catch?")
	near := flag.Bool("near", false, "only run the tests of the changed package, not those of packages that depend on it")
	full := flag.Bool("full", false, "run all tests of the changed package if the short ones pass")
	also := flag.String("also", "", "packages whose short tests run as well, separated by commas")
	timeout := flag.Duration("timeout", 3*time.Minute, "of one run of tests")
	flag.Parse()
	pkgs := flag.Args()
	if len(pkgs) == 0 {
		pkgs = enginePackages
	}
	if err := tryMutants(*n, *seed, *only, *list, &trial{full: *full, near: *near, timeout: *timeout, also: strings.FieldsFunc(*also, isComma)}, pkgs); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func isComma(r rune) bool { return r == ',' }

func tryMutants(n int, seed uint64, only string, onlyList bool, t *trial, pkgs []string) error {
	if _, err := os.Stat("go.work"); err != nil {
		return errors.New("run this in the repository's root")
	}
	sources, err := listPackages(pkgs)
	if err != nil {
		return err
	}
	var all []mutant
	for _, pkg := range sources {
		list, err := mutantsOf(pkg.dir)
		if err != nil {
			return err
		}
		all = append(all, list...)
	}
	slices.SortStableFunc(all, func(a, b mutant) int { return cmp.Compare(a.rank(seed), b.rank(seed)) })
	selected := map[int]bool{}
	for _, s := range strings.FieldsFunc(only, isComma) {
		i, err := strconv.Atoi(s)
		if err != nil || i < 0 || i >= len(all) {
			return fmt.Errorf("-only %s: there is no change %s", only, s)
		}
		selected[i] = true
	}
	if onlyList {
		for i := range min(n, len(all)) {
			fmt.Printf("%4d  %s\n", i, &all[i])
		}
		return nil
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	t.dir, t.binaries, t.unchangedRuns = dir, map[string]string{}, map[string]error{}
	next := 0
	for t.count() < n && next < len(all) {
		var batch []*mutant
		for ; next < len(all) && t.count()+len(batch) < n; next++ {
			if m := &all[next]; len(selected) == 0 || selected[next] {
				m.number = next
				batch = append(batch, m)
			}
		}
		if err := t.tryBatch(batch); err != nil {
			return err
		}
	}
	fmt.Printf("%d of %d changes caught (%.0f %%): %d by the tests of their package, %d by others; of %d possible changes in %d packages\n", t.caughtNear+t.caughtFar, t.count(), 100*float64(t.caughtNear+t.caughtFar)/float64(max(t.count(), 1)), t.caughtNear, t.caughtFar, len(all), len(sources))
	return nil
}

// A trial tests changes and counts outcomes.
type trial struct {
	dir                             string // for files of this run
	full, near                      bool
	also                            []string // packages whose tests run at the end
	timeout                         time.Duration
	builds                          int
	binaries                        map[string]string // by overlay and package
	unchangedRuns                   map[string]error  // by package: how its tests ended without a change
	caughtNear, caughtFar, survived int
}

func (t *trial) count() int { return t.caughtNear + t.caughtFar + t.survived }

// tryBatch tests changes. Those of a package are compiled together, each behind a switch; what the switch cannot express is
// compiled alone.
func (t *trial) tryBatch(batch []*mutant) error {
	var pkgs []string
	byPackage := map[string][]*mutant{}
	for _, m := range batch {
		if byPackage[m.Pkg] == nil {
			pkgs = append(pkgs, m.Pkg)
		}
		byPackage[m.Pkg] = append(byPackage[m.Pkg], m)
	}
	for _, pkg := range pkgs {
		if err := t.runUnchanged(pkg, t.full); err != nil {
			return err
		}
		overlay, together, err := t.buildTogether(pkg, byPackage[pkg])
		if err != nil {
			return err
		}
		for _, m := range byPackage[pkg] {
			changed := overlay
			if !slices.Contains(together, m) {
				if changed, err = t.writeOverlay([]oneline.Edit{{Place: m.Place, New: m.text}}, nil); err != nil {
					return err
				}
				if out, err := t.build(changed, pkg); oneline.TimedOut(err) {
					return fmt.Errorf("building %s: %w\n%s", m.Pkg, err, out)
				} else if err != nil {
					continue // for example an unused variable
				}
			}
			if err := t.test(m, changed); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *trial) writeOverlay(edits []oneline.Edit, additional map[string]string) (overlay string, err error) {
	t.builds++
	return oneline.Write(filepath.Join(t.dir, strconv.Itoa(t.builds)), edits, additional)
}

// selectorFile returns a file that reads which change of a package is selected.
func selectorFile(pkg string) (name, content string, err error) {
	out, err := oneline.Go(time.Minute, "list", "-f", "{{.Name}}", pkg)
	if err != nil {
		return "", "", fmt.Errorf("listing %s: %w\n%s", pkg, err, out)
	}
	return filepath.Join(pkg, "selected_change.go"), "package " + string(out) + `
import "os"

var selectedChange = os.Getenv("` + selectedVariable + `")

func isChanged(number string) bool { return selectedChange == number }

func pickChange[T any](number string, old, changed T) T {
	if isChanged(number) {
		return changed
	}
	return old
}
`, nil
}

var skippedTests string

const selectedVariable = "WHYLATE_CHANGE"

var compileError = regexp.MustCompile(`([^/\s]+\.go):(\d+):`)

// buildTogether compiles the changes of a package that a switch can express and that do not overlap, and returns them.
func (t *trial) buildTogether(pkg string, list []*mutant) (overlay string, together []*mutant, err error) {
	name, content, err := selectorFile(pkg)
	if err != nil {
		return "", nil, err
	}
	for _, m := range list {
		overlaps := func(o *mutant) bool {
			return o.File == m.File && o.around.From < m.around.To && m.around.From < o.around.To
		}
		if m.switched != "" && !slices.ContainsFunc(together, overlaps) {
			together = append(together, m)
		}
	}
	for len(together) > 0 {
		var edits []oneline.Edit
		for _, m := range together {
			edits = append(edits, oneline.Edit{Place: m.around, New: strings.ReplaceAll(m.switched, "NUMBER", strconv.Quote(strconv.Itoa(m.number)))})
		}
		if overlay, err = t.writeOverlay(edits, map[string]string{name: content}); err != nil {
			return "", nil, err
		}
		out, err := t.build(overlay, pkg)
		if err == nil {
			break
		}
		count := len(together)
		for _, e := range compileError.FindAllStringSubmatch(string(out), -1) {
			together = slices.DeleteFunc(together, func(m *mutant) bool { return filepath.Base(m.File) == e[1] && strconv.Itoa(m.Line) == e[2] })
		}
		if len(together) == count {
			return "", nil, fmt.Errorf("building %s: %w\n%s", pkg, err, out)
		}
	}
	return overlay, together, nil
}

// build compiles the tests of a package.
func (t *trial) build(overlay, pkg string) ([]byte, error) {
	key := overlay + " " + pkg
	if t.binaries[key] != "" {
		return nil, nil
	}
	t.builds++
	file := filepath.Join(t.dir, strconv.Itoa(t.builds)+".test")
	out, err := oneline.Go(2*t.timeout, "test", "-c", "-vet=off", "-ldflags=-w", "-overlay", overlay, "-o", file, pkg)
	if err == nil {
		t.binaries[key] = file
	}
	return out, err
}

// runUnchanged runs a package's tests without a change, once: after tests that fail anyway, each change would count as caught.
func (t *trial) runUnchanged(pkg string, full bool) error {
	err, hasRun := t.unchangedRuns[pkg]
	if hasRun {
		return err
	}
	if out, buildErr := t.build("", pkg); buildErr != nil {
		err = fmt.Errorf("building %s: %w\n%s", pkg, buildErr, out)
	} else if failure := t.failure("", "", pkg, "-test.short="+strconv.FormatBool(!full)); failure != "" {
		err = fmt.Errorf("the tests of %s fail without a change: %s", pkg, failure)
	}
	t.unchangedRuns[pkg] = err
	return err
}

// test runs tests with a change, prints the outcome, and counts it.
func (t *trial) test(m *mutant, overlay string) error {
	verdict := "SURVIVED"
	if failure := t.failure(strconv.Itoa(m.number), overlay, m.Pkg, "-test.short"); failure != "" {
		verdict, t.caughtNear = "caught by "+failure, t.caughtNear+1
	} else if failure := t.longFailure(m, overlay); failure != "" {
		verdict, t.caughtNear = "caught by long "+failure, t.caughtNear+1
	} else {
		var dependents []string
		if !t.near {
			var err error
			if dependents, err = dependentsOf(m.Pkg); err != nil {
				return err
			}
		}
		for _, pkg := range slices.Concat(dependents, t.also) {
			if err := t.runUnchanged(pkg, false); err != nil {
				return err
			}
			if out, err := t.build(overlay, pkg); err != nil {
				return fmt.Errorf("building %s: %w\n%s", pkg, err, out)
			}
			if failure := t.failure(strconv.Itoa(m.number), overlay, pkg, "-test.short"); failure != "" {
				verdict, t.caughtFar = "caught by "+filepath.Base(pkg)+"'s "+failure, t.caughtFar+1
				break
			}
		}
		if verdict == "SURVIVED" {
			t.survived++
		}
	}
	fmt.Printf("%4d  %s: %s\n", m.number, m, verdict)
	return nil
}

// longFailure runs all tests of a package if full is set.
func (t *trial) longFailure(m *mutant, overlay string) string {
	if !t.full {
		return ""
	}
	return t.failure(strconv.Itoa(m.number), overlay, m.Pkg, "-test.short=false")
}

var failedTest = regexp.MustCompile(`(?m)--- FAIL: (\S+)|^panic: .*|^FAIL`)

// failure runs a package's tests with the change of a number and returns which fails, "" if none.
func (t *trial) failure(number, overlay, pkg, option string) string {
	file := t.binaries[overlay+" "+pkg]
	if _, err := os.Stat(file); err != nil {
		return "" // the package has no tests
	}
	out, err := oneline.Run(t.timeout, pkg, []string{selectedVariable + "=" + number}, file, option, "-test.failfast", "-test.skip="+skippedTests)
	if oneline.TimedOut(err) {
		return "a run that takes too long" // on a busy machine that may happen without a change
	}
	if err == nil {
		return ""
	}
	return cmp.Or(strings.TrimPrefix(string(failedTest.Find(out)), "--- FAIL: "), err.Error())
}

var swappedOperators = map[token.Token]string{
	token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">", token.EQL: "!=", token.NEQ: "==",
	token.ADD: "-", token.SUB: "+", token.MUL: "/", token.QUO: "*", token.LAND: "||", token.LOR: "&&",
}

// A source is a package: its directory as ./DIRECTORY, its import path, and its module's directory.
type source struct{ dir, path, module string }

// listPackages returns the packages of patterns except those that only tests use, whose names end with "test".
func listPackages(patterns []string) (list []source, err error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	out, err := oneline.Go(time.Minute, append([]string{"list", "-f", "{{.Dir}}\t{{.ImportPath}}\t{{.Module.Dir}}"}, patterns...)...)
	if err != nil {
		return nil, fmt.Errorf("listing packages: %w\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		words := strings.Split(strings.TrimSpace(line), "\t")
		dir, err := filepath.Rel(root, words[0])
		if err != nil || len(words) != 3 {
			return nil, fmt.Errorf("listing packages: %q", line)
		}
		if !strings.HasSuffix(dir, "test") {
			list = append(list, source{"./" + dir, words[1], words[2]})
		}
	}
	return list, nil
}

// dependentsOf returns the other packages of a package's module that import it, or whose tests do.
func dependentsOf(dir string) (list []string, err error) {
	self, err := listPackages([]string{dir})
	if err != nil || len(self) != 1 {
		return nil, fmt.Errorf("%s is %d packages: %w", dir, len(self), err)
	}
	out, err := oneline.Go(time.Minute, "-C", self[0].module, "list", "-f", `{{.ImportPath}} {{.Dir}} {{join .Imports " "}} {{join .TestImports " "}} {{join .XTestImports " "}}`, "./...")
	if err != nil {
		return nil, fmt.Errorf("listing dependents: %w\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if words := strings.Fields(line); words[0] != self[0].path && slices.Contains(words[2:], self[0].path) {
			list = append(list, words[1])
		}
	}
	return list, nil
}

// mutantsOf returns all possible changes of a package.
func mutantsOf(pkg string) ([]mutant, error) {
	files, err := oneline.Files(pkg)
	if err != nil {
		return nil, err
	}
	var out []mutant
	for _, file := range files {
		add := func(from, to token.Pos, text string, around ast.Node, switched string) {
			place := file.Place(around.Pos(), around.End())
			if strings.Contains(place.Old, "\n") {
				switched = ""
			}
			out = append(out, mutant{Place: file.Place(from, to), text: text, around: place, switched: switched})
		}
		textOf := func(n ast.Node) string { return file.Place(n.Pos(), n.End()).Old }
		for _, d := range file.Tree.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.BinaryExpr:
					if text, ok := swappedOperators[n.Op]; ok && !isText(n.X) && !isText(n.Y) {
						old, changed := "("+textOf(n)+")", "("+textOf(n.X)+" "+text+" "+textOf(n.Y)+")"
						switched := ""
						switch n.Op {
						case token.ADD, token.SUB:
							switched = "pickChange(NUMBER, " + old + ", " + changed + ")"
						case token.MUL, token.QUO: // evaluating both might divide by zero
						default:
							switched = "(!isChanged(NUMBER) && " + old + " || isChanged(NUMBER) && " + changed + ")"
						}
						add(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), text, n, switched)
					}
				case *ast.IfStmt:
					if c := n.Cond; file.Line(c.Pos()) == file.Line(c.End()) {
						add(c.Pos(), c.End(), "!("+textOf(c)+")", c, "(("+textOf(c)+") != isChanged(NUMBER))")
					}
				case *ast.BasicLit:
					if n.Kind == token.INT {
						if v, err := strconv.ParseInt(n.Value, 10, 64); err == nil {
							text := strconv.FormatInt(v+1, 10)
							add(n.Pos(), n.End(), text, n, "pickChange(NUMBER, "+n.Value+", "+text+")")
						}
					}
				case *ast.Ident:
					if replacement, ok := map[string]string{"true": "false", "false": "true", "min": "max", "max": "min"}[n.Name]; ok {
						switched := ""
						if n.Name == "true" || n.Name == "false" {
							switched = "(" + n.Name + " != isChanged(NUMBER))"
						}
						add(n.Pos(), n.End(), replacement, n, switched)
					}
				case *ast.IncDecStmt:
					add(n.TokPos, n.TokPos+2, map[token.Token]string{token.INC: "--", token.DEC: "++"}[n.Tok], n, "")
				case *ast.ExprStmt:
					if file.Line(n.Pos()) == file.Line(n.End()) {
						add(n.Pos(), n.End(), "", n, "if !isChanged(NUMBER) { "+textOf(n)+" }")
					}
				}
				return true
			})
		}
	}
	return out, nil
}

// isText reports whether an expression is a string literal: strings only support +.
func isText(e ast.Expr) bool {
	l, ok := e.(*ast.BasicLit)
	return ok && l.Kind == token.STRING
}
