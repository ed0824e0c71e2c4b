package main

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testfull"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/stories/stage"
)

func TestMain(m *testing.M) {
	stage.Helper()
	os.Exit(m.Run())
}

// A claim is what must come of a story, with tolerances that another machine keeps, too.
type claim struct {
	before          string         // the arm with the fault
	code            *regexp.Regexp // its first finding
	site            *regexp.Regexp
	share           float64           // of the requests' time, at least
	factor          float64           // before by after, at least
	predictionError float64           // the largest error of the prediction; 0 if there is none
	loud            []report.RuleCode // findings that must be of medium or high severity, at any site
}

var claims = map[string]claim{
	"container":   {"before, loaded", regexp.MustCompile(`^WL(4001|1005)$`), regexp.MustCompile(``), 0.1, 1.05, 0, nil},
	"healthcheck": {"before", regexp.MustCompile(`^WL(1004|1005|3001)$`), regexp.MustCompile(`^$|main\.\(\*checker\)\.(debug|report|check) `), 0.2, 5, 0, nil},
	"pool":        {"before", regexp.MustCompile(`^WL1002$`), regexp.MustCompile(`main\.\(\*market\)\.(update|compute)`), 0.2, 5, 0, nil},
	"pubsub":      {"before", regexp.MustCompile(`^WL2001$`), regexp.MustCompile(`sarama-cluster\.\(\*Consumer\)\.(fetchOffsets|release) consumer\.go:(662|419)$`), 0.5, 3, 0.15, nil},
	"tso":         {"before", regexp.MustCompile(`^WL1001$`), regexp.MustCompile(`http2\.readFrameHeader|transport\.|tso\.`), 0.2, 20, 0, nil},
}

// problems returns what contradicts the claim, by the part of the claim: an arm's first finding, or a number.
func (c *claim) problems(r *stage.Result) map[string]error {
	problems := make(map[string]error)
	for _, a := range r.Arms {
		if !a.Right {
			problems[a.Name] = fmt.Errorf("found %+v, expected %+v", a.Finding, a.Expected)
		}
	}
	b := r.Arm(c.before)
	if b == nil {
		problems[c.before] = errors.New("no such arm")
		return problems
	}
	if !c.code.MatchString(string(b.Finding.Code)) || !c.site.MatchString(b.Finding.Site) {
		problems[b.Name] = fmt.Errorf("found %+v, want %s at %s", b.Finding, c.code, c.site)
	}
	for _, code := range c.loud {
		if !slices.Contains(b.Loud, code) {
			problems["loud findings"] = fmt.Errorf("%v, without %s", b.Loud, code)
		}
	}
	if b.Share < c.share {
		problems["share"] = fmt.Errorf("%.2f of the requests' time, want %.2f; %s", b.Share, c.share, b.Counted)
	}
	if r.Factor < c.factor {
		problems["before by after"] = fmt.Errorf("%.3g, want %.3g", r.Factor, c.factor)
	}
	if off := math.Abs(float64(r.Predicted)/float64(max(1, r.Measured)) - 1); c.predictionError > 0 && off > c.predictionError {
		problems["prediction"] = fmt.Errorf("p50 of %d ns, measured %d", r.Predicted, r.Measured)
	}
	return problems
}

var withHealthy = flag.Bool("healthy", true, "TestStories: run each story with its fault disabled as well")

// TestStories runs each story with its real servers: explain without a hint must name the fault, and the fix must have the
// claimed effect. With the fault disabled the same claims must fail: they are no claims about the machine. A run in which other
// processes disturb an arm is no proof of the contrary, so each part of a claim must hold in two of three runs; if all hold in the
// first, it is the only one.
func TestStories(t *testing.T) {
	testfull.Need(t, "real servers, a cgroup quota, and a machine that does nothing else")
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			if err := s.need(); err != nil {
				t.Skip(err)
			}
			c := claims[s.name]
			run := func(healthy bool) (*stage.Result, map[string]error) {
				r := must.Have(runStory(t.Context(), s.run, stage.Options{Short: true, Healthy: healthy, Log: t.Output()}))(t)
				if r.Void != "" && !healthy {
					t.Skip(r.Void)
				}
				return r, c.problems(r)
			}
			failures := make(map[string]int) // runs in which a part of the claim did not hold
			for runs := 0; runs == 0 || runs < 3 && len(failures) > 0; runs++ {
				_, problems := run(false)
				for part, err := range problems {
					t.Logf("run %d is wrong: %s: %v", runs+1, part, err)
					if failures[part]++; failures[part] > 1 {
						t.Errorf("%s is wrong in two runs", part)
					}
				}
				if t.Failed() {
					return
				}
			}
			if !*withHealthy {
				return
			}
			if r, problems := run(true); len(problems) == 0 {
				t.Errorf("the claims hold without the fault: %+v", r.Arm(c.before))
			}
		})
	}
}

// TestClaims: each story has a claim, and each part of a claim can fail.
func TestClaims(t *testing.T) {
	if len(claims) != len(stories) || slices.ContainsFunc(stories, func(s story) bool { return claims[s.name].code == nil }) {
		t.Fatal("not each story has a claim")
	}
	c := claims["pubsub"]
	c.loud = []report.RuleCode{"WL2001"}
	right := func() *stage.Result {
		return &stage.Result{Factor: 5, Predicted: 100, Measured: 96, Arms: []stage.Arm{{Name: "before", Right: true, Share: 0.8, Loud: []report.RuleCode{"WL2001"},
			Finding: stage.Place{Code: "WL2001", Site: "github.com/bsm/sarama-cluster.(*Consumer).release consumer.go:419"}}}}
	}
	if problems := c.problems(right()); len(problems) > 0 {
		t.Errorf("%v", problems)
	}
	for name, change := range map[string]func(*stage.Result){
		"not right":    func(r *stage.Result) { r.Arms[0].Right = false },
		"another code": func(r *stage.Result) { r.Arms[0].Finding.Code = "WL2005" },
		"another line": func(r *stage.Result) {
			r.Arms[0].Finding.Site = "github.com/bsm/sarama-cluster.(*Consumer).release consumer.go:420"
		},
		"not loud":       func(r *stage.Result) { r.Arms[0].Loud = nil },
		"small share":    func(r *stage.Result) { r.Arms[0].Share = 0.1 },
		"small gain":     func(r *stage.Result) { r.Factor = 1.1 },
		"wrong estimate": func(r *stage.Result) { r.Predicted = 200 },
		"no such arm":    func(r *stage.Result) { r.Arms[0].Name = "x" },
	} {
		r := right()
		if change(r); len(c.problems(r)) == 0 {
			t.Errorf("%s: there are no problems", name)
		}
	}
}
