// Screener says whether a comment has words that its readers shall not see,
// behind julienschmidt/httprouter.
//
// Faults: compile (the rules' regular expressions are compiled anew for each
// comment).
package main

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/julienschmidt/httprouter"

	"shop.example/shops/internal/run"
)

type screener struct {
	rules    []string
	compiled []*regexp.Regexp
}

func newScreener() *screener {
	s := &screener{}
	for i := range 60 {
		s.rules = append(s.rules, fmt.Sprintf(`(?i)\b(spam|s[p\W]+a[\W]*m|offer)[-_ ]{0,3}%d(st|nd|rd|th)?\b|\bcheap(er|est)?\W+(pill|watch|loan)s?%[1]d\b`, i))
	}
	for _, r := range s.rules {
		s.compiled = append(s.compiled, regexp.MustCompile(r))
	}
	return s
}

func (s *screener) screen(w http.ResponseWriter, _ *http.Request, p httprouter.Params) {
	if s.bad(p.ByName("comment")) {
		http.Error(w, "not here", http.StatusForbidden)
		return
	}
	fmt.Fprintln(w, "fine")
}

func (s *screener) bad(comment string) bool {
	comment = strings.ReplaceAll(comment, "_", " ")
	for i, r := range s.rules {
		c := s.compiled[i]
		if run.Fault("compile") {
			c = regexp.MustCompile(r)
		}
		if c.MatchString(comment) {
			return true
		}
	}
	return false
}

func main() {
	run.Parse("compile")
	r := httprouter.New()
	r.GET("/screen/:comment", newScreener().screen)
	run.ServeRequests(r)
}
