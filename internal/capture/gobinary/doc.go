// Package gobinary reads executable files of Go programs as far as it is necessary to observe them from outside: the addresses of
// the runtime's functions, where to place probes in them, the layout of the runtime's structures, and the functions and lines of
// stacks. It needs no symbol table and no debug information, so it reads stripped and position-independent programs too.
//
// The layout comes from a table, which the program in the directory offsets writes from the source of each release. For releases
// after those in the table it comes from debug information.
package gobinary
