package listen

import "syscall"

// FitToFiles reduces limits on the number of connections to the number of file descriptors that the
// process may have (RLIMIT_NOFILE). reserve is the number of descriptors for other uses. If there
// are fewer descriptors than the sum of all limits plus reserve, FitToFiles reduces all limits by
// the same factor. It reduces no limit below 16, even if fewer than reserve descriptors are then
// left. files is how many descriptors the process may have, or 1<<30 if this number is unknown or
// larger. scaled reports whether a limit was changed.
func FitToFiles(reserve int, limits ...*int) (files int, scaled bool) {
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) != nil || r.Cur > 1<<30 {
		return 1 << 30, false
	}
	return int(r.Cur), fit(int(r.Cur)-reserve, limits)
}

// fit scales limits down so that they add up to at most sum, but scales no limit below 16. It
// reports whether it changed a limit.
func fit(sum int, limits []*int) bool {
	wanted := 0
	for _, l := range limits {
		wanted += *l
	}
	if wanted <= sum {
		return false
	}
	for _, l := range limits {
		*l = max(min(16, *l), *l*max(0, sum)/wanted)
	}
	return true
}
