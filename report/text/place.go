package text

import (
	"github.com/whylate/whylate/internal/words"
	"github.com/whylate/whylate/report"
)

// place is a site in at most max columns.
func place(s *report.Site, max int) []span {
	switch fn, pos := words.Parts(s, max); {
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
