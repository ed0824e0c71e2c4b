package testprog

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// AbsentModules returns the directories of go.work's modules that are missing in the tree at root. A
// checkout has all of them. The tool's module from a module proxy lacks all others, so a test cannot
// compare documents and lists with their files.
func AbsentModules(root string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(root, "go.work"))
	if err != nil {
		return nil, err
	}
	_, list, _ := strings.Cut(string(text), "\nuse (\n")
	list, _, ok := strings.Cut(list, ")")
	if !ok {
		return nil, errors.New("go.work lists no modules")
	}
	var absent []string
	for _, line := range strings.Fields(list) {
		dir := filepath.Clean(line)
		if _, err := os.Stat(filepath.Join(root, dir)); errors.Is(err, fs.ErrNotExist) {
			absent = append(absent, dir)
		} else if err != nil {
			return nil, err
		}
	}
	return absent, nil
}

// IsBelow reports whether a path, relative to the same root, is one of the directories or in one of
// them.
func IsBelow(path string, dirs []string) bool {
	for _, dir := range dirs {
		if rel, err := filepath.Rel(dir, filepath.FromSlash(path)); err == nil && filepath.IsLocal(rel) {
			return true
		}
	}
	return false
}
