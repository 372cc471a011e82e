package listen

import "syscall"

// FitToFiles reduces limits on connections by one factor, but none below 16, to fit with reserve
// into the file descriptors that the process may have (RLIMIT_NOFILE). files is that number, or
// 1<<30 if it is unknown or larger.
func FitToFiles(reserve int, limits ...*int) (files int, scaled bool) {
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) != nil || r.Cur > 1<<30 {
		return 1 << 30, false
	}
	wanted := 0
	for _, l := range limits {
		wanted += *l
	}
	files = int(r.Cur)
	room := max(0, files-reserve)
	if wanted <= room {
		return files, false
	}
	for _, l := range limits {
		*l = max(min(16, *l), *l*room/wanted)
	}
	return files, true
}
