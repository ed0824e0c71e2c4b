//go:build go1.25

package tune

import "runtime"

// setDefaultGOMAXPROCS returns GOMAXPROCS to the runtime's control, with its updates.
func setDefaultGOMAXPROCS() bool {
	runtime.SetDefaultGOMAXPROCS()
	return true
}
