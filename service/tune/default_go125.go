//go:build go1.25

package tune

import "runtime"

// setDefaultGOMAXPROCS gives GOMAXPROCS back to the runtime, with its updates.
func setDefaultGOMAXPROCS() bool {
	runtime.SetDefaultGOMAXPROCS()
	return true
}
