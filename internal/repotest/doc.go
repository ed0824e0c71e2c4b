// Package repotest has the tests of the repository itself: which package may import which, names and comments, pages and their links.
package repotest
