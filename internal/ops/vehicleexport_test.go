package ops

import "testing"

func TestSpreadsheetSafe(t *testing.T) {
	for text, want := range map[string]string{
		"NHeN4UqVsohGS55I7LBdh": "NHeN4UqVsohGS55I7LBdh", "": "", "a=b": "a=b",
		"=1+1": "'=1+1", "+1": "'+1", "-1": "'-1", "@SUM(A1)": "'@SUM(A1)", "|calc": "'|calc", " =1": "' =1",
		"＝1":   "'＝1",
		"\t=1": "\ufffd=1", "a\x1b[31mb\r\nc": "a\ufffd[31mb\ufffd\ufffdc", "a\u202eb": "a\ufffdb",
		"a\xffb": "a\ufffdb",
	} {
		if got := spreadsheetSafe(text); got != want {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}
