package term

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Confirm returns an error unless the user answers y or yes. If ctx ends first, as on Ctrl-C, the
// goroutine that reads remains until the process ends.
func Confirm(ctx context.Context, in io.Reader, prompt io.Writer, question string) error {
	fmt.Fprint(prompt, question+" [y/N] ")
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n') // the last line may have no line end
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case text := <-answer:
		if text != "y" && text != "yes" {
			return errors.New("nothing was done")
		}
		return nil
	case <-ctx.Done():
		fmt.Fprintln(prompt) // ends the line of the question
		return ctx.Err()
	}
}
