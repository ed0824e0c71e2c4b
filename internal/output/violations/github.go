package violations

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/whylate/whylate/internal/judge/budget"
	"github.com/whylate/whylate/internal/output/termtext"
)

// WriteGitHub writes violations as workflow commands, which GitHub shows next to the lines of a change. root is the checkout's
// directory; only the text names files outside of it.
func WriteGitHub(w io.Writer, r *budget.Result, root string) error {
	out := bufio.NewWriter(w)
	for i := range r.Violations {
		v := &r.Violations[i]
		props := []string{}
		if line := v.Site.OwnLine(); line != nil { // a dependency's file is not in the checkout
			if file, ok := relativePath(line.File, root); ok {
				props = append(props, "file="+escapeProperty(file))
				if line.Line > 0 {
					props = append(props, fmt.Sprintf("line=%d", line.Line))
				}
			}
		}
		title := "whylate: " + v.Code
		if v.Metric != "" {
			title += " " + v.Metric
		}
		props = append(props, "title="+escapeProperty(title))
		fmt.Fprintf(out, "::%s %s::%s\n", severityWord(v.Severity, "error", "warning", "notice"), strings.Join(props, ","), escapeData(v.Text))
	}
	return out.Flush()
}

// escapeData and escapeProperty escape a text for a workflow command (toolkit's command.ts: % first, then line breaks; in
// properties also the separators, so that no :: of a name ends them). Other characters that a terminal would interpret become
// escapes.
func escapeData(s string) string {
	return termtext.Escape(strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(s))
}

func escapeProperty(s string) string {
	return strings.NewReplacer(":", "%3A", ",", "%2C").Replace(escapeData(s))
}
