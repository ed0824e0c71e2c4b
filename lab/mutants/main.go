// Command mutants measures which wrong lines the tests would catch: it changes one thing in one line, runs the tests, and
// counts the changes after which a test fails.
//
//	go run ./lab/mutants -n 60                       of the engine's packages
//	go run ./lab/mutants -n 20 -seed 3 ./internal/explain/request
//	go run ./lab/mutants -n 30 ./service/...         of packages that services import
//	go run ./lab/mutants -n 30 ./internal/judge/... ./internal/experiment/... ./internal/capture/...
//	go run ./lab/mutants -only 17,23                 repeat these, by number
//	go run ./lab/mutants -near -full ./service/...   by all tests of the changed package, as the gate runs them
//
// A change moves a bound (< for <=), inverts a condition, exchanges + and - or min and max, increments a number, exchanges
// true and false, or removes a call; -seed selects the changes. Source files stay unchanged: go test gets the changed file by
// -overlay. Each change first meets the short tests of its package and then, if these pass, those of all packages of its
// module whose tests depend on it; with -full, all tests of its package run in between. A change that does not compile is
// replaced by another. A change whose tests exceed -timeout is caught.
package main

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"math/rand/v2"
	"os"
	"path/filepath"
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
	text string
}

func main() {
	n := flag.Int("n", 60, "number of changes")
	seed := flag.Uint64("seed", 1, "selects the changes")
	only := flag.String("only", "", "numbers of the changes to try, as printed by an earlier run with the same -seed")
	near := flag.Bool("near", false, "only run the tests of the changed package, not those of packages that depend on it")
	full := flag.Bool("full", false, "run all tests of the changed package if the short ones pass")
	timeout := flag.Duration("timeout", 3*time.Minute, "of one run of tests")
	flag.Parse()
	pkgs := flag.Args()
	if len(pkgs) == 0 {
		pkgs = enginePackages
	}
	if err := tryMutants(*n, *seed, *only, *near, *full, *timeout, pkgs); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func tryMutants(n int, seed uint64, only string, onlyPackage, full bool, timeout time.Duration, pkgs []string) error {
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
	dependents := map[string][]string{}
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	selected := map[int]bool{}
	for _, s := range strings.FieldsFunc(only, func(r rune) bool { return r == ',' }) {
		i, err := strconv.Atoi(s)
		if err != nil || i < 0 || i >= len(all) {
			return fmt.Errorf("-only %s: there is no change %s", only, s)
		}
		selected[i] = true
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	caughtNear, caughtFar, survived := 0, 0, 0
	for i := 0; i < len(all) && caughtNear+caughtFar+survived < n; i++ {
		if len(selected) > 0 && !selected[i] {
			continue
		}
		m := &all[i]
		overlay, err := m.Write(dir, m.text)
		if err != nil {
			return err
		}
		if out, err := oneline.Go(timeout, "build", "-overlay", overlay, m.Pkg); err != nil {
			if oneline.TimedOut(err) {
				return fmt.Errorf("building %s: %w\n%s", m.Pkg, err, out)
			}
			continue // for example an unused variable
		}
		verdict := "SURVIVED"
		if _, err := oneline.Go(timeout, "test", "-short", "-failfast", "-overlay", overlay, m.Pkg); err != nil {
			verdict, caughtNear = "caught by its package"+timeoutNote(err), caughtNear+1
		} else if err := runLongTests(full, timeout, overlay, m.Pkg); err != nil {
			verdict, caughtNear = "caught by its package's long tests"+timeoutNote(err), caughtNear+1
		} else {
			dependentTests, isListed := dependents[m.Pkg]
			if !isListed && !onlyPackage {
				if dependentTests, err = dependentsOf(m.Pkg); err != nil {
					return err
				}
				dependents[m.Pkg] = dependentTests
			}
			survived++
			if len(dependentTests) > 0 {
				if out, err := oneline.Go(timeout, append([]string{"test", "-short", "-failfast", "-overlay", overlay}, dependentTests...)...); err != nil {
					verdict, caughtFar, survived = "caught by "+strings.Join(failedPackages(out), ", ")+timeoutNote(err), caughtFar+1, survived-1
				}
			}
		}
		fmt.Printf("%4d  %s:%d  %s -> %s: %s\n", i, m.File, m.Line, m.Old, m.text, verdict)
	}
	total := caughtNear + caughtFar + survived
	fmt.Printf("%d of %d changes caught (%.0f %%): %d by the tests of their package, %d by others; of %d possible changes in %d packages\n", caughtNear+caughtFar, total, 100*float64(caughtNear+caughtFar)/float64(max(total, 1)), caughtNear, caughtFar, len(all), len(sources))
	return nil
}

// runLongTests runs all tests of a package if full is set.
func runLongTests(full bool, timeout time.Duration, overlay, pkg string) (err error) {
	if full {
		_, err = oneline.Go(timeout, "test", "-failfast", "-overlay", overlay, pkg)
	}
	return err
}

// timeoutNote returns a note if the tests were ended by the timeout: on a busy machine that may happen without a change.
func timeoutNote(err error) string {
	if oneline.TimedOut(err) {
		return " (ran for too long)"
	}
	return ""
}

// failedPackages returns the packages whose tests failed.
func failedPackages(out []byte) []string {
	var list []string
	for line := range strings.Lines(string(out)) {
		if rest, ok := strings.CutPrefix(line, "FAIL\t"); ok {
			if name := filepath.Base(strings.Fields(rest)[0]); !slices.Contains(list, name) {
				list = append(list, name)
			}
		}
	}
	return list
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

// dependentsOf returns the other packages of a package's module whose tests depend on it.
func dependentsOf(dir string) (list []string, err error) {
	self, err := listPackages([]string{dir})
	if err != nil || len(self) != 1 {
		return nil, fmt.Errorf("%s is %d packages: %w", dir, len(self), err)
	}
	out, err := oneline.Go(time.Minute, "-C", self[0].module, "list", "-test", "-f", "{{.ImportPath}}\t{{join .Deps \"\t\"}}", "./...")
	if err != nil {
		return nil, fmt.Errorf("listing dependents: %w\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		words := strings.Split(strings.TrimSpace(line), "\t")
		name, isTest := strings.CutSuffix(words[0], ".test")
		isPackage := func(dep string) bool { dep, _, _ = strings.Cut(dep, " "); return dep == self[0].path } // "pkg [x.test]"
		if isTest && name != self[0].path && slices.ContainsFunc(words[1:], isPackage) {
			list = append(list, name)
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
		add := func(from, to token.Pos, text string) { out = append(out, mutant{file.Place(from, to), text}) }
		for _, d := range file.Tree.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.BinaryExpr:
					if text, ok := swappedOperators[n.Op]; ok && !isText(n.X) && !isText(n.Y) {
						add(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), text)
					}
				case *ast.IfStmt:
					if c := n.Cond; file.Line(c.Pos()) == file.Line(c.End()) {
						add(c.Pos(), c.End(), "!("+file.Place(c.Pos(), c.End()).Old+")")
					}
				case *ast.BasicLit:
					if n.Kind == token.INT {
						if v, err := strconv.ParseInt(n.Value, 10, 64); err == nil {
							add(n.Pos(), n.End(), strconv.FormatInt(v+1, 10))
						}
					}
				case *ast.Ident:
					if replacement, ok := map[string]string{"true": "false", "false": "true", "min": "max", "max": "min"}[n.Name]; ok {
						add(n.Pos(), n.End(), replacement)
					}
				case *ast.IncDecStmt:
					add(n.TokPos, n.TokPos+2, map[token.Token]string{token.INC: "--", token.DEC: "++"}[n.Tok])
				case *ast.ExprStmt:
					if file.Line(n.Pos()) == file.Line(n.End()) {
						add(n.Pos(), n.End(), "")
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
