// Package guard runs a command so that nothing of it stays behind, whatever ends the process that wanted it: SIGKILL too. A
// process of its own, the guard, starts the command, adopts what that leaves behind, and kills all of it when its own
// standard input ends. Linux only.
package guard

// A Command is what a guard is to start, a line of JSON on its standard input.
type Command struct {
	Args      []string `json:"args"`
	Env       []string `json:"env"`
	Dir       string   `json:"dir,omitempty"`    // "" is the guard's own
	GroupDirs []string `json:"groups,omitempty"` // the directories of its cgroup
	// RemoveGroup says that the guard also kills what else is in the group, and removes it.
	RemoveGroup bool  `json:"remove"`
	CPUs        []int `json:"cpus,omitempty"` // those it may run on; all that the guard may if empty
}
