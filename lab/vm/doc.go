// Package vm boots small virtual machines whose only program is a static Go
// binary, so that what the service packages claim about cgroups is checked
// on real kernels with every layout of cgroups, whatever the machine that
// runs the tests has.
//
// A boot is one kernel and one layout (v1, v2, hybrid). Its init, the program
// in guest, mounts the layout, runs the checks of package check one after
// another, writes a line of JSON a check to the second serial port, and
// powers off. TestVM turns those lines into subtests:
//
//	WHYLATE_VM=1 go test ./lab/vm -run TestVM -v
//
// It needs qemu-system-x86_64 and kernels; .ci/vm.sh installs the first,
// fetches the second and runs the tests. Without hardware virtualisation a
// boot takes 5 to 15 seconds: speed in there means nothing, counters and
// limits do.
//
// TestHost runs the same checks on the machine itself where it is Linux and
// the tests run as root.
//
// To add a check, write it in a file of package check and list it in
// check.All; a check that needs a process of its own inside a group adds a
// child to check.Children.
package vm
