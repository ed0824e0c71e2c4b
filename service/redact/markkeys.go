package redact

import (
	"encoding/hex"
	"strings"
)

// The forms of whylate's own logs (docs/mark.md, docs/flight.md).
const (
	markBegin  = "whylate.mark/1 begin "
	markEnd    = "whylate.mark/1 end "
	markSpan   = "whylate.mark/1 span"
	hostStart  = "whylate.host/1 start"
	hostSample = "whylate.host/1 sample"
)

// redactMarkKey hides the name in the key of a mark; ok is false if key is not a mark's.
func (o *Options) redactMarkKey(key string) (out string, ok bool) {
	words := 1 // kind
	rest, ok := strings.CutPrefix(key, markBegin)
	if !ok {
		if rest, ok = strings.CutPrefix(key, markEnd); !ok {
			return "", false
		}
		words = 2 // kind, status
	}
	end := 0
	for range words {
		n := strings.IndexByte(rest[end:], ' ')
		if n < 0 {
			if words == 2 && !strings.Contains(rest, " ") {
				return "", false
			}
			return key, true // there is no name
		}
		end += n + 1
	}
	head := key[:len(key)-len(rest)+end]
	return strings.TrimSuffix(head+o.redactText(o.Routes, rest[end:], ""), " "), true
}

// redactTraceparent hides the ids of a traceparent header; ok is false if s is not one.
func (o *Options) redactTraceparent(s string) (out string, ok bool) {
	if s == "" {
		return "", true
	}
	const id, span, flags = 3, 36, 53
	if len(s) != 55 || s[id-1] != '-' || s[span-1] != '-' || s[flags-1] != '-' {
		return "", false
	}
	for i := range len(s) {
		if c := s[i]; i != id-1 && i != span-1 && i != flags-1 && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "", false
		}
	}
	switch o.Parents {
	case Keep:
		return s, true
	case Hash:
		return s[:id] + hex.EncodeToString(o.hash(s[id : span-1])[:16]) + "-" + hex.EncodeToString(o.hash(s[span : flags-1])[:8]) + s[flags-1:], true
	}
	return "", true
}
