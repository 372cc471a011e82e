package row

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// Flood keeps requests in progress. One that the service ends is replaced.
type Flood struct {
	Count           int
	Within, Between time.Duration
	// Stall calls begun, and waits until the request or ctx ends.
	Stall func(ctx context.Context, i int, begun func()) error

	held atomic.Int64
}

// If all began at the same time, they would end at the same time.
func (f *Flood) Start(ctx context.Context) (stop func()) {
	return Background(ctx, f.Count, func(ctx context.Context, i int) {
		Pause(ctx, time.Duration(i)*f.Within/time.Duration(f.Count))
		for ; ctx.Err() == nil; Pause(ctx, f.Between) {
			var here int64
			_ = f.Stall(ctx, i, func() { here = 1; f.held.Add(1) })
			f.held.Add(-here)
		}
	})
}

func (f *Flood) Held() int { return int(f.held.Load()) }

// Stall sends more once a second, and reads as many bytes a second, until the service closes the
// connection. The small buffer makes the service wait for the reader.
func Stall(ctx context.Context, address, first, more string, reads int, begun func()) error {
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 512) })
	}}
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if _, err = io.WriteString(c, first); err == nil {
		begun()
	}
	for got := make([]byte, reads); err == nil; _, err = io.WriteString(c, more) {
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		if _, err = c.Read(got); err == nil {
			Pause(ctx, time.Second)
		} else if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
	return err
}
