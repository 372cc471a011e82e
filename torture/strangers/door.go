package strangers

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"carstate/internal/access"
	"carstate/internal/nodeprocess"
)

// door is a listener that strangers knock at.
type door interface {
	// ask appends the request of stranger i.
	ask(b []byte, i int, r *rand.Rand) []byte
	// judge says what is wrong with the answer to stranger i; nil if nothing is.
	// Neither part holds the empty line between them.
	judge(i, status int, head, body []byte) error
}

// queryDoor is the query listener, seen through a proxy that it trusts.
type queryDoor struct {
	right   string // a token that counts
	granted string // a token that counts for that vehicle only
	vid     string // a vehicle that has an answer
	other   string // another; it begins with an X, as the vehicles that do not exist
}

// The strangers' manners, by turns.
const (
	unknownToken = iota
	malformedToken
	noToken
	unknownVehicle
	notGranted
	manners
)

func (d *queryDoor) ask(b []byte, i int, r *rand.Rand) []byte {
	b = append(b, "GET "...)
	if i%2 == 0 {
		b = append(b, nodeprocess.DrivingPath...)
	} else {
		b = append(b, nodeprocess.ThrottlePath...)
	}
	b = append(b, "?access_token="...)
	switch i % manners {
	case unknownToken:
		b = appendSecret(b, access.TokenKind)
	case malformedToken:
		b = appendText(b, 1+r.IntN(60), r)
	case noToken:
		b = append(b[:len(b)-len("access_token=")], "token="...)
	case unknownVehicle:
		b = append(b, d.right...)
	case notGranted:
		b = append(b, d.granted...)
	}
	b = append(b, "&vid="...)
	switch i % manners {
	case unknownVehicle:
		b = appendText(append(b, 'X'), 20, r)
	case notGranted:
		b = append(b, d.other...)
	default:
		b = append(b, d.vid...)
	}
	b = append(b, " HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: "...)
	return append(appendAddress(b, i), "\r\n\r\n"...)
}

func (d *queryDoor) judge(i, status int, head, body []byte) error {
	want, challenge, begins := 401, `Bearer realm="carstate", error="invalid_token"`, `{"code":401,"msg":"invalid_token: `
	switch i % manners {
	case noToken:
		challenge = `Bearer realm="carstate"`
	case unknownVehicle, notGranted:
		want, challenge, begins = 200, "", `{"code":200,"msg":"success","data":{"vid":"X`
		if value(head, "carstate-reason") != "unknown" || !bytes.Contains(body, []byte(`"status":0`)) {
			return errors.New("a vehicle that nobody knows has an answer")
		}
	}
	if status != want || value(head, "www-authenticate") != challenge || !bytes.HasPrefix(body, []byte(begins)) {
		return fmt.Errorf("a stranger of manner %d got %d, challenged with %q", i%manners, status, value(head, "www-authenticate"))
	}
	return nil
}

// ingestDoor is the ingest listener.
type ingestDoor struct{ key string } // of a source that may speak for one vehicle

func (d *ingestDoor) ask(b []byte, i int, r *rand.Rand) []byte {
	b = append(b, "POST /v1/telemetry HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer "...)
	if i%2 == 0 {
		b = appendSecret(b, access.SourceKind)
	} else {
		b = append(b, d.key...)
	}
	body := append(appendText([]byte(`{"vid":"X`), 20, r), `","time":"`...)
	body = append(time.Now().UTC().AppendFormat(body, time.RFC3339), `","signals":{"Vehicle.Speed":50}}`...)
	b = append(strconv.AppendInt(append(b, "\r\nContent-Length: "...), int64(len(body)), 10), "\r\n\r\n"...)
	return append(b, body...)
}

func (d *ingestDoor) judge(i, status int, head, _ []byte) error {
	want, challenge := 401, `Bearer realm="carstate-ingest", error="invalid_token"`
	if i%2 == 1 {
		want, challenge = 403, `Bearer realm="carstate-ingest", error="insufficient_scope"`
	}
	if status != want || value(head, "www-authenticate") != challenge {
		return fmt.Errorf("ingest answered a stranger with %d, challenged with %q, not %d", status, value(head, "www-authenticate"), want)
	}
	return nil
}

// adminDoor is the admin listener. It answers few wrong keys a second, and tells
// the rest to wait.
type adminDoor struct{}

func (adminDoor) ask(b []byte, _ int, _ *rand.Rand) []byte {
	b = append(b, "GET /v1/tokens HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "...)
	return append(appendSecret(b, access.AdminKind), "\r\n\r\n"...)
}

func (adminDoor) judge(_, status int, head, _ []byte) error {
	if status == 401 && value(head, "www-authenticate") != "" || status == 429 && value(head, "retry-after") != "" {
		return nil
	}
	return fmt.Errorf("the admin listener answered a wrong key with %d", status)
}

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// appendText appends n characters by chance.
func appendText(b []byte, n int, r *rand.Rand) []byte {
	for n > 0 {
		for v := r.Uint64(); v > 62 && n > 0; v /= 62 {
			b, n = append(b, base62[v%62]), n-1
		}
	}
	return b
}

// appendSecret appends a secret that has the right form, checksum included, and
// that nobody was given.
func appendSecret(b []byte, kind access.Kind) []byte {
	never, _ := access.NewSecret(kind)
	return append(b, never...)
}

// appendAddress appends the address of stranger i, which no other has.
func appendAddress(b []byte, i int) []byte {
	spread := uint32(i) * 2654435761 // odd, so that none comes twice
	if i%2 == 0 {
		var p [4]byte
		binary.BigEndian.PutUint32(p[:], spread)
		for k, v := range p {
			if k > 0 {
				b = append(b, '.')
			}
			b = strconv.AppendInt(b, int64(v), 10)
		}
		return b
	}
	b = strconv.AppendUint(append(b, "2001:db8:"...), uint64(spread>>16), 16)
	b = strconv.AppendUint(append(b, ':'), uint64(spread&0xffff), 16)
	return append(b, "::1"...)
}

// value is that of a header; "" if there is none.
func value(head []byte, name string) string {
	for line := range bytes.SplitSeq(head, []byte("\r\n")) {
		if len(line) > len(name) && line[len(name)] == ':' && bytes.EqualFold(line[:len(name)], []byte(name)) {
			return string(bytes.TrimSpace(line[len(name)+1:]))
		}
	}
	return ""
}
