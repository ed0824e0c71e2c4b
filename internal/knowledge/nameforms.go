package knowledge

import (
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/trace/stdlib"
)

// formRoles returns the roles that follow from a function's package and the form of its name, without the table.
func formRoles(fn string) Roles {
	found := SetOf(resolved, NonStdlib)
	if stdlib.Contains(fn) {
		found = SetOf(resolved, Stdlib)
	}
	if isGRPCMethod(fn) {
		found = found.Union(SetOf(GRPCMethod))
	}
	if isFetch(fn) {
		found = found.Union(SetOf(Fetch))
	}
	if beginsWithWord(fn, "dial", "connect", "handshake") && !strings.Contains(fn[strings.LastIndexByte(fn, '.')+1:], "And") { // DialAndSend also sends
		found = found.Union(SetOf(Connecting))
	}
	if isConstructor(fn) {
		found = found.Union(SetOf(Constructor))
	}
	if beginsWithWord(fn, "sleep", "pause", "backoff") {
		found = found.Union(SetOf(Pause))
	}
	if beginsWithWord(fn, "clone", "copy", "deepClone", "deepCopy") {
		found = found.Union(SetOf(DataCopy))
	}
	return found
}

// isGRPCMethod reports whether protoc-gen-go-grpc generates such a function for a method: pkg._Service_Method_Handler,
// or its closure for interceptors.
func isGRPCMethod(name string) bool {
	name = name[strings.LastIndexByte(name, '/')+1:]
	_, name, _ = strings.Cut(name, ".")
	name, _, _ = strings.Cut(name, ".")
	return strings.HasPrefix(name, "_") && strings.HasSuffix(name, "_Handler") && strings.Count(name, "_") >= 3
}

// isFetch reports whether the last part of a function's name begins with a verb, such as Poll or Receive, that libraries use for
// functions that return the next item of work.
func isFetch(fn string) bool {
	fn = fn[strings.LastIndexByte(fn, '.')+1:]
	verbs := []string{"Poll", "Fetch", "Receive", "Recv", "Next", "Consume", "Accept", "Read", "Get", "Pop", "Dequeue", "Take"}
	return slices.ContainsFunc(verbs, func(verb string) bool { return strings.HasPrefix(fn, verb) })
}

// isConstructor reports whether a function of a package, not a method, makes a client or what a client needs, by its name: a verb such as
// New, then a noun such as Client, with or without other words (oidc.NewProvider, config.LoadDefaultConfig). Other nouns (Reader, Request,
// Session) do not show it: each request may need its own.
func isConstructor(fn string) bool {
	fn = fn[strings.LastIndexByte(fn, '/')+1:]
	_, name, _ := strings.Cut(fn, ".")
	name, _, _ = strings.Cut(name, "[")
	if strings.ContainsAny(name, ".(") || !beginsWithWord(name, "New", "Open", "Load", "Discover", "Setup", "Init") || name[0] < 'A' || name[0] > 'Z' {
		return false
	}
	name, _, _ = strings.Cut(name, "With")
	name, _, _ = strings.Cut(name, "From")
	return slices.ContainsFunc([]string{"Client", "Provider", "Verifier", "Validator", "Config", "KeySet", "Pool", "Producer", "Credentials", "TokenSource", "Registry"},
		func(noun string) bool { return strings.HasSuffix(strings.TrimSuffix(name, "Context"), noun) })
}

// beginsWithWord reports whether the last part of a function's name begins with one of the words, in any case. Libraries use dial,
// connect and handshake for functions that open a connection (net.(*Dialer).DialContext, pgconn.ConnectConfig,
// tls.(*Conn).HandshakeContext), services sleep, pause and backoff for helpers that end early with a context. Clone and DeepCopy
// are the names of generated and of handwritten copies (proto.Clone, k8s.io/code-generator's DeepCopyInto).
func beginsWithWord(fn string, list ...string) bool {
	if i := strings.IndexByte(fn, '['); i >= 0 {
		fn = fn[:i]
	}
	fn = fn[strings.LastIndexByte(fn, '.')+1:]
	for _, word := range list {
		if n := len(word); len(fn) >= n && strings.EqualFold(fn[:n], word) && (len(fn) == n || fn[n] < 'a' || fn[n] > 'z') {
			return true
		}
	}
	return false
}
