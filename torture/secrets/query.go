package secrets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"carstate/internal/nodeprocess"
)

// patience is how long an answer may take; a listener that waits for more is left
// after it.
const patience = 30 * time.Second

// send sends bytes to a listener and returns what comes back until it closes, or
// until that is enough. Bytes that are less than a request are followed by the end
// of the connection.
func (r *round) send(ctx context.Context, listener string, text []byte, enough func([]byte) bool) ([]byte, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", r.node.Address(listener))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	r.a.Offered(1)
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	_, _ = c.Write(text) // it may have been refused before its end
	if !bytes.Contains(text, []byte("Connection: close")) && enough == nil {
		_ = c.(*net.TCPConn).CloseWrite()
	}
	var got []byte
	buf := make([]byte, 16<<10)
	for {
		n, err := c.Read(buf)
		got = append(got, buf[:n]...)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, errors.New("a connection was neither answered nor closed")
		case err != nil, enough != nil && enough(got):
			r.answered(got)
			return got, nil // cut off is as good as closed here
		}
	}
}

// ask sends every request with every secret to the query listener.
func (r *round) ask(ctx context.Context) error {
	// What feed sent is known by now, or soon.
	if err := nodeprocess.Until(ctx, patience, func(ctx context.Context) error {
		a, err := r.node.Ask(ctx, nodeprocess.DrivingPath, r.text("a token"), r.vid)
		if err == nil && a.Status != 1 {
			err = errors.New("a good query was not answered")
		}
		return err
	}); err != nil {
		return err
	}
	caller := 0
	for _, card := range r.cards {
		fill := strings.NewReplacer("/D", nodeprocess.DrivingPath, "/T?", nodeprocess.ThrottlePath+"?", "TOKEN", card.text, "VID", r.vid, "LONG", strings.Repeat("x", 9000))
		for _, i := range r.rng.Perm(len(queries)) {
			caller++
			text := fill.Replace(queries[i])
			if strings.HasSuffix(text, "\r\n") {
				if !strings.Contains(text, "X-Forwarded-For") {
					text += fmt.Sprintf("X-Forwarded-For: 10.0.%d.%d\r\n", caller>>8, caller&255)
				}
				text += "Connection: close\r\n\r\n"
			}
			answer, err := r.send(ctx, nodeprocess.Query, []byte(text), nil)
			if err != nil {
				return err
			}
			r.look("the answers of the query listener", answer, r.secrets)
		}
	}
	return nil
}
