package finding

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

var (
	keyPattern       = regexp.MustCompile(`^(title|fix|evidence|phrase) [a-z0-9-]+$`)
	parameterPattern = regexp.MustCompile(`\{[^}]*\}`)
	wordsPattern     = regexp.MustCompile(`[A-Za-z]+ [a-z]+ [a-z]+`)
)

// A textCall is a call that takes a text's key, and its parameters from some argument on. key is "" if it is a variable.
type textCall struct {
	position   string
	key        textKey
	parameters []string
}

// firstParameter has the index of the first parameter of the functions that take a text's key; "add" is a closure in
// throttle.go.
var firstParameter = map[string]int{"textOf": 1, "statementOf": 1, "evidenceOf": 3, "add": 3}

// TestTexts checks the files of texts against the code: each text is used, each key has one text, and each call passes the
// parameters of its text, and no other ones. A call whose key is a variable passes those of all texts that it may choose.
func TestTexts(t *testing.T) {
	parametersOf := map[textKey][]string{}
	for _, file := range append(report.RuleCodes(), "shared") {
		_, sections := readSections(string(file))
		for _, s := range sections {
			key := textKey(s.Title)
			switch _, isTwice := parametersOf[key]; {
			case !strings.Contains(s.Title, " "):
				continue
			case !keyPattern.MatchString(s.Title) || isTwice || s.Text == "":
				t.Errorf("%s.txt: the key of %q is malformed or used twice, or its text is empty", file, s.Title)
			}
			parametersOf[key] = []string{}
			for _, p := range parameterPattern.FindAllString(s.Text, -1) {
				parametersOf[key] = append(parametersOf[key], strings.Trim(p, "{}"))
			}
		}
	}
	chosenKeys, calls := parseTexts(t)
	unusedKeys := maps.Clone(parametersOf)
	var variableCalls []textCall
	for _, call := range calls {
		if call.key == "" {
			variableCalls = append(variableCalls, call)
			continue
		}
		parameters, ok := parametersOf[call.key]
		check.True(t, ok && isSubset(parameters, call.parameters) && isSubset(call.parameters, parameters),
			"%s: %q has the parameters %q (it exists: %v), but the call passes %q", call.position, call.key, parameters, ok, call.parameters)
		delete(unusedKeys, call.key)
	}
	for key, position := range chosenKeys {
		parameters, ok := parametersOf[key]
		check.True(t, ok && slices.ContainsFunc(variableCalls, func(c textCall) bool { return isSubset(parameters, c.parameters) }),
			"%s: no call passes the parameters %q of %q (it exists: %v)", position, parameters, key, ok)
		delete(unusedKeys, key)
	}
	for key := range unusedKeys {
		t.Errorf("the text %q is not used", key)
	}
}

func isSubset(a, b []string) bool {
	return !slices.ContainsFunc(a, func(s string) bool { return !slices.Contains(b, s) })
}

// parseTexts returns the calls that take a text's key, and the positions of all other literals that are such keys. It reports
// sentences in the code: those belong to the files, except for errors, the page of all rules and the severities.
func parseTexts(t *testing.T) (chosenKeys map[textKey]string, calls []textCall) {
	chosenKeys = map[textKey]string{}
	files := token.NewFileSet()
	for _, entry := range must.Have(os.ReadDir("."))(t) {
		name := entry.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		isSeen := map[ast.Node]bool{} // literals that need no further check
		ast.Inspect(must.Have(parser.ParseFile(files, name, nil, 0))(t), func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				callee := ""
				switch f := n.Fun.(type) {
				case *ast.Ident:
					callee = f.Name
				case *ast.SelectorExpr:
					callee = f.Sel.Name
				}
				if callee == "Errorf" || callee == "New" || callee == "panic" {
					return false
				}
				first, ok := firstParameter[callee]
				if !ok || n.Ellipsis.IsValid() || len(n.Args) < first {
					return true
				}
				call := textCall{position: files.Position(n.Pos()).String()}
				if key, ok := literal(n.Args[0]); ok {
					call.key, isSeen[n.Args[0]] = textKey(key), true
				}
				for i := first; i < len(n.Args); i += 2 {
					parameter, _ := literal(n.Args[i])
					call.parameters = append(call.parameters, parameter)
				}
				calls = append(calls, call)
			case *ast.BasicLit:
				text, ok := literal(n)
				switch {
				case !ok || isSeen[n]:
				case keyPattern.MatchString(text):
					chosenKeys[textKey(text)] = files.Position(n.Pos()).String()
				case wordsPattern.MatchString(text) && name != "rulepages.go" && name != "severity.go" && !slices.Contains(comparedTexts, text):
					t.Errorf("%s: the sentence %q belongs to a file in rules", files.Position(n.Pos()), text)
				}
			}
			return true
		})
	}
	return chosenKeys, calls
}

// comparedTexts are compared with a report's or a file's, and not shown.
var comparedTexts = []string{neverOpens, "read mem stats"}

// literal returns the value of a string literal.
func literal(n ast.Expr) (string, bool) {
	lit, ok := n.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}

// TestTextOf: a value that looks like a parameter is not replaced.
func TestTextOf(t *testing.T) {
	site := &report.Site{Func: "main.get", File: "/src/main.go", Line: 7}
	want := "requests are paced: one every {site}, set at main.get (main.go:7)"
	if got := textOf("title limiter-paced", "interval", "{site}", "site", site); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestLibraryTable: each library has a name, functions, and some advice or the name of its server.
func TestLibraryTable(t *testing.T) {
	for _, l := range libraries() {
		if l.name == "" || l.version == "" || l.functions == "" || l.poolAdvice+l.peerAdvice+l.seriesAdvice+l.fanOutAdvice+l.pauseAdvice+l.retryAdvice+l.lockAdvice+l.shareAdvice+l.orderAdvice+l.keepAdvice+l.drainAdvice+l.loopAdvice+l.tickAdvice+l.burstOption+l.setUpAdvice+l.purpose+l.costAdvice+l.lessAdvice+l.server == "" || (l.slotFunc == "") != (l.poolName == "") {
			t.Errorf("incomplete: %+v", l)
		}
	}
}

// TestSeriesAdvice: of the library that the service calls and the driver that this one uses, the first knows better how to avoid calls in
// series. If it has no advice, the driver's counts.
func TestSeriesAdvice(t *testing.T) {
	for calls, want := range map[string]string{"gorm.io/gorm.(*Association).Find": "GORM", "example.org/store.(*DB).Find": "pgx"} {
		route := &causeRoute{Cause: &report.Cause{Site: &report.Site{Func: "github.com/jackc/pgx/v5/pgconn.(*PgConn).Exec", CalledFrom: &report.Caller{Func: "main.page", Calls: calls}}}}
		if l := seriesAdviceOf(route); l == nil || l.name != want {
			t.Errorf("advice of %+v, want that of %s", l, want)
		}
		check.Equal(t, peerAdviceOf(route).name, "pgx", "advice on a single call by %s", calls)
	}
}
