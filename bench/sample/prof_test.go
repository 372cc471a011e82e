package sample

import (
	"os"
	"runtime/pprof"
	"testing"
	"time"
)

func TestProf(t *testing.T) {
	in, err := startInside(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer in.close()
	s := newSender(in.addr, in.key, 64)
	f, _ := os.Create("/tmp/sc-10k.pprof")
	pprof.StartCPUProfile(f)
	l := new(latencies)
	c0, _ := cpuOf(os.Getpid())
	err = openLoop(t.Context(), 1000, 32, 5*time.Second, func(i int, due time.Time) error {
		b := newBody(i%1000*10, 10, 1)
		b.stamp(due)
		err := s.post(b.text)
		l.add(time.Since(due))
		return err
	})
	c1, _ := cpuOf(os.Getpid())
	pprof.StopCPUProfile()
	f.Close()
	t.Log(err, l.quantile(.5), l.quantile(.99), c1-c0)
}
