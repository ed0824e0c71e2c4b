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
