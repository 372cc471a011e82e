// Package must ends a measurement of the bench, or an attempt of the torture, with an error from
// any depth of calls, as [testing.T.Fatal] ends a test.
//
// [Do], [Get] and [Fail] may be called only in a goroutine in which a function has deferred
// [Catch], or in [Caught].
package must

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

type failure struct{ err error }

func Do(errs ...error) {
	if err := errors.Join(errs...); err != nil {
		if len(errs) == 1 {
			err = errs[0]
		}
		panic(failure{err})
	}
}

// Fail takes the arguments of [fmt.Errorf].
func Fail(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

func Get[T any](v T, err error) T {
	Do(err)
	return v
}

func Get2[T, U any](v T, w U, err error) (T, U) {
	Do(err)
	return v, w
}

// Caught returns the error that has ended f, for a goroutine, which must not end with a panic.
func Caught(f func()) (err error) {
	defer Catch(&err)
	f()
	return nil
}

// Together calls f(0) to f(n-1) in a goroutine each. The first error cancels their context, and
// ends the measurement once all have returned.
func Together(ctx context.Context, n int, f func(ctx context.Context, i int)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	errs := make(chan error, n)
	for i := range n {
		running.Go(func() {
			if err := Caught(func() { f(ctx, i) }); err != nil {
				errs <- err
				cancel()
			}
		})
	}
	running.Wait()
	select {
	case err := <-errs:
		Do(err)
	default:
	}
}

// Catch sets the error that has ended a function. Clean-up must be deferred before Catch, so that
// it runs after it and sees the error.
func Catch(err *error) {
	switch f := recover().(type) {
	case nil:
	case failure:
		*err = f.err
	default:
		panic(f)
	}
}
