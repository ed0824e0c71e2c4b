// Package guard keeps a panic in this module's code, or in a function that a service passed to it, from ending the service.
package guard

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync/atomic"
)

// A Guard calls functions of one component. The zero value is ready for use.
type Guard struct{ panics atomic.Uint64 }

// Do calls f and returns a panic in it as an error, whose text begins with task; nil if f returned. It reports a component's first, second, fourth,
// eighth panic and so on to slog.Default, because a function that is called every second may panic each time.
func (g *Guard) Do(task string, f func()) (err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		text := clip(fmt.Sprint(p))
		err = fmt.Errorf("%s panicked: %s", task, text)
		if n := g.panics.Add(1); n&(n-1) == 0 {
			report(task, text, string(debug.Stack()), n)
		}
	}()
	f()
	return nil
}

// report writes the panic of a task, with its text and stack and the count of panics so
// far, to the service's logger, in a goroutine: the logger's handler may have panicked with
// its lock held.
func report(task, text, stack string, count uint64) {
	go func() {
		defer func() { _ = recover() }()
		slog.Default().LogAttrs(context.Background(), slog.LevelError, "whylate: "+task+" panicked",
			slog.String("panic", text), slog.Uint64("count", count), slog.String("stack", stack))
	}()
}

// clip cuts a text that comes from outside the program to a length that fits a log.
func clip(s string) string {
	if len(s) > 300 {
		s = s[:300]
	}
	return strings.ToValidUTF8(s, "?")
}
