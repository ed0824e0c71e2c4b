package main

import (
	"regexp"
	"strings"
)

// functionWords are prepositions, pronouns, adverbs and participles. A name that consists of one of them lacks its noun.
var functionWords = wordSet(`
	about above across again against alien alike alone along already also among anew another apart are around aside asked at
	away be became because been begun behind being below beside besides between beyond both by came come each either else even
	ever every few fewer given goes gone had handed has have he her here him his how is it its just kept known later least left
	less many mean meant meanwhile met mine more most much near neither never nobody none not nothing now of once only other
	others over own owns perhaps quite ran rather said same seen served several since some somebody soon still such taken than
	that their theirs them then there these they those though through thus till together told too toward towards under unless
	until unto upon very was went were what where whether which while who whom whose why within without yet`)

// phrases are words that the documentation of Go, Linux and OpenTelemetry does not use where a term of the field exists.
// CONTRIBUTING.md says what to write instead.
var phrases = regexp.MustCompile(`(?i)\b(?:` + strings.Join([]string{
	`tells?`, `telling`, `told`,
	`somebody`, `nobody`, `whoever`, `whom`,
	`who (?:asks|waits|works|reads|watch|has|had|gives|holds|only|does|did)`,
	`what (?:it|they|is|was|are|others|follows|somebody)`,
	`that there (?:is|are)`, `(?:is|are) made`,
	`stretch(?:es)?`, `stands?`, `standing`, `stood`, `lies`, `lay`,
	`beside`, `meanwhile`, `alike`, `anew`, `at hand`, `of its own`, `by itself`, `one and all`,
	`takes? note`, `goes on`, `go on`, `asked (?:for|about)`,
}, "|") + `)\b`)

// wordSet returns the set of the words of a text.
func wordSet(text string) map[string]bool {
	set := make(map[string]bool)
	for _, word := range strings.Fields(text) {
		set[word] = true
	}
	return set
}
