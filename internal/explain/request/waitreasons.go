package request

import "github.com/whylate/whylate/internal/trace/tracefmt"

// A reason is why a goroutine waits.
type reason uint8

const (
	reasonOther reason = iota
	reasonNetwork
	reasonReceive // also select
	reasonCond
	reasonSync
	reasonSend
	reasonSleep
)

var reasonTexts = [...]struct {
	text   string
	reason reason
}{
	{"network", reasonNetwork}, {"chan receive", reasonReceive}, {"select", reasonReceive}, {"sync.(*Cond).Wait", reasonCond},
	{"sync", reasonSync}, {"chan send", reasonSend}, {"sleep", reasonSleep},
}

// resolveReasons looks up the texts of reasons that are not known yet.
func (sr *stackReader) resolveReasons() {
	for i := range reasonTexts {
		if sr.reasonIDs[i] == 0 {
			sr.reasonIDs[i] = sr.syms.Lookup(reasonTexts[i].text)
		}
	}
}

// reasonOf returns the reason with the trace's text id; reasonOther for unknown texts. It is safe for concurrent use.
func (sr *stackReader) reasonOf(id tracefmt.StringID) reason {
	if id == 0 {
		return reasonOther
	}
	for i, textID := range sr.reasonIDs {
		if textID == id {
			return reasonTexts[i].reason
		}
	}
	return reasonOther
}
