package violations

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/finding"
	"github.com/whylate/whylate/internal/judge/budget"
	"github.com/whylate/whylate/internal/output/jsontext"
	"github.com/whylate/whylate/report"
)

// artifactOf returns a file as a URI reference (RFC 3986): relative to the checkout if it is in root or its path is relative, else a file: URL.
func artifactOf(file, root string) sarifArtifact {
	if rel, ok := relativePath(file, root); ok {
		u := (&url.URL{Path: rel}).EscapedPath()
		if head, _, _ := strings.Cut(u, "/"); strings.Contains(head, ":") {
			u = "./" + u // otherwise the text before the colon would be a scheme: section 4.2
		}
		return sarifArtifact{URI: u, Base: "%SRCROOT%"}
	}
	file = withSlashes(file)
	if hasDrive(file) {
		file = "/" + file
	}
	return sarifArtifact{URI: "file://" + (&url.URL{Path: file}).EscapedPath()}
}

// The written parts of SARIF 2.1.0 (OASIS standard, 27 March 2020), with the names of its properties.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool        sarifTool         `json:"tool"`
		Invocations []sarifInvocation `json:"invocations"`
		ColumnKind  string            `json:"columnKind"`
		Results     []sarifResult     `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		URI     string      `json:"informationUri"`
		Version string      `json:"version,omitempty"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID    string        `json:"id"`
		Name  string        `json:"name,omitempty"`
		Short sarifMessage  `json:"shortDescription"`
		Full  *sarifMessage `json:"fullDescription,omitempty"`
		URI   string        `json:"helpUri,omitempty"`
		Help  *sarifHelp    `json:"help,omitempty"`
	}
	sarifHelp struct {
		Text     string `json:"text"`
		Markdown string `json:"markdown"`
	}
	sarifInvocation struct {
		OK    bool                `json:"executionSuccessful"`
		Notes []sarifNotification `json:"toolExecutionNotifications,omitempty"`
	}
	sarifNotification struct {
		Level   string       `json:"level"`
		Message sarifMessage `json:"message"`
	}
	sarifMessage struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID       string            `json:"ruleId"`
		RuleIndex    int               `json:"ruleIndex"`
		Level        string            `json:"level"`
		Message      sarifMessage      `json:"message"`
		Locations    []sarifLocation   `json:"locations"`
		Related      []sarifLocation   `json:"relatedLocations,omitempty"`
		Fingerprints map[string]string `json:"partialFingerprints"`
	}
	sarifLocation struct {
		Physical sarifPhysical  `json:"physicalLocation"`
		Logical  []sarifLogical `json:"logicalLocations,omitempty"`
		Message  *sarifMessage  `json:"message,omitempty"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   *sarifRegion  `json:"region,omitempty"`
	}
	sarifArtifact struct {
		URI  string `json:"uri"`
		Base string `json:"uriBaseId,omitempty"`
	}
	sarifRegion struct {
		StartLine int `json:"startLine"`
	}
	sarifLogical struct {
		Name string `json:"fullyQualifiedName"`
		Kind string `json:"kind"`
	}
)

// sarifSchema is the URL by which the standard names its schema.
const sarifSchema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"

// fingerprintKey names the method of fingerprints; its number changes if the method changes.
const fingerprintKey = "whylate/v1"

// locationOf returns the location of a site, or of the input if there is none.
func locationOf(s *report.Site, input, root string) sarifLocation {
	l := sarifLocation{Physical: sarifPhysical{Artifact: artifactOf(input, root)}}
	if s == nil || s.File == "" {
		return l
	}
	l.Physical.Artifact = artifactOf(s.File, root)
	if s.Line > 0 {
		l.Physical.Region = &sarifRegion{s.Line}
	}
	if s.Func != "" {
		l.Logical = []sarifLogical{{s.Func, "function"}}
	}
	return l
}

// WriteSARIF writes violations as a SARIF 2.1.0 log. root is the checkout's directory: files in it are named relative to it. A
// violation without a site gets the checked input as its location, because viewers ignore results without a location.
func WriteSARIF(w io.Writer, r *budget.Result, root, version string) error {
	run := sarifRun{
		Tool:        sarifTool{sarifDriver{Name: "whylate", URI: "https://github.com/whylate/whylate", Version: version, Rules: []sarifRule{}}},
		Invocations: []sarifInvocation{{OK: true}}, ColumnKind: "utf16CodeUnits", Results: []sarifResult{},
	}
	for _, n := range r.Notes {
		run.Invocations[0].Notes = append(run.Invocations[0].Notes, sarifNotification{"warning", sarifMessage{n.Text}})
	}
	for i := range r.Violations {
		v := &r.Violations[i]
		rules := run.Tool.Driver.Rules
		ruleIndex := slices.IndexFunc(rules, func(r sarifRule) bool { return r.ID == v.Code })
		if ruleIndex < 0 {
			ruleIndex = len(rules)
			run.Tool.Driver.Rules = append(rules, describeRule(v))
		}
		result := sarifResult{
			RuleID: v.Code, RuleIndex: ruleIndex, Level: severityWord(v.Severity, "error", "warning", "note"), Message: sarifMessage{v.Text},
			Locations: []sarifLocation{locationOf(v.Site.OwnLine(), r.Input, root)}, Fingerprints: map[string]string{fingerprintKey: v.ID},
		}
		if v.Site != nil && v.Site.CalledFrom != nil {
			related := locationOf(v.Site, r.Input, root)
			related.Message = &sarifMessage{"where it waits, in a dependency"}
			if v.Site.Module != "" {
				related.Message.Text = strings.TrimSpace("where it waits, in " + v.Site.Module + " " + v.Site.Version)
			}
			result.Related = []sarifLocation{related}
		}
		run.Results = append(run.Results, result)
	}
	data, err := json.MarshalIndent(sarifLog{sarifSchema, "2.1.0", []sarifRun{run}}, "", "  ")
	if err == nil {
		_, err = w.Write(append(jsontext.Escape(data), '\n'))
	}
	if err != nil {
		return fmt.Errorf("writing SARIF: %w", err)
	}
	return nil
}

// rulesPage is the documentation of all rules.
const rulesPage = "https://github.com/whylate/whylate/blob/main/docs/findings.md"

// describeRule describes the rule of a violation: a finding's rule with its documentation, which viewers show; another violation's with a title only.
func describeRule(v *budget.Violation) sarifRule {
	r, ok := finding.RuleByCode(finding.All(), report.RuleCode(v.Code))
	if !ok {
		return sarifRule{ID: v.Code, Short: sarifMessage{cmp.Or(ruleTitles[v.Kind], "Finding "+v.Code)}}
	}
	return sarifRule{
		ID: string(r.Code), Name: r.Name, Short: sarifMessage{r.Summary}, Full: &sarifMessage{r.Doc.Means}, URI: rulesPage + "#" + r.Anchor(),
		Help: &sarifHelp{r.Doc.Means + "\n\n" + r.Doc.Measured + "\n\n" + r.Doc.Wrong, r.Markdown()},
	}
}

// ruleTitles are the titles of violations' rules in SARIF. A finding's rule is named by its code.
var ruleTitles = map[string]string{
	budget.KindBudget:   "A latency or a cause's share is over its budget",
	budget.KindUnknown:  "A budget cannot be judged",
	budget.KindGroup:    "What a budget is about is not there",
	budget.KindBaseline: "Requests are slower than in the baseline",
	budget.KindBack:     "A finding that was fixed is back",
}
