//go:build !go1.25

package tune

// setDefaultGOMAXPROCS can do nothing: this runtime never updates GOMAXPROCS,
// so setting the old value is all there is to restore.
func setDefaultGOMAXPROCS() bool { return false }
