// Package check holds what is verified inside a virtual machine, or on the
// machine itself: each check makes real cgroups, runs processes in them and
// looks at what the service packages say there. It is for Linux only.
package check
