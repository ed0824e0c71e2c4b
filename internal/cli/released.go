package cli

// releasedFrom is the revision that a release was made from. tools/release writes it: a program that was installed from a
// module proxy knows its version, but not its revision.
const releasedFrom = ""
