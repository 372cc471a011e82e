package evaluate

import (
	"path/filepath"
	"strings"
)

// ShortNames returns a short name for each file, in the order of paths. The name is the shortest
// end of the path by which the file differs from the other files. For most files, the name is the
// base name. Files with the same base name also get the folders in which they differ. Two names are
// equal only if a file is given twice.
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
