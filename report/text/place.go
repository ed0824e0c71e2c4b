package text

import (
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/report"
)

// siteSpans returns a site in at most max columns.
func siteSpans(s *report.Site, max int) []span {
	switch fn, pos := names.SiteParts(s, max); {
	case fn == "" && pos == "":
		return nil
	case fn == "":
		return []span{{cyan, pos}}
	case pos == "":
		return []span{{plain, fn}}
	default:
		return []span{{plain, fn + " "}, {cyan, pos}}
	}
}

// callerSpans returns the line of the service's own code that called a dependency, in at most max columns; nil if it is unknown.
func callerSpans(s *report.Site, max int) []span {
	lead, fn, pos := names.CallerParts(s, max)
	switch {
	case fn+pos == "":
		return nil
	case fn != "" && pos != "":
		fn += " "
	}
	return []span{{dim, lead}, {plain, fn}, {cyan, pos}}
}

// prefixSpans puts a text before spans. It returns nil if there are no spans.
func prefixSpans(before string, spans []span) []span {
	if len(spans) == 0 {
		return nil
	}
	return append([]span{{plain, before}}, spans...)
}
