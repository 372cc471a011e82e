package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// progress shows how far a replay or a restore is: a bar on a terminal, else a line now and
// then.
type progress struct {
	w     io.Writer
	unit  string
	total int
	done  int
	next  time.Time // of the next line

	bars *mpb.Progress // on a terminal
	bar  *mpb.Bar
}

// progressEvery is the time between two lines.
const progressEvery = 10 * time.Second

func newProgress(w io.Writer, total int) *progress { return newProgressOf(w, total, "samples") }

func newProgressOf(w io.Writer, total int, unit string) *progress {
	p := &progress{w: w, unit: unit, total: total, next: time.Now().Add(progressEvery)}
	if f := terminal(w); f != nil {
		p.bars = mpb.New(mpb.WithOutput(f), mpb.WithWidth(60))
		p.bar = p.bars.AddBar(int64(total),
			mpb.PrependDecorators(decor.CountersNoUnit("%d of %d "+unit+" ")),
			mpb.AppendDecorators(decor.AverageETA(decor.ET_STYLE_GO)))
	}
	return p
}

// terminal returns the terminal behind w that people watch, or at which they type; nil: there is
// none. Text written to it is not cleaned, so it is for our own figures alone.
func terminal(w any) *os.File {
	if p, ok := w.(*printable); ok {
		w = p.w
	}
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 || os.Getenv("TERM") == "dumb" {
		return nil
	}
	if null, err := os.Stat(os.DevNull); err == nil && os.SameFile(info, null) {
		return nil
	}
	return f
}

// add notes that n more samples were acknowledged.
func (p *progress) add(n int) {
	p.done += n
	if p.bar != nil {
		p.bar.IncrBy(n)
		return
	}
	if now := time.Now(); now.After(p.next) {
		p.next = now.Add(progressEvery)
		fmt.Fprintf(p.w, "%d of %d %s\n", p.done, p.total, p.unit)
	}
}

// end leaves the terminal in order.
func (p *progress) end(complete bool) {
	if p.bar == nil {
		return
	}
	if !complete {
		p.bar.Abort(false)
	}
	p.bars.Wait()
}
