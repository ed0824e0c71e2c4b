// Package check has the checks that run inside a virtual machine or on the host: on real kernels and cgroup layouts, they
// compare the service packages' results with the kernel's. doc.go of package vm says how to add one.
package check
