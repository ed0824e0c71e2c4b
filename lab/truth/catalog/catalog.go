// Package catalog has services that are late for one known reason each. The reason is injected, stated
// (Truth), measured by the service while it serves (Env.Blame), and can be removed (Env.Fixed). So a
// diagnosis, its share of the time and a predicted gain can be checked against a source outside the
// tool.
package catalog

import (
	"embed"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/whylate/whylate/lab/truth/wire"
)

// Site is a function and line as a trace shows them. File is relative to the repository's root; in traces it follows the
// directory of the build.
type Site struct {
	Func string `json:"func"`
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"` // 0: any line of the function is right
}

// Truth is what a diagnosis of the service must report for its slow group.
type Truth struct {
	Kind     string   `json:"kind"`                // of the slow group: http1, http2, grpc, goroutine, loop, task
	Group    string   `json:"group"`               // the function or task that names the slow group; "" where only the standard library is on its stacks
	OrGroups []string `json:"or_groups,omitempty"` // other names that are right
	Cause    string   `json:"cause"`               // the first cause; "" for the service with nothing wrong
	// Causes that are right as well because the machine decides which of them occurs (gc-assist,
	// gc-wait).
	OrCauses []string `json:"or_causes,omitempty"`
	Site     Site     `json:"site"`
	OrSites  []Site   `json:"or_sites,omitempty"`  // other sites that are right
	UserSite *Site    `json:"user_site,omitempty"` // the service's line, if Site is in a library
	Via      []string `json:"via,omitempty"`       // waits that lead to the site, from the request on: lock, chan, select, cond, waitgroup
	Second   *Site    `json:"second,omitempty"`    // the site of the second cause, where two faults are injected

	Injected   string `json:"injected"`              // in words
	InjectedNS int64  `json:"injected_ns,omitempty"` // nominal time of one injection; a request can meet several in a queue
	// LeastNS is the minimum latency of the slow group in the faulty service, on any
	// machine.
	LeastNS int64 `json:"least_ns,omitempty"`

	// Share is the share of the slow group's time that the cause has, over all sites and wait chains; with a Second fault, at
	// Site alone. It is nominal if the construction of the service fixes it; ShareMin is a bound if the share varies with the
	// machine. The service measures the share of each run unless Unmeasured: it cannot measure all of the delay, or measures
	// other delays too.
	Share      float64 `json:"share,omitempty"`
	ShareMin   float64 `json:"share_min,omitempty"`
	Unmeasured bool    `json:"unmeasured,omitempty"`

	// Doubt explains why a right diagnosis may differ, for services that are known to allow
	// it.
	Doubt string `json:"doubt,omitempty"`
}

// Path is one kind of request that the load generator sends.
type Path struct {
	Path   string `json:"path"` // of a URL; for gRPC the method
	Weight int    `json:"weight"`
	Slow   bool   `json:"slow"` // belongs to the slow group
	// Listener is the name of another listener of the service that serves it.
	Listener string `json:"listener,omitempty"`
	// Client is the behaviour of the client: "" for none, "slow-read", "slow-send", "stream" (reads to the end), "echo"
	// (upgrades, then sends lines).
	Client string `json:"client,omitempty"`
}

// Load is the load for which the truth is stated. With Rate it is an open loop with this many requests a
// second, otherwise a closed loop of Conns connections, which pause for Rest between a response and the next
// request.
type Load struct {
	Conns int           `json:"conns"`
	Rate  float64       `json:"rate,omitempty"`
	Rest  time.Duration `json:"rest_ns,omitempty"`
	Paths []Path        `json:"paths"`
}

// Place has the CPUs and quota that a service needs if its fault is in its environment. Recordings of such a service also have
// host samples.
type Place struct {
	OfCPUs int `json:"of_cpus,omitempty"` // CPUs that the machine must have at least
	CPUs   int `json:"cpus,omitempty"`    // CPUs that the service may run on, by its affinity; 0: all
	// QuotaCPUs is the quota of the service's own cgroup; 0: none.
	QuotaCPUs float64 `json:"quota_cpus,omitempty"`
}

// Service is one entry.
type Service struct {
	Name  string `json:"name"`
	Doc   string `json:"doc"`
	Proto string `json:"proto"` // http1, h2, grpc, or none: it makes its own work
	Load  Load   `json:"load"`
	Procs int    `json:"procs,omitempty"` // GOMAXPROCS that the shape needs; 0: any
	// Place is the service's environment; nil: any. The fix removes it, and Procs too.
	Place *Place `json:"place,omitempty"`
	Truth Truth  `json:"truth"`
	Fix   string `json:"fix"` // what -fix changes
	// FixAtMost is the effect of the fix: the median latency of the slow group falls to this part of the
	// faulty one or below. With FixInTail it is the 90th percentile, if only some requests meet the fault. 0:
	// unknown.
	FixAtMost float64 `json:"fix_at_most,omitempty"`
	FixInTail bool    `json:"fix_in_tail,omitempty"`
	// Findings has the expected findings; nil for a service that is not judged.
	Findings *Findings `json:"findings,omitempty"`

	start func(*Env) (*Parts, error)
}

