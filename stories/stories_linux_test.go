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

// problems returns the parts of a result that contradict the claim.
func (c *claim) problems(r *stage.Result) (errs []error) {
	for _, a := range r.Arms {
		if !a.Right {
			errs = append(errs, fmt.Errorf("%s: found %+v, expected %+v", a.Name, a.Finding, a.Expected))
		}
	}
	b := r.Arm(c.before)
	if b == nil {
		return append(errs, fmt.Errorf("no arm %s", c.before))
	}
	if !c.code.MatchString(string(b.Finding.Code)) || !c.site.MatchString(b.Finding.Site) {
		errs = append(errs, fmt.Errorf("%s: found %+v, want %s at %s", b.Name, b.Finding, c.code, c.site))
	}
	for _, code := range c.loud {
		if !slices.Contains(b.Loud, code) {
			errs = append(errs, fmt.Errorf("%s: loud are %v, and %s is not", b.Name, b.Loud, code))
		}
	}
	if b.Share < c.share {
		errs = append(errs, fmt.Errorf("%s: %.2f of the requests' time, want %.2f; %s", b.Name, b.Share, c.share, b.Counted))
	}
	if r.Factor < c.factor {
		errs = append(errs, fmt.Errorf("before by after is %.3g, want %.3g", r.Factor, c.factor))
	}
	if off := math.Abs(float64(r.Predicted)/float64(max(1, r.Measured)) - 1); c.predictionError > 0 && off > c.predictionError {
		errs = append(errs, fmt.Errorf("p50 of %d ns predicted, %d measured", r.Predicted, r.Measured))
	}
	return errs
}

var withHealthy = flag.Bool("healthy", true, "TestStories: run each story with its fault disabled as well")

// TestStories runs each story with its real servers: explain without a hint must name the fault, and the fix must have the
// claimed effect. With the fault disabled the same claims must fail: they are no claims about the machine. A run in which other
// processes disturb an arm is no proof of the contrary, so two of three runs must be right; if the first is, it is the only one.
func TestStories(t *testing.T) {
	testfull.Need(t, "real servers, a cgroup quota, and a machine that does nothing else")
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			if err := s.need(); err != nil {
				t.Skip(err)
			}
			c := claims[s.name]
			run := func(healthy bool) (*stage.Result, []error) {
				r, err := runStory(t.Context(), s.run, stage.Options{Short: true, Healthy: healthy, Log: t.Output()})
				if err != nil {
					t.Fatal(err)
				}
				if r.Void != "" && !healthy {
					t.Skip(r.Void)
				}
				return r, c.problems(r)
			}
			right, runs := 0, 0
			for runs < 3 && right < 2 && runs-right < 2 && (runs != 1 || right == 0) {
				runs++
				if _, errs := run(false); len(errs) == 0 {
					right++
				} else {
					t.Logf("run %d is wrong: %v", runs, errors.Join(errs...))
				}
			}
			if runs-right > 1 {
				t.Errorf("right in %d of %d runs", right, runs)
			}
			if !*withHealthy {
				return
			}
			if r, errs := run(true); len(errs) == 0 {
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
	if errs := c.problems(right()); len(errs) > 0 {
		t.Errorf("%v", errs)
	}
	for name, change := range map[string]func(*stage.Result){
		"not right":    func(r *stage.Result) { r.Arms[0].Right = false },
		"another code": func(r *stage.Result) { r.Arms[0].Finding.Code = "WL2005" },
		"another line": func(r *stage.Result) {
			r.Arms[0].Finding.Site = "github.com/bsm/sarama-cluster.(*Consumer).release consumer.go:420"
		},
		"not told":      func(r *stage.Result) { r.Arms[0].Loud = nil },
		"little of it":  func(r *stage.Result) { r.Arms[0].Share = 0.1 },
		"little is won": func(r *stage.Result) { r.Factor = 1.1 },
		"predicted far": func(r *stage.Result) { r.Predicted = 200 },
		"no such arm":   func(r *stage.Result) { r.Arms[0].Name = "x" },
	} {
		r := right()
		if change(r); len(c.problems(r)) == 0 {
			t.Errorf("%s: there are no problems", name)
		}
	}
}
