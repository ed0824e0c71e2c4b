package stdlib

import "strings"

// Activity describes in words what a function of net/http does while it calls callee; "" if that is not known. Its
// line numbers change with each release, and its name means nothing to readers who do not know its source.
func Activity(fn, callee string) string {
	text := activities[fn][callee]
	if text == "" && fn == "net/http.(*conn).serve" && strings.HasPrefix(callee, "crypto/tls.(*Conn).Handshake") {
		text = "TLS handshake"
	}
	return text
}

// HasActivities reports whether Activity knows any callee of a function.
func HasActivities(fn string) bool { return activities[fn] != nil }

// activities are descriptions by function and callee, as in net/http of Go 1.22 to 1.26.
var activities = map[string]map[string]string{
	"net/http.(*conn).serve": {
		"net/http.(*conn).readRequest":               "reading the request",
		"net/http.(*connReader).startBackgroundRead": "watching whether the client hangs up",
		"net/http.serverHandler.ServeHTTP":           "in the handler",
		"net/http.(*response).finishRequest":         "finishing the answer",
		"bufio.(*Reader).Peek":                       "beginning the next request",
		"net/http.(*conn).setState":                  "between two requests",
		"net/http.(*conn).close":                     "closing the connection",
	},
	"net/http.(*persistConn).readLoop": {
		"bufio.(*Reader).Peek":                 "waiting for the server's answer",
		"net/http.(*persistConn).readResponse": "reading the answer's header",
	},
	"net/http.(*persistConn).writeLoop": {
		"runtime.selectgo":          "waiting for a request to send",
		"net/http.(*Request).write": "sending the request",
		"bufio.(*Writer).Flush":     "sending the request",
	},
	"net/http.(*persistConn).roundTrip": {
		"runtime.selectgo":  "waiting for the answer",
		"runtime.chansend1": "handing the request over",
	},
	"net/http.(*Transport).getConn": {
		"runtime.selectgo":                       "waiting for a connection",
		"net/http.(*Transport).queueForDial":     "opening a connection",
		"net/http.(*Transport).queueForIdleConn": "looking for an idle connection",
	},
}
