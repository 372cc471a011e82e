package term

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/cwriter"
	"github.com/vbauerster/mpb/v8/decor"
)

// Progress shows the progress of long work: on a terminal as a bar, otherwise as a line every 10 s.
type Progress struct {
	w     io.Writer
	unit  string
	total int
	done  int
	next  time.Time // next line, if w is not a terminal

	bars *mpb.Progress // nil if not on a terminal
	bar  *mpb.Bar
}

const progressEvery = 10 * time.Second

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

// Terminal returns the terminal to which w, a file or a [Printable], writes, or nil; a dumb one
// (TERM=dumb) counts as none. Text written directly to it is not cleaned, so it must not contain
// anything from outside this program.
func Terminal(w any) *os.File {
	if p, ok := w.(*Printable); ok {
		w = p.w
	}
	f, ok := w.(*os.File)
	if !ok || !cwriter.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return f
}

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

func (p *Progress) Done() int { return p.done }

// End finishes the bar, so that other text can be written. If complete is false, the bar keeps its
// value.
func (p *Progress) End(complete bool) {
	if complete {
		p.Add(p.total - p.done)
	}
	if p.bar != nil {
		p.bar.Abort(false) // no effect on a complete bar
		p.bars.Wait()
	}
}

// Metered shows on a terminal how many bytes were written to w.
func Metered(w, shown io.Writer) (metered io.Writer, end func()) {
	f := Terminal(shown)
	if f == nil {
		return w, func() {}
	}
	bars := mpb.New(mpb.WithOutput(f))
	bar := bars.New(0, mpb.NopStyle(), mpb.PrependDecorators(decor.CurrentKiloByte("% .1f")))
	return bar.ProxyWriter(w), func() {
		bar.Abort(bar.Current() == 0) // removes the line if nothing was written
		bars.Wait()
	}
}
