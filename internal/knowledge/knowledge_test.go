package knowledge

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestTable: every line of functions.tsv has its columns and known roles, and no pattern has two lines.
func TestTable(t *testing.T) {
	if _, err := parseLines(functionsText); err != nil {
		t.Error(err)
	}
}

// TestRoles: roles.tsv has a name and a meaning for each constant of roles.go, in the same order, and a line of
// functions.tsv uses each role that does not follow from the form of a name.
func TestRoles(t *testing.T) {
	file := must.Have(parser.ParseFile(token.NewFileSet(), "roles.go", nil, 0))(t)
	var constants []string
	ast.Inspect(file, func(n ast.Node) bool {
		if decl, ok := n.(*ast.GenDecl); ok && decl.Tok == token.CONST {
			for _, spec := range decl.Specs {
				constants = append(constants, strings.ToLower(spec.(*ast.ValueSpec).Names[0].Name))
			}
		}
		return true
	})
	constants = constants[1 : len(constants)-1]                                                   // without resolved and roleCount
	used := SetOf(Stdlib, NonStdlib, GRPCMethod, Fetch, Connecting, Pause, Constructor, DataCopy) // of formRoles
	for _, l := range must.Have(parseLines(functionsText))(t) {
		used = used.Union(l.add)
	}
	n := 0
	for number, columns := range rows(rolesText) {
		check.True(t, len(columns) == 2 && columns[1] != "", "roles.tsv:%d: want a name and a meaning", number)
		must.True(t, n < len(constants) && strings.ReplaceAll(columns[0], "-", "") == constants[n],
			"roles.tsv:%d: %s is not the next constant of roles.go", number, columns[0])
		if n++; !used.Has(Role(n)) {
			t.Errorf("no function has the role %s", columns[0])
		}
	}
	check.True(t, n == len(constants), "roles.tsv has %d roles, roles.go %d", n, len(constants))
}

// TestParseLinesErrors: a fault in a line is reported with its number.
func TestParseLinesErrors(t *testing.T) {
	for text, want := range map[string]string{
		"a.B\tmutexes\tv1\n":                  `line 1: a.B: unknown role "mutexes"`,
		"# x\n\na.B\tmutex\n":                 "line 3: a.B: want pattern, roles, source",
		"a.B\tmutex\tv1\nc.D\tmutex\t\tx\n":   "line 2: c.D: want pattern, roles, source",
		"a.B\tmutex\tv1\na.B\t-mutex\tv1\n":   "line 2: a.B: the pattern has two lines",
		"a.B\tmutex -resolved\tv1\tsee a.C\n": `unknown role "resolved"`,
	} {
		if _, err := parseLines(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestMatch: which lines of a table change a name, and that no line is missed where prefixes begin with each other.
func TestMatch(t *testing.T) {
	table := newTable(must.Have(parseLines(strings.Join([]string{
		"a/b.F\tmutex\tv1",
		"a…\tonce\tv1",
		"a/b.…\tlogger\tv1",
		"a/b.G…\t-once dns\tv1",
		"a/c.…\ttls\tv1",
		"….Serve\thandler-caller\tv1",
		"…x…y).Run\taccept\tv1",
		"z…mid…\tpoller\tv1",
	}, "\n")))(t))
	for name, want := range map[string][]Role{
		"a/b.F":        {Mutex, Once, Logger},
		"a/b.G":        {Logger, DNS},
		"a/b.GG":       {Logger, DNS},
		"a/b.H.Serve":  {Once, Logger, HandlerCaller},
		"a/ba.F":       {Once},
		"a/d.F":        {Once},
		"b.Serve":      {HandlerCaller},
		"b.Server":     {},
		"a/x2(*y).Run": {Once, Accept},
		"y).x.Run":     {},
		"z.mid.end":    {Poller},
		"z.end":        {},
		"":             {},
	} {
		if got := table.applyTo(name, Roles{}); got != SetOf(want...) {
			t.Errorf("%q has the roles %v, want %v", name, names(got), names(SetOf(want...)))
		}
	}
}

// names returns the names of the roles of a set.
func names(s Roles) (list []string) {
	for r := Role(1); r < roleCount; r++ {
		if s.Has(r) {
			list = append(list, roleNames()[r])
		}
	}
	return list
}

// TestOf: the roles of functions that several lines and forms of names describe.
func TestOf(t *testing.T) {
	for fn, want := range map[string]string{
		"net/http.(*conn).serve":                                             "stdlib http1-connection client-call deadline http-timeout",
		"net/http.(*Server).Serve":                                           "stdlib known-server deadline http-timeout",
		"internal/poll.(*FD).Accept":                                         "stdlib client-wait fetch",
		"golang.org/x/net/http2.(*serverConn).runHandler":                    "non-stdlib http2-stream handler-root protocol-library",
		"golang.org/x/net/http2.(*serverConn).writeFrameAsync":               "non-stdlib client-wait protocol-library",
		"google.golang.org/grpc/internal/transport.NewServerTransport.func2": "non-stdlib client-wait protocol-library",
		"github.com/quic-go/quic-go.(*connection).run":                       "non-stdlib event-loop",
		"example.com/pb._Orders_Place_Handler.func1":                         "non-stdlib grpc-method",
		"example.com/q.(*Queue).NextItem":                                    "non-stdlib fetch",
		"example.com/db.connectTo":                                           "non-stdlib connecting",
		"example.com/mail.(*Dialer).DialAndSend":                             "non-stdlib",
		"github.com/sasha-s/go-deadlock.(*Mutex).Lock":                       "stdlib",
		"github.com/sasha-s/go-deadlock.(*lockOrder).preLock":                "non-stdlib",
		"github.com/benbjohnson/clock.(*clock).Sleep":                        "pause stdlib",
		"github.com/coreos/go-oidc/v3/oidc.NewProvider":                      "non-stdlib constructor",
		"example.com/cloud/config.LoadDefaultConfig":                         "non-stdlib constructor",
		"example.com/cloud.(*Client).NewReader":                              "non-stdlib",
		"example.com/cloud.NewSession":                                       "non-stdlib",
		"example.com/cloud.(*Session).NewClient":                             "non-stdlib",
		"main.main":                                                          "non-stdlib",
	} {
		expected := strings.Fields(want)
		got := names(Of(fn))
		slices.Sort(got)
		slices.Sort(expected)
		check.True(t, slices.Equal(got, expected), "%s has the roles %v, want %v", fn, got, expected)
		check.True(t, Of(fn) == functions().applyTo(fn, formRoles(fn)), "the roles of %s that are kept differ from those of the table", fn)
	}
}

// BenchmarkOf measures a name that was looked up before.
func BenchmarkOf(b *testing.B) {
	for b.Loop() {
		Of("github.com/example/service/internal/store.(*Store).Get")
	}
}
