package finding

import (
	"embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// All returns every rule, by code.
func All() []Rule { return slices.Clone(documented()) }

// documented are the rules with what their texts say of them.
var documented = sync.OnceValue(func() []Rule {
	for i := range rules {
		rules[i].document()
	}
	return rules
})

// rules are all of them, by code: how each looks at a report, and what it needs to find nothing with certainty.
var rules = []Rule{
	perGroup(report.RuleHubLate, checkHubLate, requests),
	perQueue(report.RulePsTaken, checkPsTaken, requests),
	perGroup(report.RuleSlowWakeup, checkSlowWakeup, requests),
	perQueue(report.RuleHerd, checkHerd, requests),
	perReport(report.RuleTooManyPs, checkTooManyPs, delays),
	perQueue(report.RuleTooFewPs, checkTooFewPs, hostSamples),
	perQueue(report.RuleLongRuns, checkLongRuns, requests),
	perGroup(report.RuleComputes, checkComputes, requests, cpuSamples),
	perReport(report.RuleBusyMachine, checkBusyMachine, requests, hostSamples),

	perCandidate(report.RuleSleep, checkSleep, requests),
	perReport(report.RuleLockConvoy, checkLockConvoy, requests),
	perCandidate(report.RulePoolTooSmall, checkPoolTooSmall, requests),
	perCandidate(report.RuleFlushInterval, checkFlushInterval, requests),
	perCandidate(report.RuleSlowPeer, checkSlowPeer, requests),
	perCandidate(report.RuleSlowClient, checkSlowClient, requests),
	perCandidate(report.RuleBlockingSyscall, checkBlockingSyscall, requests),
	perGroup(report.RuleRetransmissions, checkRetransmissions, requests, connections),
	perGroup(report.RuleHung, checkHung, requests),

	perGroup(report.RuleMarkAssist, checkMarkAssist, requests),
	perGroup(report.RuleGCTakesPs, checkGCTakesPs, requests),
	perGroup(report.RuleStoppedWorld, checkStoppedWorld, requests),
	perGroup(report.RuleGCTooFrequent, checkGCTooFrequent),
	perGroup(report.RuleForcedGC, checkForcedGC),

	perReport(report.RuleThrottled, checkThrottled, quota),
	perReport(report.RuleGOMAXPROCSAndLimit, checkGOMAXPROCSAndLimit, hostSamples),
	perReport(report.RuleStopped, checkStopped, states),

	perReport(report.RuleFewRequests, checkFewRequests),
	perReport(report.RuleTruncated, checkTruncated),
	perReport(report.RuleBiasedNames, checkBiasedNames, requests),
	perReport(report.RuleTraceOverhead, checkTraceOverhead),
	perReport(report.RuleLoadInProcess, checkLoadInProcess, requests),
	perReport(report.RulePollGaps, checkPollGaps, requests),
	perReport(report.RuleClock, checkClock),
	perReport(report.RuleLostEvents, checkLostEvents),
	perReport(report.RuleShortWindow, checkShortWindow),
	perGroup(report.RuleOneSlowPeriod, checkOneSlowPeriod, requests),
	perReport(report.RuleThreadsOffCPU, checkThreadsOffCPU, delays),
}

// perReport is a rule about the process or the recording.
func perReport(code report.RuleCode, run func(*Input) []Verdict, needs ...need) Rule {
	return Rule{Code: code, Run: run, needs: needs}
}

// perGroup is a rule that looks at each group of requests.
func perGroup(code report.RuleCode, of func(*Input, *report.Group) []Verdict, needs ...need) Rule {
	return perReport(code, func(in *Input) (out []Verdict) {
		for i := range in.Report.Groups {
			out = append(out, of(in, &in.Report.Groups[i])...)
		}
		return out
	}, needs...)
}

// perCandidate is a rule about what requests wait for: the ways to causes that belong to it, see claims.
func perCandidate(code report.RuleCode, of func(*attribution, *candidate) Verdict, needs ...need) Rule {
	return perReport(code, func(in *Input) (out []Verdict) {
		for cl, c := range in.candidatesOf(code) {
			out = append(out, of(cl, c))
		}
		return out
	}, needs...)
}

// perQueue is a rule about the waiting for Ps that belongs to it, see queue.
func perQueue(code report.RuleCode, of func(*Input, *queue) []Verdict, needs ...need) Rule {
	return perGroup(code, func(in *Input, g *report.Group) []Verdict {
		if q := queueOf(in, g); q.code == code && q.share > 0 {
			return of(in, q)
		}
		return nil
	}, needs...)
}

// texts are the rules' documentation: a file for each code, with the name and the summary in its first line.
//
//go:embed rules/*.txt
var texts embed.FS

// numbers are constants that texts name.
var numbers = strings.NewReplacer(
	"{few}", fmt.Sprint(scale.Few), "{enough}", fmt.Sprint(scale.Enough), "{many}", fmt.Sprint(scale.Many),
	"{herd}", fmt.Sprint(process.HerdSize), "{herd time}", fmt.Sprintf("%d ms", int(process.HerdNS/1e6)), "{event}", fmt.Sprintf("%d ns", eventNS),
	"{hung factor}", fmt.Sprint(hungFactor), "{hung least}", words.Brief(hungLeast), "{patience}", words.Brief(scale.Patience),
)

// document fills in what a rule's text says.
func (r *Rule) document() {
	data, err := texts.ReadFile("rules/" + string(r.Code) + ".txt")
	if err != nil {
		panic(err) // a rule without a text is a mistake of this package
	}
	head, body, _ := strings.Cut(numbers.Replace(string(data)), "\n")
	r.Name, r.Summary, _ = strings.Cut(head, ": ")
	part := map[string]string{}
	for _, p := range strings.Split(body, "\n-- ")[1:] {
		title, text, _ := strings.Cut(p, " --\n")
		part[title] = strings.Trim(text, "\n")
	}
	prose := func(title string) string {
		paragraphs := strings.Split(part[title], "\n\n")
		for i := range paragraphs {
			paragraphs[i] = strings.ReplaceAll(paragraphs[i], "\n", " ")
		}
		return strings.Join(paragraphs, "\n\n")
	}
	r.Doc = Doc{Means: prose("means"), Measured: prose("measured"), Before: part["before"], After: part["after"], Wrong: prose("wrong")}
}
