package netguard

import "syscall"

// FitToFiles scales limits of connections down, all by the same factor, if the process may have too
// few file descriptors (RLIMIT_NOFILE) for them and for the given reserve for other uses. No limit
// is scaled below 16, even if less than the reserve is then left. FitToFiles returns how many
// descriptors the process may have, and whether it changed a limit.
func FitToFiles(reserve int, limits ...*int) (files int, scaled bool) {
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) != nil || r.Cur > 1<<30 {
		return 1 << 30, false
	}
	return int(r.Cur), fit(int(r.Cur)-reserve, limits)
}

// fit scales limits down so that they add up to at most sum, but none to less than 16. It reports
// whether it changed them.
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
