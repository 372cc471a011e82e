package term

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// Progress shows the progress of long work, such as a replay, a restore or an evaluation. On a
// terminal it shows a bar; otherwise it prints a line every 10 s (progressEvery).
type Progress struct {
	w     io.Writer
	unit  string
	total int
	done  int
	next  time.Time // when the next line is due, if w is not a terminal

	bars *mpb.Progress // nil if not on a terminal
	bar  *mpb.Bar
}

const progressEvery = 10 * time.Second

// NewProgress returns a Progress that shows on w how much of some work is done. total
// is the number of units of work, and unit is their name, such as "samples".
func NewProgress(w io.Writer, total int, unit string) *Progress {
	p := &Progress{w: w, unit: unit, total: total, next: time.Now().Add(progressEvery)}
	if f := Terminal(w); f != nil {
		p.bars = mpb.New(mpb.WithOutput(f), mpb.WithWidth(60))
		p.bar = p.bars.AddBar(int64(total),
			mpb.PrependDecorators(decor.CountersNoUnit("%d of %d "+unit+" ")),
			mpb.AppendDecorators(decor.AverageETA(decor.ET_STYLE_GO)))
	}
	return p
}

// Terminal returns the terminal to which w, a file or a [Printable], writes. If w does not write to
// a terminal, or the terminal is dumb (TERM=dumb), it returns nil. Text that is written directly to
// that terminal is not cleaned by [Printable], so it must not contain anything from outside this
// program.
func Terminal(w any) *os.File {
	if p, ok := w.(*Printable); ok {
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

// Add records that n more units of work, such as samples, are done.
func (p *Progress) Add(n int) {
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

// Done returns how many units of work are done.
func (p *Progress) Done() int { return p.done }

// End finishes the progress bar, so that other text can be written to the terminal. If complete is
// false, the bar keeps its last value. If there is no bar, End does nothing.
func (p *Progress) End(complete bool) {
	if p.bar == nil {
		return
	}
	if !complete {
		p.bar.Abort(false)
	}
	p.bars.Wait()
}
