package strangers

import (
	"bufio"
	"fmt"
	"strings"
	"testing"

	"example.org/carstate/bench/must"
	"example.org/carstate/torture/row"
)

func TestListen_ChecksEachAnswer(t *testing.T) {
	answer := func(status, challenge, body string) string {
		return fmt.Sprintf("HTTP/1.1 %s\r\nWWW-Authenticate: Bearer realm=\"carstate\"%s\r\nContent-Length: %d\r\n\r\n%s",
			status, challenge, len(body), body)
	}
	const unknown, body = `, error="invalid_token"`, `{"code":401,"msg":"invalid_token: x"}`
	for name, c := range map[string]struct {
		answers string
		wrong   int64
	}{
		"right":           {answer("401 No", unknown, body), 0},
		"another status":  {answer("403 No", unknown, body), 1},
		"no error":        {answer("401 No", "", body), 1},
		"another message": {answer("401 No", unknown, `{"code":401,"msg":"who_are_you: x"}`), 1},
		"an answer":       {answer("200 OK", unknown, `{"code":200,"msg":"success","data":{"vid":"Car1","status":1}}`), 1},
	} {
		a := &row.Attempt{Logf: t.Logf}
		v := &visit{Attempt: a, what: "query"}
		in := bufio.NewReader(strings.NewReader(c.answers))
		listen := func(first int) error {
			return must.Caught(func() { v.listen(in, endpoint{check: checkQuery}, first, 1) })
		}
		if err := listen(0); err != nil || v.answered.Load() != 1 ||
			a.Outcome().Wrong != c.wrong {
			t.Errorf("%s: got %v, %+v, want one answer, %d wrong", name, err, a.Outcome(), c.wrong)
		}
		if err := listen(1); err == nil {
			t.Errorf("%s: a missing answer was not detected", name)
		}
	}
}
