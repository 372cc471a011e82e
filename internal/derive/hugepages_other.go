//go:build !linux

package derive

func useHugePages([]byte) {}
