// Package violations writes the results of a check as text, for GitHub and as SARIF.
package violations

import (
	"bufio"
	"io"
	"path"
	"strings"

	"github.com/whylate/whylate/internal/judge/budget"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/report"
)

// maxLine bounds a line of text: names may have any length.
const maxLine = 1000

// WriteText writes one line for each violation.
func WriteText(w io.Writer, r *budget.Result) error {
	out := bufio.NewWriter(w)
	for i := range r.Violations {
		v := &r.Violations[i]
		out.WriteString(termtext.Head(v.Code+" "+strings.Join(strings.Fields(v.Text), " "), maxLine))
		out.WriteByte('\n')
	}
	return out.Flush()
}

// severityWord returns the word that a tool has for a severity, one of three; high for an unknown severity, low also for info.
func severityWord(severity report.Severity, high, medium, low string) string {
	switch severity {
	case report.SeverityMedium:
		return medium
	case report.SeverityLow, report.SeverityInfo:
		return low
	}
	return high
}

// relativePath returns a file's path relative to root, with slashes, if the file is in root or its path is relative already. It is false for any
// other file.
func relativePath(file, root string) (string, bool) {
	file, root = withSlashes(file), strings.TrimSuffix(withSlashes(root), "/")
	if rest, ok := strings.CutPrefix(file, root+"/"); ok && root != "" {
		file = rest
	}
	if file == "" || isAbsolute(file) {
		return "", false
	}
	file = path.Clean(file)
	return file, file != ".." && !strings.HasPrefix(file, "../")
}

// withSlashes returns a path of Windows with slashes, on any system: traces are copied between systems.
func withSlashes(file string) string {
	if hasDrive(file) || strings.HasPrefix(file, `\\`) {
		return strings.ReplaceAll(file, `\`, "/")
	}
	return file
}

func hasDrive(file string) bool {
	return len(file) > 2 && file[1] == ':' && (file[2] == '\\' || file[2] == '/') && (file[0]|0x20 >= 'a' && file[0]|0x20 <= 'z')
}

func isAbsolute(file string) bool { return strings.HasPrefix(file, "/") || hasDrive(file) }
