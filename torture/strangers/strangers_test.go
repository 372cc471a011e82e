package strangers

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// Answers are judged, whole or in parts.
func TestCrowd(t *testing.T) {
	const right = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer realm=\"carstate\", error=\"invalid_token\"\r\nContent-Length: 43\r\n\r\n{\"code\":401,\"msg\":\"invalid_token: x\",\"d\":0}"
	for name, c := range map[string]struct {
		answer string
		wrong  bool
	}{
		"right":           {right, false},
		"another status":  {strings.Replace(right, "401", "403", 1), true},
		"no error":        {strings.Replace(right, ", error=\"invalid_token\"", "", 1), true},
		"another message": {strings.Replace(right, "invalid_token: x", "who_are_you:   x", 1), true},
	} {
		k := newCrowd(&queryDoor{vid: "Car1"}, 1, 0, 1)
		asked, err := io.ReadAll(k)
		if err != nil || !strings.HasSuffix(string(asked), "\r\n\r\n") {
			t.Fatalf("%q %v", asked, err)
		}
		for i := range len(c.answer) {
			if _, err = k.Write([]byte(c.answer[i : i+1])); err != nil {
				break
			}
		}
		if !errors.Is(err, errAll) || k.answered != 1 || (k.wrong != nil) != c.wrong {
			t.Errorf("%s: %v, %d, %v", name, err, k.answered, k.wrong)
		}
		if _, err := k.Write([]byte(c.answer)); err == nil || errors.Is(err, errAll) {
			t.Errorf("%s: an answer that nobody asked for was taken: %v", name, err)
		}
	}
}
