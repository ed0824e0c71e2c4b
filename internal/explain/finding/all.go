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
	perGroup(report.RuleHubLate, hubs, requests),
	perQueue(report.RulePsTaken, taken, requests),
	perGroup(report.RuleSlowWakeup, wakeups, requests),
	perQueue(report.RuleHerd, herds, requests),
	once(report.RuleTooManyPs, manyProcs, delays),
	perQueue(report.RuleTooFewPs, fewProcs, hostSamples),
	perQueue(report.RuleLongRuns, longRuns, requests),
	perGroup(report.RuleComputes, computes, requests, cpuSamples),
	once(report.RuleBusyMachine, machineBusy, requests, hostSamples),

	perClaim(report.RuleSleep, sleep, requests),
	once(report.RuleLockConvoy, convoys, requests),
	perClaim(report.RulePoolTooSmall, pool, requests),
	perClaim(report.RuleFlushInterval, flush, requests),
	perClaim(report.RuleSlowPeer, peer, requests),
	perClaim(report.RuleSlowClient, client, requests),
	perClaim(report.RuleBlockingSyscall, blockingSyscall, requests),
	perGroup(report.RuleRetransmissions, retransmissions, requests, connections),
	perGroup(report.RuleHung, hung, requests),

	perGroup(report.RuleMarkAssist, assists, requests),
	perGroup(report.RuleGCTakesPs, workers, requests),
	perGroup(report.RuleStoppedWorld, worldStops, requests),
	perGroup(report.RuleGCTooFrequent, frequent),
	perGroup(report.RuleForcedGC, forced),

	once(report.RuleThrottled, throttled, quota),
	once(report.RuleGOMAXPROCSAndLimit, procsAgainstLimit, hostSamples),
	once(report.RuleStopped, stopped, states),

	once(report.RuleFewRequests, few),
	once(report.RuleTruncated, truncated),
	once(report.RuleBiasedNames, biasedNames, requests),
	once(report.RuleTraceOverhead, overhead),
	once(report.RuleLoadInProcess, selfLoad, requests),
	once(report.RulePollGaps, pollGaps, requests),
	once(report.RuleClock, clock),
	once(report.RuleLostEvents, lostEvents),
	once(report.RuleShortWindow, shortWindow),
	perGroup(report.RuleOneSlowPeriod, onePeriod, requests),
	once(report.RuleThreadsOffCPU, threadsOffCPU, delays),
}

// once is a rule about the process or the recording.
func once(code report.RuleCode, run func(*Input) []Verdict, needs ...need) Rule {
	return Rule{Code: code, Run: run, needs: needs}
}

// perGroup is a rule that looks at each group of requests.
func perGroup(code report.RuleCode, of func(*Input, *report.Group) []Verdict, needs ...need) Rule {
	return once(code, func(in *Input) (out []Verdict) {
		for i := range in.Report.Groups {
			out = append(out, of(in, &in.Report.Groups[i])...)
		}
		return out
	}, needs...)
}

// perClaim is a rule about what requests wait for: the ways to causes that belong to it, see claims.
func perClaim(code report.RuleCode, of func(*claims, *claim) Verdict, needs ...need) Rule {
	return once(code, func(in *Input) (out []Verdict) {
		for cl, c := range in.claimedBy(code) {
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
