// Package repotest tests the repository itself: imports follow the layer diagram of ARCHITECTURE.md, the public API needs no
// internal types, texts avoid the refused phrases, and pages have their links, lengths and translations. Every test reads
// files only.
package repotest
