package clocks

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"example.org/carstate/bench/must"
)

// shifted is a process whose clocks this package sets. A program gets the time from the kernel's
// vDSO, a page of code in every process. In its copy, before the first instruction, clock_gettime
// is replaced by a version that adds offsets, which are behind the code.
type shifted struct {
	pid     int
	offsets uint64 // address of two int64, in seconds: for CLOCK_REALTIME and CLOCK_MONOTONIC
}

// code is clock_gettime(edi, rsi) for amd64. The offsets follow at byte 32.
var code = []byte{
	0xb8, 0xe4, 0x00, 0x00, 0x00, // mov eax, 228 (clock_gettime)
	0x0f, 0x05, // syscall
	0x83, 0xff, 0x01, // cmp edi, 1
	0x77, 0x10, // ja to the ret: another clock
	0x48, 0x8d, 0x0d, 0x0d, 0x00, 0x00, 0x00, // lea rcx, [rip+13]: the offsets
	0x89, 0xff, // mov edi, edi
	0x48, 0x8b, 0x0c, 0xf9, // mov rcx, [rcx+8*rdi]
	0x48, 0x01, 0x0e, // add [rsi], rcx: the seconds
	0xc3,             // ret
	0x90, 0x90, 0x90, // up to 32
}

const wholeCode = 48 // including the offsets

// start is Begin of [nodeprocess.Options].
func (s *shifted) start(cmd *exec.Cmd) error {
	runtime.LockOSThread() // ptrace is bound to a thread
	defer runtime.UnlockOSThread()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Ptrace = true // the process stops before its first instruction
	if err := cmd.Start(); err != nil {
		return err
	}
	s.pid = cmd.Process.Pid
	err := must.Caught(s.patch)
	if err != nil {
		_ = cmd.Process.Kill()
	}
	return errors.Join(err, syscall.PtraceDetach(s.pid))
}

func (s *shifted) patch() {
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(s.pid, &status, 0, nil); err != nil || !status.Stopped() {
		must.Fail("the process did not stop at its beginning: %v, %w", status, err)
	}
	var begin, end uint64 // addresses of the vDSO
	for line := range strings.Lines(string(must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/maps", s.pid))))) {
		if strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			must.Get(fmt.Sscanf(line, "%x-%x", &begin, &end))
		}
	}
	mem := must.Get(os.OpenFile(fmt.Sprintf("/proc/%d/mem", s.pid), os.O_RDWR, 0))
	defer mem.Close()
	image := make([]byte, end-begin)
	if _, err := mem.ReadAt(image, int64(begin)); err != nil {
		must.Fail("the vDSO cannot be read: %w", err)
	}
	at := clockGettime(image)
	text := append(bytes.Clone(code), make([]byte, wholeCode-len(code))...)
	if _, err := mem.WriteAt(text, int64(begin+at)); err != nil {
		must.Fail("the vDSO cannot be written: %w", err)
	}
	s.offsets = begin + at + uint64(len(code))
}

// clockGettime returns the offset of the function in an image of the vDSO.
func clockGettime(image []byte) uint64 {
	f := must.Get(elf.NewFile(bytes.NewReader(image)))
	symbols := must.Get(f.DynamicSymbols())
	i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == "__vdso_clock_gettime" })
	if i < 0 {
		must.Fail("the vDSO has no clock_gettime")
	}
	s := symbols[i]
	if s.Size < wholeCode || s.Value%8 != 0 || s.Value+wholeCode > uint64(len(image)) {
		must.Fail("clock_gettime has %d bytes in this kernel's vDSO, which is too few", s.Size)
	}
	return s.Value
}

func (s *shifted) set(wall, monotonic time.Duration) {
	mem := must.Get(os.OpenFile(fmt.Sprintf("/proc/%d/mem", s.pid), os.O_WRONLY, 0))
	defer mem.Close()
	for i, d := range []time.Duration{wall, monotonic} {
		word := binary.LittleEndian.AppendUint64(nil, uint64(d/time.Second))
		must.Get(mem.WriteAt(word, int64(s.offsets)+int64(8*i)))
	}
}

func needs() error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return errors.New("the row clocks sets a process's clocks through the vDSO of Linux on amd64: run it there")
	}
	var s shifted
	cmd := exec.Command("/bin/true")
	if err := s.start(cmd); err != nil {
		return fmt.Errorf("the row clocks must be allowed to trace the process that it starts: run it as root, outside of "+
			"a sandbox (%w)", err)
	}
	return cmd.Wait()
}
