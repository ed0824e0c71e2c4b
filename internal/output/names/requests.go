package names

import (
	"cmp"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// Request returns the noun for a request of a group: request, message, job, iteration, call or run.
func Request(g *report.Group) string { return cmp.Or(termtext.Head(g.Unit, 20), g.Kind.RequestNoun()) }

// Requests returns the plural of Request.
func Requests(g *report.Group) string { return Request(g) + "s" }

// CountRequests returns n with the noun for the requests of a group.
func CountRequests(g *report.Group, n int) string {
	return words.Count(n, Request(g), Requests(g))
}

// CountAll returns how many requests, and units with other nouns, groups have: "517 requests, 249 iterations, 1 run".
func CountAll(groups []report.Group) string {
	var nouns []string
	counts := map[string]int{}
	for i := range groups {
		noun := Request(&groups[i])
		if counts[noun] += groups[i].Count; groups[i].Count > 0 && !slices.Contains(nouns, noun) {
			nouns = append(nouns, noun)
		}
	}
	if len(nouns) == 0 {
		return words.Count(0, "request", "requests")
	}
	if i := slices.Index(nouns, "request"); i > 0 { // clients wait for them
		nouns = slices.Insert(slices.Delete(nouns, i, i+1), 0, "request")
	}
	texts := make([]string, len(nouns))
	for i, noun := range nouns {
		texts[i] = words.Count(counts[noun], noun, noun+"s")
	}
	return strings.Join(texts, ", ")
}
