//go:build !go1.25

package tune

// setDefaultGOMAXPROCS does nothing: this runtime never updates GOMAXPROCS, so the caller
// restores the old value.
func setDefaultGOMAXPROCS() bool { return false }
