package strangers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"

	"carstate/internal/access"
	"carstate/internal/nodeprocess"
	"carstate/torture/row"
)

// cars sends unknown cars to the MQTT listener.
func (k *known) cars(ctx context.Context, a *row.Attempt, first, to int) error {
	var refused atomic.Int64
	err := eachOf(ctx, to-first, func(i int) error {
		i += first
		code, err := knock(ctx, k.node.Address(nodeprocess.MQTT), i, rand.New(rand.NewPCG(a.Seed, uint64(i))))
		if err != nil {
			return err
		}
		// MQTT 3.1.1: 4 bad user name or password, 5 not authorised; MQTT 5: 0x86, 0x87.
		if code != 4 && code != 5 && code != 0x86 && code != 0x87 {
			a.Wrong("an unknown car was answered with %#x", code)
		}
		refused.Add(1)
		return nil
	})
	if err != nil || ctx.Err() != nil {
		return err
	}
	return tally(a, "MQTT", to-first, int(refused.Load()))
}

// knock connects as a car with a name and a key that nobody has, and returns what
// it is told. The listener then has to close the connection.
func knock(ctx context.Context, addr string, i int, r *rand.Rand) (code byte, err error) {
	conn, err := dial(ctx, ownAddress(i), addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	version := byte(4 + i%2)
	packet := append([]byte("\x10\x00\x00\x04MQTT"), version, 0xc2, 0, 60) // name and password, clean
	if version == 5 {
		packet = append(packet, 0) // no properties
	}
	for _, field := range [][]byte{appendText(nil, 12, r), appendText(nil, 8, r), appendSecret(nil, access.SourceKind)} {
		packet = append(append(packet, 0, byte(len(field))), field...)
	}
	packet[1] = byte(len(packet) - 2)
	if len(packet) > 127+2 {
		return 0, errors.New("the CONNECT is longer than its length can say")
	}
	if _, err := conn.Write(packet); err != nil {
		return 0, err
	}
	answer, err := io.ReadAll(io.LimitReader(conn, 1<<10))
	if err != nil && len(answer) < 4 {
		return 0, err
	}
	if len(answer) < 4 || answer[0] != 0x20 {
		return 0, fmt.Errorf("an unknown car got %d bytes in place of a CONNACK", len(answer))
	}
	return answer[3], nil
}
