package acceptance_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// topicsPage says what may be said about each recording.
const topicsPage = "internal/acceptance/testdata/topics.txt"

// A topicTable has the topics that sentences can be about, and those that are true of each recording.
type topicTable struct {
	names    []string
	patterns map[string]*regexp.Regexp
	allowed  map[string][]string // by recording
	required map[string][]string
}

func readTopics(text string) (*topicTable, error) {
	table := &topicTable{patterns: map[string]*regexp.Regexp{}, allowed: map[string][]string{}, required: map[string][]string{}}
	for i, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#":
		case words[0] == "topic" && len(words) > 2:
			_, pattern, _ := strings.Cut(line, words[1])
			re, err := regexp.Compile(strings.TrimSpace(pattern))
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			table.names = append(table.names, words[1])
			table.patterns[words[1]] = re
		default:
			allowed := []string{}
			for _, word := range words[1:] {
				topic, isRequired := strings.CutPrefix(word, "+")
				if table.patterns[topic] == nil {
					return nil, fmt.Errorf("line %d: there is no topic %q", i+1, topic)
				}
				allowed = append(allowed, topic)
				if isRequired {
					table.required[words[0]] = append(table.required[words[0]], topic)
				}
			}
			table.allowed[words[0]] = allowed
		}
	}
	return table, nil
}

var allTopics = sync.OnceValues(func() (*topicTable, error) {
	text, err := os.ReadFile(topicsPage)
	if err != nil {
		return nil, err
	}
	return readTopics(string(text))
})

// judge returns the statements about topics that are not true of a recording, and the topics of its fault about which nothing
// is said.
func (table *topicTable) judge(recording string, claims []claim) (untrue, missing []string) {
	if table.allowed[recording] == nil {
		return nil, nil // not stored
	}
	for _, name := range table.names {
		if slices.Contains(table.allowed[recording], name) {
			continue
		}
		for _, c := range claims {
			if found := table.patterns[name].FindString(unhedgedText(c.text)); found != "" {
				untrue = append(untrue, fmt.Sprintf("%s: %q, but %s is not true of it", c.key(), found, name))
			}
		}
	}
	for _, name := range table.required[recording] {
		if !slices.ContainsFunc(claims, func(c claim) bool { return table.patterns[name].MatchString(c.text) }) {
			missing = append(missing, name)
		}
	}
	return untrue, missing
}

// judgeTopics judges the first sentence about a group, and the major findings, by the topics that are true of a recording.
func judgeTopics(rep *report.Report, g *report.Group, recording string) (untrue, missing []string) {
	table, err := allTopics()
	if err != nil {
		return []string{err.Error()}, nil
	}
	claims := majorClaims(rep, false)
	if c := firstSentence(rep, g); c != nil {
		claims = append([]claim{*c}, claims...)
	}
	return table.judge(recording, claims)
}

// requireTopics fails the test if the table lacks a recording.
func requireTopics(t *testing.T, recording string) {
	t.Helper()
	check.True(t, must.Have(allTopics())(t).allowed[recording] != nil, "%s has no line for %s", topicsPage, recording)
}

// TestTopics: a statement about another topic is untrue unless it has a hedge, and the topic of a fault must occur.
func TestTopics(t *testing.T) {
	table := must.Have(readTopics("topic deadline until a deadline passes\ntopic peer \\ba peer\\b\na +peer\nb peer deadline\nc\n"))(t)
	claims := []claim{{text: "waiting for a peer, until a deadline passes"}}
	for _, c := range []struct {
		recording       string
		claims          []claim
		untrue, missing int
	}{
		{"a", claims, 1, 0}, {"b", claims, 0, 0}, {"c", claims, 2, 0}, {"a", nil, 0, 1},
		{"c", []claim{{text: "perhaps waiting for a peer"}}, 0, 0},
	} {
		if untrue, missing := table.judge(c.recording, c.claims); len(untrue) != c.untrue || len(missing) != c.missing {
			t.Errorf("%s: untrue %q, missing %q", c.recording, untrue, missing)
		}
	}
	for _, wrong := range []string{"a peer", "topic peer ("} {
		if _, err := readTopics(wrong); err == nil {
			t.Errorf("%q is read without an error", wrong)
		}
	}
}
