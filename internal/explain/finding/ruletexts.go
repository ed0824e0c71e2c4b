package finding

import (
	"embed"
	"fmt"
	"strings"
	"sync"

	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// A textKey identifies a text of any file: its kind and its name, such as "title sleep-polling". The kinds are title, fix,
// evidence, and phrase for a part of these.
type textKey string

// ruleTexts has a file for each rule: its documentation, and the texts of its findings. shared.txt has the texts of several
// rules, libraries.txt the advice for libraries. The first line of a file is "NAME: SUMMARY".
//
//go:embed rules/*.txt
var ruleTexts embed.FS

// textConstants replaces placeholders in the rules' texts by the constants that the rules use.
var textConstants = strings.NewReplacer(
	"{few}", fmt.Sprint(threshold.SmallSample), "{enough}", fmt.Sprint(threshold.MedianSample), "{many}", fmt.Sprint(threshold.TailSample),
	"{herd}", fmt.Sprint(process.HerdSize), "{herd time}", fmt.Sprintf("%d ms", int(process.HerdNS/1e6)), "{event}", fmt.Sprintf("%d ns", eventCostNS),
	"{hung factor}", fmt.Sprint(hungFactor), "{hung least}", words.Brief(minHungAge), "{patience}", words.Brief(threshold.PatienceNS),
)

// readSections returns the heading (the first line) of rules/NAME.txt and its sections, each of which begins with a line "--
// TITLE --".
func readSections(name string) (heading string, sections []Section) {
	data, err := ruleTexts.ReadFile("rules/" + name + ".txt")
	if err != nil {
		panic(err) // each rule must have a file: a missing one is a bug of this package
	}
	heading, body, _ := strings.Cut(textConstants.Replace(string(data)), "\n")
	for _, section := range strings.Split("\n"+body, "\n-- ")[1:] {
		title, text, _ := strings.Cut(section, " --\n")
		sections = append(sections, Section{Title: title, Text: strings.Trim(text, "\n")})
	}
	return heading, sections
}

// texts has the texts of all files, each as one line. Their sections have a kind and a name; those of the documentation have no
// name.
var texts = sync.OnceValue(func() map[textKey]string {
	out := map[textKey]string{}
	for _, file := range append(report.RuleCodes(), "shared") {
		_, sections := readSections(string(file))
		for _, s := range sections {
			if strings.Contains(s.Title, " ") {
				out[textKey(s.Title)] = strings.ReplaceAll(s.Text, "\n", " ")
			}
		}
	}
	return out
})

// textOf returns the text of a key with each {name} replaced by its value. params are pairs of a name and a value; a site is
// written as siteText writes it. An unknown key is a bug and panics.
func textOf(key textKey, params ...any) string {
	text, ok := texts()[key]
	if !ok {
		panic("no text for " + key) // a bug of this package, which TestTexts finds
	}
	pairs := make([]string, len(params))
	for i := 0; i < len(params); i += 2 {
		value := fmt.Sprint(params[i+1])
		if site, ok := params[i+1].(*report.Site); ok {
			value = siteText(site)
		}
		pairs[i], pairs[i+1] = fmt.Sprintf("{%s}", params[i]), value
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// remedyEnd ends the first remedy in a text of the kind fix. Alternatives, conditions and details follow.
const remedyEnd = "|"

// splitRemedy returns a fix without the mark remedyEnd, and its part before the first mark: the first remedy.
func splitRemedy(text string) (fix, remedy string) {
	remedy, _, _ = strings.Cut(text, remedyEnd)
	return strings.ReplaceAll(text, remedyEnd, ""), remedy
}

// evidenceOf returns evidence: a text with its parameters, and the value in it with its unit.
func evidenceOf[N int | int64 | float64](key textKey, value N, unit string, params ...any) report.Evidence {
	return report.Evidence{Text: textOf(key, params...), Value: float64(value), Unit: unit}
}

// statementOf returns evidence without a number.
func statementOf(key textKey, params ...any) report.Evidence {
	return evidenceOf(key, 0, "", params...)
}

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
