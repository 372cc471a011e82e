package term

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Confirm returns an error unless the user answers y or yes.
func Confirm(ctx context.Context, in io.Reader, prompt io.Writer, question string) error {
	answer, err := Ask(ctx, in, prompt, question+" [y/N] ")
	if err != nil {
		return err
	}
	if answer = strings.ToLower(answer); answer != "y" && answer != "yes" {
		return errors.New("nothing was done")
	}
	return nil
}

// Ask returns the next line of input, trimmed. If ctx ends first, as on Ctrl-C, the goroutine that
// reads remains until the process ends.
func Ask(ctx context.Context, in io.Reader, prompt io.Writer, question string) (string, error) {
	fmt.Fprint(prompt, question)
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n') // the last line may have no line end
		answer <- strings.TrimSpace(line)
	}()
	select {
	case text := <-answer:
		return text, nil
	case <-ctx.Done():
		fmt.Fprintln(prompt) // ends the line of the question
		return "", ctx.Err()
	}
}
