// Package redact hides texts of the program in an execution trace, before the trace
// leaves the process:
//
//	w := redact.NewWriter(file, redact.Options{Logs: redact.Hash, Tasks: redact.Hash, Files: redact.Trim})
//	err := trace.Start(w)
//	...
//	trace.Stop()
//	err = w.Close()
//
// flight.Options.Redact does the same for recordings. A trace holds few texts:
// names of functions and files, the runtime's reasons for waits, and the texts that
// the program passed to runtime/trace. This package can hide the latter, and names of
// files. Names of functions and the runtime's reasons stay, because a trace is useless
// without them. Every other text counts as the program's. So in a trace of a later Go
// version, whose events this package cannot read, it hides more than the options
// require, never less.
package redact

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	mathrand "math/rand/v2"
	"strings"
)

// A Mode is the treatment of a kind of text.
type Mode uint8

// The modes, the strictest last.
const (
	// Keep leaves a text as it is.
	Keep Mode = iota
	// Trim is for files only. It leaves what a build with -trimpath writes: import
	// path and file, without the machine's directories.
	Trim
	// Hash replaces a text by a keyed hash: equal texts stay equal.
	Hash
	// Drop leaves the text out.
	Drop
)

// Options select the texts that are hidden. The zero value hides nothing.
type Options struct {
	// Logs are keys and messages of user logs (trace.Log), Tasks the names of user
	// tasks and regions. Labels of pprof are never in a trace. If any of these two
	// and the next two is not Keep, the logs of service/flight lose the process id
	// and the names of control groups.
	Logs, Tasks Mode
	// Routes are the names of marked requests (service/mark), Parents the ids of
	// their traceparent headers and spans. The hash of an id has an id's form.
	Routes, Parents Mode
	// Files are names of source files. Hash and Drop only trim those of the standard
	// library and of modules with a version: their functions' names say as much.
	Files Mode
	// Allow, if not nil, reports whether one of the program's texts stays as it is,
	// whatever the modes say: the name of a task, a region or a marked request, or the
	// key or message of a log. It is not called for ids and files.
	Allow func(text string) bool
	// Main is the import path of the main package, for Trim; without it its
	// files are called main/x.go.
	Main string
	// Key is the key of hashes. With the same key, hashes of several processes can
	// be compared. Without one, every Writer makes a new key, so that no text can be
	// guessed.
	Key []byte
}

// Check returns an error for an option with an unknown mode or other invalid value.
func (o *Options) Check() error {
	for _, m := range []Mode{o.Logs, o.Tasks, o.Routes, o.Parents} {
		if m == Trim || m > Drop {
			return errors.New("redact: Logs, Tasks, Routes and Parents must be Keep, Hash or Drop")
		}
	}
	if o.Files > Drop {
		return errors.New("redact: Files must be Keep, Trim, Hash or Drop")
	}
	return nil
}

// Hides reports whether there is anything to hide.
func (o *Options) Hides() bool { return o.strictest() != Keep || o.Files != Keep }

// strictest returns the mode for texts whose use is unknown.
func (o *Options) strictest() Mode { return max(o.Logs, o.Tasks, o.Routes, o.Parents) }

// WithKey returns the options with a key, a new one if there was none.
func (o Options) WithKey() Options {
	if len(o.Key) == 0 {
		o.Key = newKey(systemRandom)
	}
	return o
}

// systemRandom is crypto/rand.Reader before a service can replace it. rand.Read ends the process if that reader fails.
var systemRandom = rand.Reader

// newKey returns a key from a source of random numbers, or, if that fails, from the runtime's.
func newKey(random io.Reader) []byte {
	key := make([]byte, sha256.Size)
	if _, err := io.ReadFull(random, key); err != nil {
		for i := range key {
			key[i] = byte(mathrand.Uint32())
		}
	}
	return key
}

// Route returns the name of a marked request as a redacted trace has it.
func (o *Options) Route(name string) string { return o.redactText(o.Routes, name, "") }

