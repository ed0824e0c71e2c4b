package finding

import (
	"time"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// changeText returns the condition of a verdict's prediction in words. It does not name a site, because the finding does. It
// returns "" if the verdict's changes have different texts.
func changeText(v *Verdict) (text string) {
	for i := range v.Changes {
		next := changePhrase(&v.Changes[i], v.Cause, v.Predicted != nil && v.Predicted.FromArrival)
		if text != "" && text != next {
			return ""
		}
		text = next
	}
	return text
}

// shortenTo makes each change of a verdict shorten its waits to the given length, and sets the text of the changes.
func (v *Verdict) shortenTo(length time.Duration, text string) {
	for i := range v.Changes {
		v.Changes[i].To, v.Changes[i].Relative = length, false
	}
	v.ChangeText = text
}

// scaleTo makes each change of a verdict scale the length of its waits by a share.
func (v *Verdict) scaleTo(share float64) {
	for i := range v.Changes {
		v.Changes[i].Scale, v.Changes[i].Relative = share, true
	}
}

// leavesSome has the causes of which a fix leaves a part that no trace shows: the prediction is the most that it can win.
var leavesSome = map[report.CauseName]bool{
	report.CauseCPU: true, report.CauseSched: true, report.CauseSchedWake: true, report.CauseNetwork: true, report.CauseSyscall: true,
}

// changePhrase returns one change in words; cause is that of the finding. If a fix leaves an unknown part of such a cause, the
// words say "best case" (leavesSome). isQueued means that the prediction includes the queue for that work.
func changePhrase(c *predict.Change, cause report.CauseName, isQueued bool) string {
	switch c.Kind {
	case report.ChangeSlots:
		return textOf("phrase change-slots", "n", c.Count)
	case report.ChangeUnlock:
		if cause == report.CauseNetwork {
			return textOf("phrase change-unlock-call")
		}
		return textOf("phrase change-unlock")
	case report.ChangeReuse:
		return textOf("phrase change-reuse")
	}
	switch {
	case c.Setting.Name != "":
		return textOf("phrase change-setting", "setting", c.Setting)
	case !c.Relative && c.To > 0:
		return textOf("phrase change-time", "time", words.Brief(int64(c.To)))
	case c.Relative && c.Scale > 0:
		return textOf("phrase change-share", "share", words.Percent(c.Scale))
	case c.Cause == predict.Queue:
		return textOf("phrase change-no-queue")
	}
	key, part := textKey("phrase change-gone"), textKey("phrase part-wait")
	if leavesSome[cause] {
		key = "phrase change-at-most"
	}
	if isQueued {
		key = "phrase change-gone-queue"
	}
	switch cause {
	case report.CauseCPU:
		part = "phrase part-work"
	case report.CauseSyscall:
		part = "phrase part-call"
	}
	return textOf(key, "part", textOf(part))
}
