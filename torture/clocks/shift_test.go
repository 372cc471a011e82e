package clocks

import (
	"encoding/binary"
	"os"
	"runtime"
	"testing"
)

// The code that replaces clock_gettime finds the offsets behind it and leaves by
// its ret, and this kernel's vDSO has room for it.
func TestCode(t *testing.T) {
	if len(code) != 32 || code[28] != 0xc3 {
		t.Fatalf("%d bytes, the ret is %x", len(code), code[28])
	}
	if ret := 12 + int(code[11]); ret != 28 {
		t.Errorf("another clock leads to byte %d", ret)
	}
	if offsets := 19 + int(binary.LittleEndian.Uint32(code[15:])); offsets != len(code) {
		t.Errorf("the offsets are looked for at byte %d", offsets)
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		if needs() == nil {
			t.Error("the row runs on a machine for which there is no code")
		}
		return
	}
	begin, end, err := mapped(os.Getpid(), "[vdso]")
	if err != nil {
		t.Fatal(err)
	}
	mem, err := os.Open("/proc/self/mem")
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	image := make([]byte, end-begin)
	if _, err := mem.ReadAt(image, int64(begin)); err != nil {
		t.Fatal(err)
	}
	if at, err := clockGettime(image); err != nil || at == 0 {
		t.Errorf("%d, %v", at, err)
	}
	if _, err := clockGettime(image[:100]); err == nil {
		t.Error("half an image has a clock")
	}
}
