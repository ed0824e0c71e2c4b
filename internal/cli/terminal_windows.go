package cli

import (
	"os"

	"golang.org/x/sys/windows"
)

// enableColors enables escape sequences of a console. It is false for an old one, which does not support them.
func enableColors(f *os.File) bool {
	var mode uint32
	h := windows.Handle(f.Fd())
	return windows.GetConsoleMode(h, &mode) == nil && windows.SetConsoleMode(h, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}
