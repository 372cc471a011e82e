package evaluate

import (
	"path/filepath"
	"strings"
)

// ShortNames returns the shortest end of each path that no other has.
func ShortNames(paths []string) []string {
	rooted, names := make([]string, len(paths)), make([]string, len(paths))
	for i, path := range paths {
		rooted[i] = "/" + strings.TrimPrefix(filepath.ToSlash(filepath.Clean(path)), "/")
	}
	for i, path := range rooted {
		at, same := len(path), 0
		for at > 0 && same != 1 {
			at, same = strings.LastIndexByte(path[:at], '/'), 0
			for _, other := range rooted {
				if strings.HasSuffix(other, path[at:]) {
					same++
				}
			}
		}
		names[i] = path[at+1:]
	}
	return names
}
