package hostile

import (
	"errors"
	"os"

	"carstate/torture/cores"
)

// apart gives attackers a processor of their own, as if they had a machine of their
// own: the node and this process, which asks it, get the others until back is called.
// The kernel may be in the middle of one of the attacker's calls, which look at
// thousands of connections, and not give the processor to anybody else before that
// ends, however little the attacker's turn counts. The processor is -1 where there is
// but one.
func apart(w *world) (processor int, back func() error, err error) {
	p, err := cores.Split(w.PID())
	if err != nil || p.Number < 0 {
		return p.Number, func() error { return nil }, err
	}
	set := func(s *cores.Set) error {
		return errors.Join(cores.Confine(w.PID(), s), cores.Confine(os.Getpid(), s))
	}
	return p.Number, func() error { return set(&p.All) }, set(&p.Others)
}
