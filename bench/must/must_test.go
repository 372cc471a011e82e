package must

import (
	"errors"
	"testing"
)

func TestCatch(t *testing.T) {
	broken := errors.New("broken")
	call := func(err error) (n int, failed error) {
		defer Catch(&failed)
		n = Get(1, err)
		Do(nil, err)
		_, _ = Get2(1, 2, err)
		return n, nil
	}
	for _, want := range []error{nil, broken} {
		if n, err := call(want); err != want || (n == 1) != (want == nil) {
			t.Errorf("got %d, %v, want %v", n, err, want)
		}
	}
	defer func() {
		if recover() != "a bug" {
			t.Error("another panic was caught")
		}
	}()
	_ = Caught(func() { panic("a bug") })
}
