package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"carstate/internal/store"
	"carstate/internal/store/codec"
	"carstate/internal/vehicle"
)

// loadTimeout bounds one Load, with all its tries.
const loadTimeout = 4 * requestTimeout

// errGap means that some records of an answer did not arrive: the connection was
// cut and made anew in the middle of it.
var errGap = errors.New("a part of the engine's answer is missing")

// errNoRecords means that the server that answered has nothing of what was asked for.
var errNoRecords = errors.New("the engine has no such records")

// errBehind means that the server that answered does not have our own claim yet,
// and so perhaps not all that was committed before it.
var errBehind = errors.New("a server of the cluster lags behind")

// Load calls put for the stored state of each of the vehicles that has one, by
// its place in ids, including all that was committed before the partition was
// taken. It is one question, answered by any server that has all of that: a
// server that was deposed or lags behind is asked again or another one is.
func (t *Partition) Load(ctx context.Context, ids []vehicle.ID, put func(i int, s vehicle.State)) error {
	if len(ids) > store.MaxLoad {
		return fmt.Errorf("%d states are more than one question can ask for", len(ids))
	}
	place := make(map[vehicle.ID]int, len(ids))
	subjects := make([]string, 0, len(ids)+1)
	for i, id := range ids {
		place[id] = i
		subjects = append(subjects, codec.StateSubject(t.number, id))
	}
	// There is always an answer, because the cursor is there.
	subjects = append(subjects, codec.CursorSubject(t.number))
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	records, err := t.e.awaitRecords(ctx, codec.States, subjects, t.rev)
	if err != nil {
		return fmt.Errorf("the engine cannot be asked for states: %w", err)
	}
	return t.decode(records, place, put)
}

// awaitRecords is lastRecords, again and again until a server answers that has what
// it must have, or the context ends.
func (e *Engine) awaitRecords(ctx context.Context, stream string, subjects []string, since uint64) ([]*nats.Msg, error) {
	const soon, later = 2 * time.Millisecond, 100 * time.Millisecond
	for behind := soon; ; {
		records, err := e.lastRecords(ctx, stream, subjects, since)
		if err == nil {
			return records, nil
		}
		if ctx.Err() != nil {
			return nil, errors.Join(ctx.Err(), err)
		}
		rest := later // nobody answers
		if errors.Is(err, errBehind) {
			// Soon, but not for ever so: a server may have no record of it at all.
			rest, behind = behind, min(2*behind, later)
		}
		select {
		case <-ctx.Done():
		case <-time.After(rest):
		}
	}
}

func (t *Partition) decode(records []*nats.Msg, place map[vehicle.ID]int, put func(i int, s vehicle.State)) error {
	for _, m := range records {
		subject := m.Header.Get("Nats-Subject")
		id, ok := codec.VehicleOfState(subject)
		i, asked := place[id]
		if !ok || !asked {
			continue
		}
		body, err := codec.Unseal(subject, m.Data)
		if err == nil && codec.IsMarker(body) {
			continue
		}
		var s vehicle.State
		if err == nil {
			s, err = codec.DecodeState(body)
		}
		if err != nil {
			err = fmt.Errorf("%s: record %s: %w", codec.States, m.Header.Get("Nats-Sequence"), err)
			t.e.fail(err)
			return err
		}
		put(i, s)
	}
	return nil
}

// lastRecords asks any server for the last records of subjects, at least one of
// which must be there. The answer is of one moment, and it is errBehind if that
// is before the stream held the record of the sequence since.
func (e *Engine) lastRecords(ctx context.Context, stream string, subjects []string, since uint64) ([]*nats.Msg, error) {
	records, end, err := e.directGet(ctx, stream, struct {
		Last []string `json:"multi_last"`
	}{subjects})
	if errors.Is(err, errNoRecords) { // not even the cursor
		return nil, errBehind
	}
	if err != nil {
		return nil, err
	}
	upTo, err := strconv.ParseUint(end.Get("Nats-UpTo-Sequence"), 10, 64)
	if err != nil {
		return nil, errors.New("the engine's answer makes no sense")
	}
	if left := end.Get("Nats-Num-Pending"); left != "0" {
		return nil, fmt.Errorf("the engine left %s records out of its answer", left)
	}
	if upTo < since {
		return nil, errBehind
	}
	return records, nil
}

// directGet asks any server of a stream for several records, and returns them with
// the header of the message that ends them.
//
// The client library has no call for it; the protocol is NATS ADR-31: the records
// come one by one, each with the sequence of the one before, and a message of status
// 204 ends them. They count only all together: a vehicle whose record is missing
// would be taken for one without a past.
func (e *Engine) directGet(ctx context.Context, stream string, question any) (records []*nats.Msg, end nats.Header, err error) {
	request, err := json.Marshal(question)
	if err != nil {
		return nil, nil, err
	}
	// An answer that was lost is asked for again before the caller gives up.
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	inbox := e.nc.NewRespInbox()
	sub, err := e.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, nil, err
	}
	defer sub.Unsubscribe()
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, nil, err
	}
	if err := e.nc.PublishRequest("$JS.API.DIRECT.GET."+stream, inbox, request); err != nil {
		return nil, nil, err
	}
	last := "0" // the sequence of the newest record
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return nil, nil, err
		}
		status := m.Header.Get("Status")
		if (status == "" || status == "204") && m.Header.Get("Nats-Last-Sequence") != last {
			return nil, nil, errGap
		}
		switch status {
		case "":
			records = append(records, m)
			last = m.Header.Get("Nats-Sequence")
		case "204":
			return records, m.Header, nil
		case "404":
			return nil, nil, errNoRecords
		default:
			return nil, nil, fmt.Errorf("the engine answers %s", status)
		}
	}
}
