package text

import (
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/report"
)

// siteSpans is a site in at most max columns.
func siteSpans(s *report.Site, max int) []span {
	switch fn, pos := names.Parts(s, max); {
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

// callerSpans says from which line of the service's own code a dependency was called, in at most max columns; nil where
// that is not known.
func callerSpans(s *report.Site, max int) []span {
	lead, fn, pos := names.CalledFrom(s, max)
	switch {
	case fn+pos == "":
		return nil
	case fn != "" && pos != "":
		fn += " "
	}
	return []span{{dim, lead}, {plain, fn}, {cyan, pos}}
}

// prefixSpans puts a text before spans, if there are any.
func prefixSpans(before string, spans []span) []span {
	if len(spans) == 0 {
		return nil
	}
	return append([]span{{plain, before}}, spans...)
}
