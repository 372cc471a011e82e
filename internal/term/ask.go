package term

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Confirm asks a question and returns nil if the user answers y or yes. For any other answer, and
// if ctx ends first, it returns an error.
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

// Ask asks a question and returns the next line of input, without white space at its ends. At the
// end of the input, the result is "". If ctx ends first, as on Ctrl-C, Ask returns the error of ctx
// at once. The goroutine that reads the input then remains until the process ends.
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