// Parts is a started service.
type Parts struct {
	HTTP        http.Handler            // nil for a service without HTTP
	GRPC        wire.Methods            // nil for a service without gRPC
	GRPCOptions []grpc.ServerOption     // with GRPC
	Extra       map[string]http.Handler // more listeners, by name
}

// Start starts the service. Background goroutines run until the process ends; child processes end with
// Env.Close.
func (s *Service) Start(e *Env) (*Parts, error) {
	p, err := s.start(e)
	if err != nil {
		return nil, fmt.Errorf("starting service %s: %w", s.Name, err)
	}
	return p, nil
}

//go:embed *.go consumer/*.go
var sources embed.FS

const (
	packagePath = "github.com/whylate/whylate/lab/truth/catalog"
	packageDir  = "lab/truth/catalog"
)

// All returns every service. It finds the line of a service's site in the source by the comment "truth: site
// NAME".
func All() ([]*Service, error) {
	var all []*Service
	for _, family := range [][]*Service{waitServices(), lockServices(), queueServices(), networkServices(), processServices(),
		runtimeServices(), streamServices(), shapeServices(), backgroundServices(), schedulingServices(), gainServices(), memoryServices(), messageServices()} {
		all = append(all, family...)
	}
	marks, err := markers()
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if err := s.completeTruth(marks); err != nil {
			return nil, err
		}
	}
	if err := attachFindings(all); err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b *Service) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// Find returns one service.
func Find(name string) (*Service, error) {
	all, err := All()
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if s.Name == name {
			return s, nil
		}
	}
	return nil, fmt.Errorf("no service %q; list shows them", name)
}

func (s *Service) completeTruth(marks map[string]Site) error {
	if m, ok := marks["site "+s.Name]; ok {
		if s.Truth.Site.Func == "" {
			s.Truth.Site = m
			if s.Truth.Cause == "cpu" {
				// A CPU run has boundaries and samples, not one line, and they may be in the loop that
				// computes.
				s.Truth.Site.Line = 0
				s.Truth.OrSites = append(s.Truth.OrSites, Site{Func: packagePath + ".spin"})
			}
		} else {
			s.Truth.UserSite = &m
		}
	} else if s.Truth.Cause != "" && s.Truth.Site.Func == "" {
		return fmt.Errorf("service %s: no line is marked as its site", s.Name)
	}
	if m, ok := marks["second "+s.Name]; ok {
		s.Truth.Second = &m
	}
	if g := s.Truth.Group; g != "" && s.Truth.Kind != "task" {
		s.Truth.Group = packagePath + "." + g
	}
	for i, g := range s.Truth.OrGroups {
		if !strings.Contains(g, "/") {
			s.Truth.OrGroups[i] = packagePath + "." + g
		}
	}
	return nil
}

// markers returns the sites of all comments "// truth: KEY", by key. A site must be
// in a named function: a closure's name contains a number that the compiler
// chooses.
func markers() (map[string]Site, error) {
	found := map[string]Site{}
	for _, dir := range []string{".", "consumer"} {
		entries, err := sources.ReadDir(dir)
		if err != nil {
			return nil, fmt.Errorf("reading the embedded source: %w", err)
		}
		for _, ent := range entries {
			if ent.IsDir() || strings.HasSuffix(ent.Name(), "_test.go") {
				continue
			}
			path := ent.Name()
			if dir != "." {
				path = dir + "/" + path
			}
			if err := markersIn(path, dir, found); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

func markersIn(path, dir string, found map[string]Site) error {
	src, err := sources.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the embedded source: %w", err)
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, src, parser.ParseComments)
	if err != nil {
		return fmt.Errorf("parsing the embedded source: %w", err)
	}
	pkg := packagePath
	if dir != "." {
		pkg += "/" + dir
	}
	for _, group := range f.Comments {
		for _, c := range group.List {
			keys, ok := strings.CutPrefix(c.Text, "// truth: ")
			if !ok {
				continue
			}
			fn, err := enclosingFunc(f, c.Pos())
			if err != nil {
				return fmt.Errorf("%s: %w", fset.Position(c.Pos()), err)
			}
			for key := range strings.SplitSeq(keys, ", ") {
				if _, twice := found[key]; twice {
					return fmt.Errorf("%s: %q is marked twice", fset.Position(c.Pos()), key)
				}
				found[key] = Site{Func: pkg + "." + fn, File: packageDir + "/" + path, Line: fset.Position(c.Pos()).Line}
			}
		}
	}
	return nil
}

func enclosingFunc(f *ast.File, position token.Pos) (string, error) {
	for _, d := range f.Decls {
		fd, ok := d.(*ast.FuncDecl)
		if !ok || position < fd.Pos() || position > fd.End() {
			continue
		}
		if fd.Recv == nil {
			return fd.Name.Name, nil
		}
		switch t := fd.Recv.List[0].Type.(type) {
		case *ast.StarExpr:
			return fmt.Sprintf("(*%s).%s", t.X.(*ast.Ident).Name, fd.Name.Name), nil
		case *ast.Ident:
			return t.Name + "." + fd.Name.Name, nil
		}
	}
	return "", errors.New("a marker outside of a function")
}
