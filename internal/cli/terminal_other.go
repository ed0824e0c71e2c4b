//go:build !windows

package cli

import "os"

// enableColors reports whether a terminal supports escape sequences: outside Windows, all do.
func enableColors(*os.File) bool { return true }