// redactText returns what a redacted trace has for the text s: s itself in mode Keep, if it
// is empty, or if Options.Allow accepts it; dropped in mode Drop; its keyed hash in any
// other mode.
func (o *Options) redactText(m Mode, s, dropped string) string {
	switch {
	case m == Keep || s == "" || o.Allow != nil && o.Allow(s):
		return s
	case m == Drop:
		return dropped
	}
	return o.hashedText(s)
}

// hashedText returns the replacement of a text in mode Hash.
func (o *Options) hashedText(s string) string { return "#" + hex.EncodeToString(o.hash(s))[:12] }

// hash returns the keyed hash (HMAC-SHA-256) of s.
func (o *Options) hash(s string) []byte {
	h := hmac.New(sha256.New, o.Key)
	h.Write([]byte(s))
	return h.Sum(nil)
}

// Replacements of dropped names: a reader may require a name.
const (
	leftOutText = "(left out)"
	droppedFile = "left-out.go"
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

// File returns the name of a file, in which a function is, as a redacted trace has
// it.
func (o *Options) File(name, fn string) string {
	if o.Files == Keep || name == "" {
		return name
	}
	slashed := strings.ReplaceAll(name, `\`, "/")
	base := slashed[strings.LastIndexByte(slashed, '/')+1:]
	if !strings.Contains(slashed, "/") && strings.HasPrefix(base, "_cgo_") || base == "<autogenerated>" {
		return base // generated by the compiler
	}
	pkg := packageOf(fn)
	if v := modulePath(slashed, pkg); v != "" {
		return v
	}
	if pkg == "main" && o.Main != "" {
		pkg = o.Main
	}
	public := pkg != "main" && pkg != "command-line-arguments" && !strings.Contains(strings.SplitN(pkg, "/", 2)[0], ".")
	if public && strings.HasSuffix(slashed, "/src/runtime/"+base) {
		pkg = "runtime" // time.Sleep, sync.runtime_Semacquire and others are linked to functions there
	}
	public = public && strings.HasSuffix(slashed, "/src/"+pkg+"/"+base)
	switch {
	case public || o.Files == Trim:
	case o.Files == Hash:
		base = o.hashedText(slashed) + ".go"
	default:
		base = droppedFile
	}
	out := pkg + "/" + base
	// These directories identify the origin of the code, so they stay.
	switch dir := strings.TrimSuffix(slashed, slashed[strings.LastIndexByte(slashed, '/')+1:]); {
	case public:
	case strings.Contains(dir, "/vendor/"):
		out = "./vendor/" + out
	case strings.HasPrefix(dir, "external/"):
		out = "external/" + out
	case strings.HasSuffix(dir, "/src/"+pkg+"/"):
		out = "./src/" + out
	}
	return out
}

// packageOf returns the import path of a function's package. The linker writes
// dots of the last directory as %2e.
func packageOf(fn string) string {
	if i := strings.IndexByte(fn, '['); i >= 0 { // type arguments hold paths
		fn = fn[:i]
	}
	last := strings.LastIndexByte(fn, '/') + 1
	dot := strings.IndexByte(fn[last:], '.')
	if dot < 0 {
		return strings.ReplaceAll(fn, "%2e", ".")
	}
	return strings.ReplaceAll(fn[:last+dot], "%2e", ".")
}

// modulePath returns the end of a file's name that begins with its module,
// github.com/!name/module@v1.2.3/package/file.go, or "" if the name has no module.
func modulePath(name, pkg string) string {
	atSign := strings.LastIndex(name, "@v")
	if atSign < 0 || !strings.Contains(name[atSign:], "/") {
		return ""
	}
	for from := 0; ; {
		module := unescapeCapitals(name[from:atSign])
		if rest, ok := strings.CutPrefix(pkg, module); ok && module != "" && (rest == "" || rest[0] == '/') {
			return name[from:]
		}
		n := strings.IndexByte(name[from:atSign], '/')
		if n < 0 {
			return ""
		}
		from += n + 1
	}
}

// unescapeCapitals reverses the module cache's escapes of capitals: !a for A.
func unescapeCapitals(s string) string {
	if !strings.Contains(s, "!") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '!' && i+1 < len(s) {
			i++
			b.WriteString(strings.ToUpper(s[i : i+1]))
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
