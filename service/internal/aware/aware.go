// Package aware reports whether this program's runtime follows CPU quotas.
package aware

import (
	"os"
	"runtime/debug"
	"strings"
)

// Runtime reports whether the runtime sets GOMAXPROCS by the quota and keeps
// it up to date: from Go 1.25 on, unless GODEBUG says otherwise, which it does
// by default if the main module's go line is older (go.dev/doc/godebug).
func Runtime() bool {
	if !since125 {
		return false
	}
	built := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "DefaultGODEBUG" {
				built = s.Value
			}
		}
	}
	env := os.Getenv("GODEBUG")
	return on("containermaxprocs", built, env) && on("updatemaxprocs", built, env)
}

// on reports whether the setting key, whose default is 1, is not set to 0 in the lists of GODEBUG, "key=value,...". Later entries and lists win: the
// environment is the last list.
func on(key string, lists ...string) bool {
	value := true
	for _, list := range lists {
		for _, entry := range strings.Split(list, ",") {
			if k, v, ok := strings.Cut(strings.TrimSpace(entry), "="); ok && k == key {
				value = v != "0"
			}
		}
	}
	return value
}
