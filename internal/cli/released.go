package cli

// releasedFrom is the revision of a release. tools/release writes it: a program installed from a module proxy has its version,
// but not its revision.
const releasedFrom = ""
