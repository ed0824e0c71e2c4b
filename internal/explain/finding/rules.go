package finding

import (
	"slices"
	"strings"
	"sync"

	"github.com/whylate/whylate/report"
)

// Load reads the texts of findings and libraries, which takes some milliseconds, before they are needed.
func Load() { texts(); libraries() }

// All returns every rule, ordered by code.
func All() []Rule { return slices.Clone(documentedRules()) }

// Undocumented returns the rules of All without name, summary and documentation, which take some milliseconds to read: Find and Judge
// need none.
func Undocumented() []Rule { return slices.Clone(rules) }

// documentedRules returns the rules with the documentation from their texts.
var documentedRules = sync.OnceValue(func() []Rule {
	documented := Undocumented()
	for i := range documented {
		documented[i].loadDocumentation()
	}
	return documented
})

// rules is the table of all rules, ordered by code: each with its check, and the inputs that it requires before "no finding"
// means "no fault".
var rules = []Rule{
	perGroup(report.RuleHubLate, checkHubLate, needRequests),
	perRunQueueWait(report.RulePsTaken, checkPsTaken, needRequests),
	perGroup(report.RuleSlowWakeup, checkSlowWakeup, needRuntimeTrace, needRequests),
	perRunQueueWait(report.RuleHerd, checkHerd, needRequests),
	perReport(report.RuleTooManyPs, checkTooManyPs, needRuntimeTrace, needRunDelays),
	perRunQueueWait(report.RuleTooFewPs, checkTooFewPs, needRuntimeTrace, needHostSamples),
	perRunQueueWait(report.RuleLongRuns, checkLongRuns, needRequests),
	perGroup(report.RuleComputes, checkComputing, needRequests, needCPUSamples),
	perReport(report.RuleBusyMachine, checkBusyMachine, needRequests, needHostSamples),

	perCandidate(report.RuleSleep, checkSleep, needRequests),
	perReport(report.RuleLockConvoy, checkLockConvoy, needRequests),
	bothChecks(perCandidate(report.RulePoolTooSmall, checkPoolTooSmall, needRequests), perGroup(report.RulePoolTooSmall, checkBacklog)),
	bothChecks(perCandidate(report.RuleFlushInterval, checkFlushInterval, needRequests), perGroup(report.RuleFlushInterval, checkHeldAnswers)),
	perCandidate(report.RuleSlowPeer, checkSlowPeer, needRequests),
	perCandidate(report.RuleSlowClient, checkSlowClient, needRequests),
	perCandidate(report.RuleBlockingSyscall, checkBlockingSyscall, needRequests),
	perGroup(report.RuleRetransmissions, checkRetransmissions, needRequests, needConnections),
	perGroup(report.RuleHung, checkHung, needRequests),

	perGroup(report.RuleMarkAssist, checkMarkAssist, needRuntimeTrace, needRequests),
	perGroup(report.RuleGCTakesPs, checkGCTakesPs, needRequests),
	perGroup(report.RuleStoppedWorld, checkStoppedWorld, needRuntimeTrace, needRequests),
	perGroup(report.RuleGCTooFrequent, checkGCTooFrequent, needRuntimeTrace),
	perGroup(report.RuleForcedGC, checkForcedGC, needRuntimeTrace),

	perReport(report.RuleThrottled, checkThrottled, needQuota),
	perReport(report.RuleGOMAXPROCSAndLimit, checkGOMAXPROCSAndLimit, needHostSamples),
	perReport(report.RuleStopped, checkStopped, needProcessStates),

	perReport(report.RuleFewRequests, checkFewRequests),
	perReport(report.RuleTruncated, checkTruncated),
	perReport(report.RuleBiasedNames, checkBiasedNames, needRequests),
	perReport(report.RuleTraceOverhead, checkTraceOverhead, needRuntimeTrace),
	perReport(report.RuleLoadInProcess, checkLoadInProcess, needRequests),
	perReport(report.RulePollGaps, checkPollGaps, needRuntimeTrace, needRequests),
	perReport(report.RuleClock, checkClock),
	perReport(report.RuleLostEvents, checkLostEvents),
	perReport(report.RuleShortWindow, checkShortWindow),
	perGroup(report.RuleOneSlowPeriod, checkOneSlowPeriod, needRequests),
	perReport(report.RuleThreadsOffCPU, checkThreadsOffCPU, needRunDelays),
}

// perReport makes a rule that checks the process or the recording as a whole. needs are the inputs without which it cannot say
// that nothing is wrong.
func perReport(code report.RuleCode, check func(*Input) []Verdict, needs ...requirement) Rule {
	return Rule{Code: code, Run: check, requirements: needs}
}

// bothChecks returns a rule that reports the verdicts of two rules with the same code. It keeps the requirements of the first.
func bothChecks(rule, other Rule) Rule {
	run := rule.Run
	rule.Run = func(in *Input) []Verdict { return append(run(in), other.Run(in)...) }
	return rule
}

// perGroup returns a rule that calls check for each group of requests in the report. needs are the data without which the rule
// cannot judge.
func perGroup(code report.RuleCode, check func(*Input, *report.Group) []Verdict, needs ...requirement) Rule {
	return perReport(code, func(in *Input) (out []Verdict) {
		for i := range in.Report.Groups {
			out = append(out, check(in, &in.Report.Groups[i])...)
		}
		return out
	}, needs...)
}

// perCandidate makes a rule with a verdict for each candidate that the attributions of all groups assign to its code. Of several with
// one change for a group, it keeps the first.
func perCandidate(code report.RuleCode, check func(*attribution, *candidate) Verdict, needs ...requirement) Rule {
	return perReport(code, func(in *Input) (out []Verdict) {
		for attr, cand := range in.candidatesOf(code) {
			v := check(attr, cand)
			if !slices.ContainsFunc(out, func(o Verdict) bool {
				return o.Group == v.Group && len(v.Changes) > 0 && slices.Equal(o.Changes, v.Changes)
			}) {
				out = append(out, v)
			}
		}
		return out
	}, needs...)
}

// perRunQueueWait makes a rule that checks each group's time of waiting for a P, if runQueueWaitOf assigns that time to the
// rule's code.
func perRunQueueWait(code report.RuleCode, check func(*Input, *runQueueWait) []Verdict, needs ...requirement) Rule {
	return perGroup(code, func(in *Input, g *report.Group) []Verdict {
		if wait := runQueueWaitOf(in, g); wait.ruleCode == code && wait.share > 0 {
			return check(in, wait)
		}
		return nil
	}, needs...)
}

// loadDocumentation sets the rule's name, summary and documentation from rules/CODE.txt.
func (r *Rule) loadDocumentation() {
	heading, sections := readSections(string(r.Code))
	r.Name, r.Summary, _ = strings.Cut(heading, ": ")
	texts := map[string]string{}
	for _, s := range sections {
		texts[s.Title] = s.Text
	}
	joinLines := strings.NewReplacer("\n\n", "\n\n", "\n", " ") // of each paragraph
	prose := func(title string) string { return joinLines.Replace(texts[title]) }
	r.Doc = Doc{Means: prose("means"), Measured: prose("measured"), Before: texts["before"], After: texts["after"], Wrong: prose("wrong")}
}
