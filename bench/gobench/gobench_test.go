package gobench

import (
	"fmt"
	"testing"
)

func TestParse(t *testing.T) {
	got := parse("goos: linux\nBenchmarkTable/vehicles=1M-2 \t 1\t 2010 ns/op\t 22.62 %left\nBenchmarkTable/vehicles=1M-2 \t 1\t 2020 ns/op\t 23 %left\nPASS\nok carstate/x 1s\n")
	if want := "map[Table/vehicles=1M:map[%left:[22.62 23] ns/op:[2010 2020]]]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}
