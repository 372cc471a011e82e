package hostile

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"carstate/internal/nodeprocess"
	"carstate/internal/vehicle"
)

// journal is what honest senders know to be stored.
type journal struct {
	mu      sync.Mutex
	last    map[string]int64 // by vehicle: the newest sample that was acknowledged, in Unix ms
	offered int
	acked   int
	again   int // had to be sent again
}

func (j *journal) note(unixMilli int64, vids ...string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, vid := range vids {
		j.last[vid] = unixMilli
	}
	j.acked += len(vids)
}

func (j *journal) count(offered, again int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.offered += offered
	j.again += again
}

// repeat does something every so often until both ctx and the last one end. What
// fails is done again until it succeeds or drop is closed.
func (j *journal) repeat(ctx, drop context.Context, every time.Duration, samples int, do func(unixMilli int64) error) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := time.Now().UnixMilli()
		j.count(samples, 0)
		for do(now) != nil {
			j.count(0, samples)
			select {
			case <-time.After(50 * time.Millisecond):
			case <-drop.Done():
				return
			}
		}
	}
}

// car publishes samples of one vehicle by MQTT, each once the one before is
// acknowledged.
func (j *journal) car(ctx, drop context.Context, w *world, key string, number int) {
	vid, version := fmt.Sprintf("Honest%d", number), byte(4+number%2)
	var c net.Conn
	var in *bufio.Reader
	defer func() {
		if c != nil {
			_ = c.Close()
		}
	}()
	connect := func() (err error) {
		d := net.Dialer{Timeout: patience}
		if c, err = d.DialContext(drop, "tcp", w.Address(nodeprocess.MQTT)); err != nil {
			c = nil
			return err
		}
		in = bufio.NewReader(c)
		l := login{protocol: "MQTT", version: version, flags: 2, keepAlive: 60, id: vid, user: "honest", key: key}
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err = c.Write(l.bytes()); err != nil {
			return err
		}
		if p, err := readPacket(in); err != nil || p.first != connack || len(p.body) < 2 || p.body[1] != 0 {
			return errors.Join(errors.New("an honest car is not let in"), err)
		}
		return nil
	}
	id := uint16(0)
	j.repeat(ctx, drop, 200*time.Millisecond, 1, func(at int64) (err error) {
		if c == nil {
			err = connect()
		}
		if id++; id == 0 {
			id = 1
		}
		if err == nil {
			_ = c.SetDeadline(time.Now().Add(patience))
			_, err = c.Write(publish(version, 2, id, topic(vid), reading(vid, at)))
		}
		var p packet
		if err == nil {
			p, err = readPacket(in)
		}
		if err == nil && (p.first != puback || len(p.body) < 2 || binary.BigEndian.Uint16(p.body) != id || len(p.body) > 2 && p.body[2] >= 0x80) {
			err = errors.New("an honest message is refused")
		}
		if err == nil {
			j.note(at, vid)
		} else if c != nil {
			_ = c.Close()
			c = nil
		}
		return err
	})
}

// backEnd sends batches by HTTP.
func (j *journal) backEnd(ctx, drop context.Context, w *world, key string, number int) {
	var vids []string
	for i := range 20 {
		vids = append(vids, fmt.Sprintf("Honest%dx%d", number, i))
	}
	j.repeat(ctx, drop, 100*time.Millisecond, len(vids), func(at int64) error {
		var lines strings.Builder
		for _, vid := range vids {
			lines.WriteString(reading(vid, at) + "\n")
		}
		status, body, err := w.Post(drop, key, lines.String())
		if err == nil && (status != http.StatusAccepted || !strings.HasPrefix(string(body), fmt.Sprintf(`{"accepted":%d,`, len(vids)))) {
			err = fmt.Errorf("an honest batch gets %d", status)
		}
		if err == nil {
			j.note(at, vids...)
		}
		return err
	})
}

// judged waits until everything that was acknowledged is judged.
func (j *journal) judged(ctx context.Context, w *world) {
	for vid, last := range j.last {
		err := nodeprocess.Until(ctx, 20*time.Second, func(ctx context.Context) error {
			a, err := w.Ask(ctx, drivingPath, w.open[0].secret, vid)
			if err == nil && (a.Driving != "1" || a.Modified.Before(time.UnixMilli(last).Truncate(time.Second))) {
				err = fmt.Errorf("%+v", a)
			}
			return err
		})
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			w.attempt.Lost("the last acknowledged sample of %s, of %s, is not judged: %v", vid, time.UnixMilli(last).UTC().Format(time.RFC3339), err)
		}
	}
	for i := range 10 {
		if is, err := w.known(ctx, vehicle.ID(victim(i))); ctx.Err() == nil && (err != nil || is) {
			w.attempt.Wrong("%s is known, of which nobody may speak: %v", victim(i), err)
		}
	}
}
