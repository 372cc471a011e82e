package cores

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
	p, err := Split(cmd.Process.Pid)
	if err != nil || p.One.Count() != 1 || p.Number >= 0 && (!p.One.IsSet(p.Number) || p.Others.IsSet(p.Number) || p.Others.Count() != p.All.Count()-1) {
		t.Fatalf("%+v, %v", p, err)
	}
	var now Set
	for _, want := range []*Set{&p.One, &p.All} {
		if err := Confine(cmd.Process.Pid, want); err != nil {
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
	if err := Confine(cmd.Process.Pid, &p.One); err != nil {
		t.Errorf("process %s has ended: %v", strconv.Itoa(cmd.Process.Pid), err)
	}
}
