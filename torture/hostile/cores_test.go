package hostile

import (
	"os/exec"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// A process is kept to one processor, and let go again.
func TestConfine(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var all, one, now unix.CPUSet
	if err := unix.SchedGetaffinity(cmd.Process.Pid, &all); err != nil {
		t.Fatal(err)
	}
	for i := 0; one.Count() == 0; i++ {
		if all.IsSet(i) {
			one.Set(i)
		}
	}
	for _, want := range []*unix.CPUSet{&one, &all} {
		if err := confine(cmd.Process.Pid, want); err != nil {
			t.Fatal(err)
		}
		if err := unix.SchedGetaffinity(cmd.Process.Pid, &now); err != nil || now != *want {
			t.Errorf("it may use %d processors, not %d: %v", now.Count(), want.Count(), err)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if err := confine(cmd.Process.Pid, &one); err != nil {
		t.Errorf("process %s has ended: %v", strconv.Itoa(cmd.Process.Pid), err)
	}
}
