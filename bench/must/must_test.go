package must

import (
	"errors"
	"testing"
)

// TestCatch checks that an error ends all functions up to the one that catches it, and that another
// panic is not taken for such an error.
func TestCatch(t *testing.T) {
	broken := errors.New("broken")
	deep := func(err error) int { return Get(1, err) }
	call := func(err error) (n int, failed error) {
		cleanedUp := error(nil)
		defer func() {
			if cleanedUp = failed; !errors.Is(cleanedUp, err) {
				t.Errorf("cleaning up: got %v, want %v", cleanedUp, err)
			}
		}()
		defer Catch(&failed)
		n = deep(err)
		Do(nil, err)
		_, _ = Get2(1, 2, err)
		return n, nil
	}
	if n, err := call(nil); n != 1 || err != nil {
		t.Errorf("no error: got %d, %v", n, err)
	}
	if n, err := call(broken); n != 0 || err != broken {
		t.Errorf("an error: got %d, %v", n, err)
	}
	defer func() {
		if recover() != "a bug" {
			t.Error("another panic was caught")
		}
	}()
	func() {
		var err error
		defer Catch(&err)
		panic("a bug")
	}()
}
