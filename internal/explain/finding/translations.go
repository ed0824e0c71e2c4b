package finding

import (
	"embed"
	"strings"

	"github.com/whylate/whylate/report"
)

// translations has a file for each language into which the rules are translated: a section for each rule, with its summary in the
// first line.
//
//go:embed translations/*.txt
var translations embed.FS

// Translation returns the summary and the description of a rule in a language, such as zh. ok is false if there are none.
func Translation(language string, code report.RuleCode) (summary, text string, ok bool) {
	data, err := translations.ReadFile("translations/" + language + ".txt")
	if err != nil {
		return "", "", false
	}
	_, section, ok := strings.Cut("\n"+string(data), "\n-- "+string(code)+" --\n")
	section, _, _ = strings.Cut(section, "\n-- ")
	summary, text, _ = strings.Cut(strings.TrimSpace(section), "\n")
	return summary, text, ok
}
