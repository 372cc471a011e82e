package evaluate

import (
	"path/filepath"
	"strings"
)

// ShortNames returns a name for each file, as short a part of its path as distinguishes it
// from the others: the base name for most, with the folders that differ for those of one
// base name. Only a file that is given twice has one name twice.
func ShortNames(paths []string) []string {
	names, rest := make([]string, len(paths)), make([]string, len(paths))
	for i, path := range paths {
		rest[i] = filepath.ToSlash(filepath.Clean(path))
	}
	for longer := true; longer; {
		count := map[string]int{}
		for i := range names {
			count[names[i]]++
		}
		longer = false
		for i := range names {
			if count[names[i]] < 2 && names[i] != "" || rest[i] == "" {
				continue
			}
			folder, last := rest[i], ""
			if at := strings.LastIndexByte(folder, '/'); at >= 0 {
				folder, last = folder[:at], folder[at+1:]
			} else {
				folder, last = "", folder
			}
			if names[i] != "" {
				last += "/" + names[i]
			}
			names[i], rest[i], longer = last, folder, true
		}
	}
	return names
}
