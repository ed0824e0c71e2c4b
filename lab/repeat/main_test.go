package main

import (
	"testing"

	"github.com/whylate/whylate/report"
)

// TestAgreement: facts are no answers, and the most frequent answer counts.
func TestAgreement(t *testing.T) {
	answer := func(severity report.Severity, line int) string {
		return answerOf(&report.Report{Findings: []report.Finding{
			{Code: "WL5001", Severity: report.SeverityInfo}, {Code: "WL2005", Severity: severity, Site: &report.Site{Func: "main.get", Line: line}},
		}})
	}
	if got := answer(report.SeverityHigh, 7); got != "high WL2005 at main.get:7" {
		t.Errorf("answer %q", got)
	}
	answers := []string{answer(report.SeverityHigh, 7), answer(report.SeverityLow, 7), answer(report.SeverityHigh, 8), answer(report.SeverityHigh, 7), answerOf(&report.Report{})}
	if n := largestAgreement(answers); n != 2 {
		t.Errorf("%d of %q agree", n, answers)
	}
}
